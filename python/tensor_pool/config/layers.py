"""Where values come from: the file, the environment, the command line. Nothing is judged here.

Each layer is read into settings that remember their origin; `loading` checks and merges them.
"""

from __future__ import annotations

import json
import os
import re
import stat
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from tensor_pool.config.keys import ENVIRONMENT_PREFIX
from tensor_pool.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "FILE_NAME",
    "FILE_VARIABLE",
    "Origin",
    "Setting",
    "find_file",
    "parse_assignment",
    "printable",
    "read_environment",
    "read_file",
    "read_overrides",
]

FILE_NAME: Final = "tensor-pool.toml"
FILE_VARIABLE: Final = f"{ENVIRONMENT_PREFIX}CONFIG"
"""The environment variable that names the configuration file."""

_ESCAPES: Final = {code: f"\\x{code:02x}" for code in (*range(32), 127)}  # ASCII that is not printable
_LARGEST_FILE: Final = 256 * 1024  # bytes; real files have a few thousand
_SHORTHANDS: Final = {f"{ENVIRONMENT_PREFIX}AERON_DIR": "aeron.dir"}
"""Variables that people meet in the documentation of every command, beside their regular names."""


class Origin(msgspec.Struct, frozen=True):
    """Where a value comes from.

    Example:
        >>> print(Origin("environment", "TENSOR_POOL__LOG__LEVEL"))
        environment TENSOR_POOL__LOG__LEVEL
    """

    kind: Literal["default", "file", "environment", "command line", "argument"]
    detail: str = ""

    def __str__(self) -> str:
        return printable(f"{self.kind} {self.detail}".rstrip())


class Setting(msgspec.Struct, frozen=True):
    """A value that a layer sets, not yet checked."""

    path: str
    raw: Any
    origin: Origin
    is_text: bool = False
    """Whether the value is text to be read, or a value with a type already."""


def printable(text: str) -> str:
    r"""Text that a terminal shows and does not obey, on one line.

    Example:
        >>> print(printable("bell\a and\nline"))
        bell\x07 and\x0aline
    """
    if text.isprintable():
        return text
    return text.encode("ascii", "backslashreplace").decode().translate(_ESCAPES)


def find_file(explicit: str | Path | None, environ: Mapping[str, str]) -> Path | None:
    """The configuration file: the first that there is, nothing is merged.

    In this order: the explicit one, the one that ``TENSOR_POOL__CONFIG`` names, ``tensor-pool.toml`` here,
    ``tensor-pool/tensor-pool.toml`` in ``$XDG_CONFIG_HOME`` (``~/.config``) and in ``/etc``.

    Raises:
        ConfigError: One of the first two is named and does not exist.
    """
    named = [(explicit, "the command line or the call"), (environ.get(FILE_VARIABLE), FILE_VARIABLE)]
    for candidate, named_by in named:
        if candidate:
            if not os.path.lexists(candidate):
                raise ConfigError(
                    f"there is no configuration file {candidate}",
                    where=f"named by {named_by}",
                    hint=f"`tpool config init {candidate}` writes one",
                )
            return Path(candidate)
    user = Path(environ.get("XDG_CONFIG_HOME") or Path(environ.get("HOME") or "/nonexistent") / ".config")
    places = [Path(), user / "tensor-pool", Path("/etc/tensor-pool")]
    # os.path, unlike Path, says False for a directory that may not be searched.
    found = (place / FILE_NAME for place in places if os.path.isfile(place / FILE_NAME))  # noqa: PTH113
    return next(found, None)


def read_file(path: Path) -> list[Setting]:
    """The settings of a TOML file.

    Raises:
        ConfigError: It can't be read, is not TOML, or has values outside of sections.
    """
    document = _parse_toml(path)
    origin = Origin("file", str(path))
    settings = []
    for section, table in document.items():
        if isinstance(table, dict) and table:
            settings += [Setting(f"{_name(section)}.{_name(key)}", raw, origin) for key, raw in table.items()]
        else:
            settings.append(Setting(_name(section), table, origin))
    return settings


def read_environment(environ: Mapping[str, str]) -> list[Setting]:
    """The settings of ``TENSOR_POOL__SECTION__KEY`` variables; empty ones count as not set.

    Raises:
        ConfigError: A variable and its shorthand disagree.
    """
    settings: dict[str, Setting] = {}
    for variable in sorted(environ):
        text = environ[variable]
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable == FILE_VARIABLE or not text:
            continue
        path = _SHORTHANDS.get(variable)
        if path is None:
            path = variable.removeprefix(ENVIRONMENT_PREFIX).lower().replace("__", ".", 1)
        earlier = settings.get(path)
        if earlier is not None and earlier.raw != text:
            raise ConfigError(
                f"{earlier.origin.detail} and {variable} set {path} to different values",
                hint=f"unset one of them: {earlier.raw!r} or {text!r}",
            )
        settings[path] = Setting(path, text, Origin("environment", variable), is_text=True)
    return list(settings.values())


def read_overrides(overrides: Mapping[str, Any], kind: Literal["command line", "argument"]) -> list[Setting]:
    """The settings of a command line or a call, by path; text is read, other values are taken.

    Raises:
        ConfigError: A path is not text.
    """
    for path in overrides:
        if not isinstance(path, str):
            raise ConfigError(
                f"{path!r} is not a key", where=kind, hint='keys are text, e.g. {"log.level": "debug"}'
            )
    return [Setting(path, raw, Origin(kind), is_text=isinstance(raw, str)) for path, raw in overrides.items()]


def parse_assignment(text: str) -> tuple[str, str]:
    """Split ``section.key=value`` as ``--set`` takes it.

    Raises:
        ConfigError: It has no "=", or no section and key before it.

    Example:
        >>> parse_assignment("log.level=debug")
        ('log.level', 'debug')
    """
    path, equals, value = text.partition("=")
    if not equals or "." not in path.strip(". "):
        raise ConfigError(
            f"{text!r} sets nothing", where="--set", hint="write section.key=value, e.g. log.level=debug"
        )
    return path.strip(), value


def _name(part: str) -> str:
    """A part of a path; quoted as in TOML where it is not a plain word, so that its dots separate nothing."""
    return part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else json.dumps(part, ensure_ascii=False)


def _parse_toml(path: Path) -> dict[str, Any]:
    try:
        # Anything but a regular file could make open() or read() wait for ever, or never end.
        if not stat.S_ISREG(path.stat().st_mode):
            raise ConfigError(f"{path} is not a regular file", hint="name a TOML file")
        with path.open("rb") as file:
            content = file.read(_LARGEST_FILE + 1)
    except (OSError, ValueError) as e:  # ValueError: a NUL in the path
        if isinstance(e, ConfigError):
            raise
        raise ConfigError(
            f"can't read the configuration file: {e.strerror if isinstance(e, OSError) else e}",
            where=str(path),
            hint="check that it exists and may be read",
        ) from None
    if len(content) > _LARGEST_FILE:
        raise ConfigError(
            f"the configuration file is larger than {_LARGEST_FILE // 1024} KiB",
            where=str(path),
            hint="name a TOML file",
        )
    try:
        return tomllib.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as e:
        raise ConfigError(
            f"not TOML: {str(e) or 'nested too deeply'}",
            where=str(path),
            hint="`tpool config init -` prints a file to compare with",
        ) from None
