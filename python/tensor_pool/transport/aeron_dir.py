"""The directory where a media driver and its clients meet: what may be one, and what to try where none is."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tensor_pool.errors import ConfigError

__all__ = ["SHARE_HINT", "check_aeron_dir", "is_somebody_elses", "start_hint"]

_CNC_FILE: Final = "cnc.dat"
_AERON_FILES: Final = {_CNC_FILE, "publications", "images", "loss-report.dat"}
"""What a media driver makes, `_CNC_FILE` last: a directory with some of the others may be about to be one."""

SHARE_HINT: Final = (
    "run as the user who started it, or share it with a group: start it under `umask 007`, and set "
    'shm.permissions = "group"'
)
"""What to try where a media driver runs and this user may not use it."""


def start_hint(aeron_dir: str) -> str:
    """What to try where no media driver runs.

    Example:
        >>> start_hint("/dev/shm/lab")
        'start one with `tpool up --aeron-dir /dev/shm/lab`; `tpool media run` does so without an SHM driver'
    """
    return (
        f"start one with `tpool up --aeron-dir {aeron_dir}`; `tpool media run` does so without an SHM driver"
    )


def check_aeron_dir(aeron_dir: str) -> None:
    """Says at once that a path can't be a media driver's; one that does not exist yet, or is empty, may be.

    Raises:
        ConfigError: It is a file, or a directory of something else.

    Example:
        >>> check_aeron_dir("/etc/hosts")
        Traceback (most recent call last):
        tensor_pool.errors.ConfigError: /etc/hosts is not a media driver's directory: it is a file
          try: the first line that `tpool up` prints has its directory; by default that is Aeron's own
    """
    path = Path(aeron_dir)
    try:
        entries = {entry.name for entry in path.iterdir()}
    except NotADirectoryError:
        raise _no_aeron_dir(aeron_dir, "it is a file") from None
    except OSError:
        return  # not there yet, or not ours to read: whoever connects finds out
    strange = sorted(entries - _AERON_FILES)
    if strange and _CNC_FILE not in entries:
        raise _no_aeron_dir(aeron_dir, f"it holds {strange[0]!r} and no {_CNC_FILE}")


def is_somebody_elses(aeron_dir: str) -> bool:
    """Whether this user may not even see if a media driver lives there: that is another thing than none.

    Example:
        >>> is_somebody_elses("/nonexistent")
        False
    """
    try:
        Path(aeron_dir, _CNC_FILE).open("rb").close()
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def _no_aeron_dir(aeron_dir: str, why: str) -> ConfigError:
    return ConfigError(
        f"{aeron_dir} is not a media driver's directory: {why}",
        hint="the first line that `tpool up` prints has its directory; by default that is Aeron's own",
    )
