"""Configuration as TOML text. The standard library reads TOML but does not write it."""

from __future__ import annotations

import inspect
import json
import textwrap
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tensor_pool.config.keys import section_keys
from tensor_pool.config.registry import SECTIONS, section_type

if TYPE_CHECKING:
    from tensor_pool.config.keys import Key
    from tensor_pool.config.loading import Config

__all__ = ["commented_defaults", "config_toml", "toml_value"]

_WIDTH: Final = 100
_HEADER: Final = """\
# Configuration of the tensor pool. Every key shows its default: remove the # before a key to change it.
# Environment variables (TENSOR_POOL__SECTION__KEY) and the command line (--set section.key=value) come
# before this file. `tpool config show` tells which values hold and where they come from.
"""


def commented_defaults() -> str:
    r"""A file with every key, its documentation and its default, all commented out.

    Commented out, so that a file written today does not pin the defaults of today.

    Example:
        >>> print("\n".join(commented_defaults().splitlines()[-3:]))
        # 'auto' is text on a terminal and JSON lines otherwise.
        # Allowed: one of auto, text, json.
        #format = "auto"
    """
    parts = [_HEADER]
    for section in SECTIONS:
        parts.append(f"{_comment(inspect.getdoc(section_type(section)) or '')}\n[{section}]\n")
        parts += [_commented_key(key) for key in section_keys(section).values()]
    return "\n".join(parts)


def config_toml(config: Config) -> str:
    """The values that hold, with their origins as comments; reading it gives the same configuration.

    Example:
        >>> from tensor_pool.config import load_config
        >>> print(config_toml(load_config(environ={}, search=False)).splitlines()[0])
        [aeron]
    """
    lines: list[str] = []
    section = ""
    for entry in config.entries():
        if entry.key.section != section:
            section = entry.key.section
            lines += ["", f"[{section}]"] if lines else [f"[{section}]"]
        lines.append(f"{entry.key.name} = {_key_value(entry.key, entry.value)}  # {entry.origin}")
    return "\n".join(lines) + "\n"


def toml_value(value: Any) -> str:
    r"""One value as TOML.

    Example:
        >>> toml_value(("a", 1, True, 2.5, {"x": 'say "hi"'}))
        '["a", 1, true, 2.5, {"x" = "say \\"hi\\""}]'
    """
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml_value(str(k))} = {toml_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if isinstance(value, str):
        # JSON's escapes are TOML's too; DEL is the one character that only TOML wants escaped.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool | int | float):
        return str(value).lower()
    raise TypeError(f"{type(value).__qualname__} has no TOML form here")


def _key_value(key: Key, value: Any) -> str:
    return toml_value(key.show(value) if key.is_size else value)


def _commented_key(key: Key) -> str:
    value = "" if key.is_required else _key_value(key, key.default)
    return f"{_comment(key.doc)}\n{_comment(f'Allowed: {key.allowed}.')}\n#{key.name} = {value}\n"


def _comment(text: str) -> str:
    paragraphs = (" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
    lines = [line for paragraph in paragraphs for line in textwrap.wrap(paragraph, _WIDTH - 2)]
    return "\n".join(f"# {line}" for line in lines)
