"""Access to the recorded bytes under ``tests/vectors``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

VECTORS = Path(__file__).parent / "vectors"
FOREIGN = VECTORS / "foreign_a"


def reference_entries() -> list[dict[str, Any]]:
    return json.loads((VECTORS / "index.json").read_text())


def foreign_index() -> dict[str, Any]:
    return json.loads((FOREIGN / "index.json").read_text())


def read_reference(entry: dict[str, Any]) -> bytes:
    return (VECTORS / entry["file"]).read_bytes()


def read_foreign(file: str) -> bytes:
    return (FOREIGN / file).read_bytes()
