"""What the README shows runs as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_the_twenty_lines_run_as_written():
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert result.stdout.splitlines() == ["66", "1 (480, 640) 7.0 True", "None 0 {}"]
    assert len([line for line in code.splitlines() if line.strip()]) <= 20


def test_links_and_make_targets_exist():
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"\$ make (\w+)", README):
        assert f"\n{target}:" in makefile
