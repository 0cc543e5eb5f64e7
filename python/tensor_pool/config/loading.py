"""From layers to a checked configuration: ``defaults < file < environment < command line``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import msgspec

from tensor_pool.config import layers
from tensor_pool.config.keys import Key, find_key, nearest_key, section_keys
from tensor_pool.config.layers import Origin, Setting, printable
from tensor_pool.config.registry import SECTIONS, section_type
from tensor_pool.config.sections import (
    AeronSection,
    AgentsSection,
    LogSection,
    Section,
    ShmSection,
    StreamsSection,
)
from tensor_pool.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["Config", "Entry", "Problem", "check_file", "load_config"]

AnySection = TypeVar("AnySection", bound=Section)

_DEFAULT: Final = Origin("default")
_LONGEST_SHOWN: Final = 80  # characters of a refused value


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong with a configuration."""

    key: str
    what: str
    where: str
    hint: str

    def as_error(self) -> ConfigError:
        """The same as an error."""
        return ConfigError(self.what, where=self.where or None, hint=self.hint or None)


class Entry(msgspec.Struct, frozen=True):
    """One key with its value and where that comes from."""

    key: Key
    value: Any
    origin: Origin


class Config:
    """A checked, frozen configuration.

    Sections are reached by name (`aeron`, `streams`, `shm`, `agents`, `log`), or by their struct, as services
    reach their own.

    Example:
        >>> config = load_config(overrides={"aeron.term_length": "1m"}, environ={}, search=False)
        >>> config.aeron.term_length, config[AeronSection].timer_interval_ms
        (1048576, 20)
        >>> print(config.origin("aeron.term_length"), config.origin("log.level"), sep=", ")
        argument, default
    """

    def __init__(self, values: Mapping[str, tuple[Any, Origin]], *, file: Path | None) -> None:
        self._values = dict(values)
        self._sections: dict[str, Section] = {}
        self.file = file
        """The file that was read, if any."""

    def __getitem__(self, struct: type[AnySection]) -> AnySection:
        """A section by its struct.

        Raises:
            ConfigError: A key of the section has no default and no value.
        """
        name = struct.section_name
        if name not in self._sections:
            section, problems = _build_section(name, self._values)
            if section is None:
                raise _error_of(problems)
            self._sections[name] = section
        section = self._sections[name]
        assert isinstance(section, struct)
        return section

    @property
    def aeron(self) -> AeronSection:
        """Aeron: media driver, buffers, time-outs."""
        return self[AeronSection]

    @property
    def streams(self) -> StreamsSection:
        """Channels and stream ids."""
        return self[StreamsSection]

    @property
    def shm(self) -> ShmSection:
        """Where shared memory lies."""
        return self[ShmSection]

    @property
    def agents(self) -> AgentsSection:
        """How agents run."""
        return self[AgentsSection]

    @property
    def log(self) -> LogSection:
        """What is logged."""
        return self[LogSection]

    def origin(self, path: str) -> Origin:
        """Where the value of a key comes from.

        Raises:
            ConfigError: There is no such key.
        """
        return self.entry(path).origin

    def entry(self, path: str) -> Entry:
        """A key with its value and origin.

        Raises:
            ConfigError: There is no such key.
        """
        key = find_key(path)
        if key is None:
            raise _unknown(path, "").as_error()
        value, origin = self._values.get(path, (key.default, _DEFAULT))
        return Entry(key, value, origin)

    def is_set(self, path: str) -> bool:
        """Whether anybody set a key, be it to its default."""
        return path in self._values

    def replace(self, values: Mapping[str, Any]) -> Config:
        """The same configuration with other values for some keys.

        Raises:
            ConfigError: A key is unknown, or a value is of the wrong type or out of range.

        Example:
            >>> load_config(environ={}, search=False).replace({"log.level": "debug"}).log.level
            'debug'
        """
        changed, problems = _check(list(layers.read_overrides(values, "argument")), beside=self._values)
        if problems:
            raise _error_of(problems)
        return Config(self._values | changed, file=self.file)

    def entries(self) -> Iterator[Entry]:
        """Every key that has a value, section by section."""
        for section in SECTIONS:
            for key in section_keys(section).values():
                entry = self.entry(key.path)
                if entry.value is not msgspec.NODEFAULT:
                    yield entry


