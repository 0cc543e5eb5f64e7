"""What may be a media driver's directory, and what can't."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensor_pool.errors import ConfigError
from tensor_pool.transport.aeron_dir import check_aeron_dir


def made(directory: Path, *names: str) -> str:
    for name in names:
        (directory / name).touch()
    return str(directory)


@pytest.mark.parametrize(
    "names",
    [
        (),
        ("publications", "images"),  # a media driver is about to start
        ("cnc.dat", "publications"),
        ("cnc.dat", "somebody-elses"),  # what else lies there is not ours to judge
    ],
)
def test_may_be(tmp_path: Path, names: tuple[str, ...]) -> None:
    check_aeron_dir(made(tmp_path, *names))


def test_may_come_to_be(tmp_path: Path) -> None:
    check_aeron_dir(str(tmp_path / "later"))


def test_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="it is a file"):
        check_aeron_dir(made(tmp_path, "file") + "/file")


def test_a_directory_of_something_else(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"it holds 'letters' and no cnc\.dat") as caught:
        check_aeron_dir(made(tmp_path, "letters", "publications"))
    assert "tpool up" in (caught.value.hint or "")
