"""Values of options as Spark hands them over, text all of them, checked one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, get_args, get_origin

import msgspec

from tensor_pool.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LARGEST", "LONGEST_S", "Ranges", "convert_options"]

LARGEST: Final = 2**63 - 1
"""What a column of Spark can hold."""
LONGEST_S: Final = 1_000_000_000
"""Thirty years: longer than anybody waits, short enough for every clock."""

Ranges = dict[str, tuple[float, float]]
"""The smallest and the largest value of options that are numbers."""
_Options = TypeVar("_Options", bound=msgspec.Struct)


def convert_options(values: Mapping[str, Any], kind: type[_Options], ranges: Ranges) -> _Options:
    """The options of a struct from their texts.

    Args:
        values: By names of fields.
        kind: The struct.
        ranges: Of its numbers.

    Raises:
        ConfigError: A value makes no sense; says which ones would.

    Example:
        >>> class Wanted(msgspec.Struct):
        ...     slots: int = 8
        >>> convert_options({"slots": "16"}, Wanted, {"slots": (1, 64)})
        Wanted(slots=16)
        >>> convert_options({"slots": "65"}, Wanted, {"slots": (1, 64)})
        Traceback (most recent call last):
        tensor_pool.errors.ConfigError: option slots=65
          try: a number from 1 to 64
    """
    for field in msgspec.structs.fields(kind):
        if field.name in values:
            _check_choice(field, values[field.name])
    try:
        options = msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as e:
        raise ConfigError(f"option {e}", hint="see the table of options of the format tensorpool") from None
    for name, (least, most) in ranges.items():
        number = getattr(options, name)
        # Written so that NaN is outside of every range.
        if number is not None and not least <= number <= most:
            raise ConfigError(
                f"option {name}={values.get(name, number)}", hint=f"a number from {least:,} to {most:,}"
            )
    return options


def _check_choice(field: msgspec.structs.FieldInfo, value: Any) -> None:
    choices = get_args(field.type) if get_origin(field.type) is Literal else ()
    if choices and value not in choices:
        raise ConfigError(f"option {field.name}={value!r}", hint=" or ".join(choices))
