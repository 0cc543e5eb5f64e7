"""Everything there is to know about a key: its type, default and documentation, and how to read its value.

All of it is taken from the annotations of the section structs; nothing is written down twice.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import inspect

from tensor_pool.channels import format_size, parse_size
from tensor_pool.config.kinds import ALLOWED, CHECK, IS_SIZE, POWER_OF_TWO
from tensor_pool.config.registry import SECTIONS, section_type
from tensor_pool.errors import TensorPoolError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["ENVIRONMENT_PREFIX", "Key", "all_keys", "find_key", "nearest_key", "section_keys", "struct_keys"]

ENVIRONMENT_PREFIX: Final = "TENSOR_POOL__"

_LONGEST_GUESS: Final = 100  # characters of an unknown key that are compared with the known ones


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """One key of one section.

    Example:
        >>> key = find_key("aeron.term_length")
        >>> key.allowed, key.show(key.default), key.environment_name
        ('a size from 64k to 1g, a power of two', '4m', 'TENSOR_POOL__AERON__TERM_LENGTH')
    """

    section: str
    name: str
    default: Any
    doc: str
    allowed: str
    """What the key accepts, in words."""
    annotation: Any
    is_size: bool
    is_choice: bool
    is_power_of_two: bool
    check: Callable[[Any], None] | None = None
    """What the kind asks beyond its type, see `kinds.CHECK`."""

    def __hash__(self) -> int:
        return hash((self.section, self.name))

    @property
    def is_required(self) -> bool:
        """Whether it has no default."""
        return self.default is msgspec.NODEFAULT

    @property
    def path(self) -> str:
        """The key with its section, as people write it."""
        return f"{self.section}.{self.name}"

    @property
    def environment_name(self) -> str:
        """The environment variable that sets it."""
        return f"{ENVIRONMENT_PREFIX}{self.section}__{self.name}".upper()

    def read(self, raw: object) -> Any:
        """Turn a value from TOML or Python into the key's own type.

        Raises:
            ValueError: The value is of the wrong type or out of range; its text adds to what `allowed` says.
        """
        try:
            return self._read(raw)
        except msgspec.ValidationError as e:
            # Of a list or table say which part is wrong; of anything else `allowed` says more than msgspec.
            reason = str(e) if " - at `$" in str(e) else ""
            raise ValueError(re.sub(r"Expected `str` matching regex '.*'", "not allowed", reason)) from None
        except TensorPoolError as e:  # its hint is for other places; here `allowed` says what to try
            raise ValueError(e.message) from None

    def _read(self, raw: object) -> Any:
        if isinstance(raw, str):
            if self.is_size:
                raw = parse_size(raw.strip())
            elif self.is_choice:
                raw = raw.strip().lower()  # TENSOR_POOL__LOG__LEVEL=DEBUG is what fingers type
        value = msgspec.convert(
            raw, self.annotation, from_attributes=True
        )  # also tables that were read before
        if self.is_power_of_two and value.bit_count() != 1:
            raise ValueError("not a power of two")
        if self.check is not None:
            self.check(value)
        return value

    def read_text(self, text: str) -> Any:
        """Turn a value from the environment or the command line into the key's own type.

        Text and choices are taken as they are; lists are written with commas or as in TOML; everything else,
        tables and lists of them included, is written as in TOML. Where a key takes text or something else,
        what is not TOML is the text.

        Raises:
            ValueError: See `read`.
        """
        kind = inspect.type_info(self.annotation)
        kind = kind.type if isinstance(kind, inspect.Metadata) else kind
        if self.is_size or self.is_choice or isinstance(kind, inspect.StrType):
            return self.read(text)
        if isinstance(kind, inspect.ListType | inspect.VarTupleType) and not text.lstrip().startswith("["):
            return self.read([item.strip() for item in text.split(",") if item.strip()])
        try:
            return self._read_toml(text)
        except ValueError:
            if isinstance(kind, inspect.UnionType) and any(map(_is_text, kind.types)):
                return self.read(text.strip())
            raise

    def _read_toml(self, text: str) -> Any:
        try:
            raw = tomllib.loads(f"value = {text.strip()}")
        except (ValueError, RecursionError):
            raise ValueError from None
        if raw.keys() != {"value"}:
            raise ValueError
        return self.read(raw["value"])

    def show(self, value: Any) -> str:
        """Write a value for people; sizes as Aeron writes them."""
        if self.is_size:
            return format_size(value)
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, dict):
            return "; ".join(f"{name}: {self.show(item)}" for name, item in value.items())
        if isinstance(value, msgspec.Struct):
            fields = msgspec.structs.asdict(value)
            return "{" + ", ".join(f"{name} = {self.show(item)}" for name, item in fields.items()) + "}"
        if isinstance(value, tuple | list):
            return ", ".join(map(self.show, value))
        return str(value)


@cache
def section_keys(section: str) -> dict[str, Key]:
    """The keys of a section by name.

    Example:
        >>> list(section_keys("log"))
        ['level', 'format']
    """
    return struct_keys(section_type(section), section)


def struct_keys(struct: type[msgspec.Struct], path: str) -> dict[str, Key]:
    """The keys of a section, or of a table in one, by name.

    Args:
        struct: What it is read into.
        path: Where it stands, such as ``log``.
    """
    hints = get_type_hints(struct, include_extras=True)
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    return {field.name: _key(path, field, hints[field.name]) for field in info.fields}


def all_keys() -> Iterator[Key]:
    """Every key of every section."""
    for section in SECTIONS:
        yield from section_keys(section).values()


def find_key(path: str) -> Key | None:
    """The key with this path, or None.

    Example:
        >>> find_key("aeron.nothing") is None
        True
    """
    section, _, name = path.partition(".")
    return section_keys(section).get(name) if section in SECTIONS else None


def nearest_key(path: str) -> str | None:
    """The known key that was probably meant, or None.

    Example:
        >>> nearest_key("aeron.term_lenght"), nearest_key("term_length"), nearest_key("zzz")
        ('aeron.term_length', 'aeron.term_length', None)
    """
    path = path[:_LONGEST_GUESS]
    known = [key.path for key in all_keys()]
    same_name = [candidate for candidate in known if candidate.partition(".")[2] == path.rpartition(".")[2]]
    close = same_name or difflib.get_close_matches(path, known, n=1, cutoff=0.7)
    if not close:  # the name may be right and the section forgotten or wrong
        names = {key.name: key.path for key in all_keys()}
        close = [names[n] for n in difflib.get_close_matches(path.rpartition(".")[2], names, n=1, cutoff=0.8)]
    return close[0] if close else None


def _key(section: str, field: inspect.Field, annotation: Any) -> Key:
    kind = field.type
    extra: dict[str, Any] = {}
    documentation = ""
    if isinstance(kind, inspect.Metadata):
        extra = kind.extra or {}
        documentation = (kind.extra_json_schema or {}).get("description", "")
        kind = kind.type
    is_size = bool(extra.get(IS_SIZE))
    choices = _choices(annotation)
    allowed = extra.get(ALLOWED) or _describe(kind, is_size=is_size)
    if choices:
        named = ", ".join(choice for choice in choices if choice)
        allowed = f"one of {named}" if all(choices) else f"one of {named}, or empty"
    if extra.get(POWER_OF_TWO):
        allowed += ", a power of two"
    default = field.default
    if field.default_factory is not msgspec.NODEFAULT:
        default = field.default_factory()
    return Key(
        section=section,
        name=field.name,
        default=default,
        doc=documentation,
        allowed=allowed,
        annotation=annotation,
        is_size=is_size,
        is_choice=bool(choices),
        is_power_of_two=bool(extra.get(POWER_OF_TWO)),
        check=extra.get(CHECK),
    )


def _is_text(kind: inspect.Type) -> bool:
    literals = kind.values if isinstance(kind, inspect.LiteralType) else ()
    return isinstance(kind, inspect.StrType) or any(isinstance(value, str) for value in literals)


def _choices(annotation: Any) -> tuple[str, ...]:
    """The values of a ``Literal`` in the order in which they were written; msgspec's own are sorted."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return get_args(annotation) if get_origin(annotation) is Literal else ()


def _describe(kind: inspect.Type, *, is_size: bool = False) -> str:  # noqa: PLR0911 - one for each type
    """What a type accepts, in words."""
    match kind:
        case inspect.Metadata(type=inner, extra=extra):
            return str((extra or {}).get(ALLOWED) or _describe(inner))
        case inspect.BoolType():
            return "true or false"
        case inspect.IntType() if is_size:
            return "a size" + _describe_range(kind, format_size)
        case inspect.IntType():
            return "a whole number" + _describe_range(kind, str)
        case inspect.FloatType():
            return "a number" + _describe_range(kind, str)
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            return f"a list, each {_describe(item)}"
        case _:
            return "text"


def _describe_range(kind: inspect.IntType | inspect.FloatType, show: Any) -> str:
    bounds = []
    if kind.gt is not None:
        bounds.append(f" above {show(kind.gt)}")
    if kind.ge is not None:
        bounds.append(f" from {show(kind.ge)}")
    if kind.lt is not None:
        bounds.append(f" below {show(kind.lt)}")
    if kind.le is not None:
        bounds.append(f" to {show(kind.le)}" if kind.ge is not None else f" up to {show(kind.le)}")
    return "".join(bounds)