def load_config(
    path: str | Path | None = None,
    *,
    overrides: Mapping[str, Any] | None = None,
    overrides_from: Literal["command line", "argument"] = "argument",
    environ: Mapping[str, str] | None = None,
    search: bool = True,
) -> Config:
    """Read and check the configuration.

    Args:
        path: The configuration file; searched for when left out (see `layers.find_file`).
        overrides: Values by path, above all others. Text is read as in the environment.
        overrides_from: What to call the overrides.
        environ: The environment; the process's own when left out.
        search: Whether to look for a file that nobody named.

    Raises:
        ConfigError: A key is unknown, or a value is of the wrong type or out of range.

    Example:
        >>> load_config(environ={"TENSOR_POOL__LOG__LEVEL": "debug"}, search=False).log.level
        'debug'
    """
    environ = os.environ if environ is None else environ
    file = layers.find_file(path, environ) if search or path is not None else None
    settings = [
        *(layers.read_file(file) if file is not None else []),
        *layers.read_environment(environ),
        *layers.read_overrides(overrides or {}, overrides_from),
    ]
    values, problems = _check(settings)
    if problems:
        raise _error_of(problems)
    return Config(values, file=file)


def check_file(path: str | Path) -> list[Problem]:
    """Everything that is wrong with a file, by itself: neither the environment nor anything else is read."""
    try:
        settings = layers.read_file(Path(path))
    except ConfigError as e:
        return [Problem(key="", what=e.message, where=e.where or str(path), hint=e.hint or "")]
    return _check(settings)[1]


def _check(
    settings: Sequence[Setting], beside: Mapping[str, tuple[Any, Origin]] | None = None
) -> tuple[dict[str, tuple[Any, Origin]], list[Problem]]:
    """Read all values; a value that is wrong is a problem even where a later layer replaces it.

    Args:
        settings: What to read.
        beside: Values that hold already, and that rules between keys are to see as well.
    """
    values: dict[str, tuple[Any, Origin]] = {}
    problems: list[Problem] = []
    for setting in settings:
        key = find_key(setting.path)
        if key is None:
            if setting.raw != {}:
                problems.append(_unknown(setting.path, str(setting.origin)))
            elif setting.path not in SECTIONS:
                problems.append(_unknown_section(setting))
            continue
        try:
            value = key.read_text(setting.raw) if setting.is_text else key.read(setting.raw)
        except ValueError as e:
            problems.append(_refused(key, setting, str(e)))
        else:
            values[key.path] = (value, setting.origin)
    if not problems:  # rules between keys make no sense while keys are missing
        for name in dict.fromkeys(path.partition(".")[0] for path in values):
            problems += _build_section(name, {**(beside or {}), **values})[1]
    return values, problems


def _build_section(
    name: str, values: Mapping[str, tuple[Any, Origin]]
) -> tuple[Section | None, list[Problem]]:
    keys = section_keys(name).values()
    given = {key.name: values[key.path] for key in keys if key.path in values}
    missing = [key for key in keys if key.is_required and key.name not in given]
    where = ", ".join(dict.fromkeys(str(origin) for _, origin in given.values())) or "nowhere set"
    if missing:
        return None, [
            Problem(
                key=key.path, what=f"{key.path} is required", where=where, hint=f"set it to {key.allowed}"
            )
            for key in missing
        ]
    try:
        return section_type(name)(**{key: value for key, (value, _) in given.items()}), []
    except ConfigError as e:  # a rule between keys, see Section
        hint = e.hint or f"`tpool config explain {name}` lists the keys of the section"
        return None, [Problem(key=name, what=f"{name}: {e.message}", where=where, hint=hint)]


def _unknown_section(setting: Setting) -> Problem:
    shown = _shorten(setting.path)
    hint = f"sections: {', '.join(SECTIONS)}"
    return Problem(key=shown, what=f"unknown section [{shown}]", where=str(setting.origin), hint=hint)


def _unknown(path: str, where: str) -> Problem:
    shown = _shorten(path)
    if path in SECTIONS:
        hint = f"write [{path}] and its keys below it: {', '.join(section_keys(path))}"
        return Problem(key=path, what=f"{path} is a section, not a key", where=where, hint=hint)
    section, _, name = path.partition(".")
    nearest = nearest_key(path)
    if nearest is not None:
        hint = f"did you mean {nearest}?"
    elif section in SECTIONS and name:
        hint = f"keys of {section}: {', '.join(section_keys(section))}"
    else:
        hint = f"sections: {', '.join(SECTIONS)}"
    return Problem(key=shown, what=f"unknown key {shown}", where=where, hint=hint)


def _refused(key: Key, setting: Setting, reason: str) -> Problem:
    what = f"{key.path} can't be {_shorten(repr(setting.raw))}"
    return Problem(
        key=key.path,
        what=f"{what}: {_shorten(reason)}" if reason else what,
        where=str(setting.origin),
        hint=f"set it to {key.allowed}",
    )


def _error_of(problems: Sequence[Problem]) -> ConfigError:
    error = problems[0].as_error()
    if len(problems) > 1:
        error = ConfigError(
            f"{error.message} (and {len(problems) - 1} more; `tpool config check` lists all)",
            where=error.where,
            hint=error.hint,
        )
    return error


def _shorten(text: str) -> str:
    text = printable(text)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 3]}..."
