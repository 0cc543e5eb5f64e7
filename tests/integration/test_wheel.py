"""The wheel installs and works where there is neither Rust nor a compiler."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(600)
def test_the_wheel_works_in_a_bare_environment(tmp_path):
    command = ["make", "--directory", ROOT, "wheel", f"DIST={tmp_path}"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=580)
    assert result.returncode == 0, result.stderr
    assert "the wheel works on Python" in result.stdout
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "tensor_pool/py.typed" in names
    assert "tensor_pool/_native.pyi" in names
    assert any(name.endswith("schemas/control.xml") for name in names), "schemas are package data"
    assert not any(Path(name).name.startswith("test_") or name.endswith(".rs") for name in names)


def test_aeron_is_compiled_for_any_cpu_of_the_architecture():
    flags = list(
        ROOT.glob("target/release/build/rusteron-*/out/build/aeron-*/src/main/c/CMakeFiles/*/flags.make")
    )
    assert flags, "the native build left no trace"
    for path in flags:
        options = [option for option in path.read_text().split() if option.startswith("-march=")]
        assert options, path
        assert options[-1] in ("-march=x86-64", "-march=armv8-a"), "the last one wins"
