"""What producers say about their streams, as far as discovery shows it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tensor_pool.wire.messages import DataSourceAnnounce, DataSourceMeta, MetaAttribute

__all__ = [
    "MAX_NAME_BYTES",
    "MAX_TAGS",
    "MAX_TAG_BYTES",
    "Description",
    "read_data_source_id",
    "read_tags",
]

MAX_NAME_BYTES: Final = 256
MAX_TAGS: Final = 64
MAX_TAG_BYTES: Final = 256
_MAX_ID: Final = 2**64 - 2
"""The highest number that is not the null value."""
_TEXT: Final = "text/plain"
_JSON: Final = "application/json"


class Description(msgspec.Struct, kw_only=True):
    """The newest words of a producer about one stream.

    Example:
        >>> from tensor_pool.wire.messages import DataSourceAnnounce, DataSourceMeta, MetaAttribute
        >>> said = Description.of(
        ...     DataSourceAnnounce(stream_id=1, producer_id=7, epoch=3, meta_version=1, name="cam"), now_ns=0)
        >>> said.add(DataSourceMeta(1, 1, 0, (MetaAttribute("tags", "text/plain", b"lab, left"),)))
        >>> said.name, said.tags
        ('cam', ('lab', 'left'))
    """

    epoch: int
    meta_version: int
    name: str
    heard_ns: int
    tags: tuple[str, ...] = ()
    data_source_id: int | None = None
    announce: DataSourceAnnounce | None = None
    """Where this is from, and"""
    meta: DataSourceMeta | None = None
    """what was said last of attributes: whoever hears the same again need not look at it."""

    @classmethod
    def of(cls, announce: DataSourceAnnounce, *, now_ns: int) -> Description:
        """What an announce says; a name that is too long is none."""
        is_short = len(announce.name.encode("ascii", "surrogateescape")) <= MAX_NAME_BYTES
        return cls(
            epoch=announce.epoch,
            meta_version=announce.meta_version,
            name=announce.name if is_short else "",
            heard_ns=now_ns,
            announce=announce,
        )

    def add(self, meta: DataSourceMeta) -> None:
        """Takes what discovery shows from the attributes, if they are those that were announced."""
        self.meta = meta
        if meta.meta_version != self.meta_version:
            return
        attributes = {attribute.key: attribute for attribute in meta.attributes}
        self.tags = read_tags(attributes.get("tags"))
        self.data_source_id = read_data_source_id(attributes.get("data_source_id"))


def read_tags(attribute: MetaAttribute | None) -> tuple[str, ...]:
    r"""The tags of a stream: a list with commas, or a JSON array of texts (decision K1).

    What is neither has no tags. Each tag counts once; too many, too long or unprintable ones are left out.

    Example:
        >>> from tensor_pool.wire.messages import MetaAttribute
        >>> read_tags(MetaAttribute("tags", "application/json", b'["CamA", "left", "CamA"]'))
        ('CamA', 'left')
    """
    if attribute is None:
        return ()
    try:
        text = attribute.value.decode("utf-8")
        if attribute.format == _TEXT:
            return _good_tags(text.split(","))
        if attribute.format == _JSON:
            tags = json.loads(text)
            return _good_tags(tag for tag in tags if isinstance(tag, str)) if isinstance(tags, list) else ()
    except (ValueError, RecursionError):
        pass
    return ()


def _good_tags(tags: Iterable[str]) -> tuple[str, ...]:
    stripped = dict.fromkeys(tag.strip() for tag in tags)
    good = [tag for tag in stripped if tag and tag.isascii() and tag.isprintable()]
    return tuple([tag for tag in good if len(tag) <= MAX_TAG_BYTES][:MAX_TAGS])


def read_data_source_id(attribute: MetaAttribute | None) -> int | None:
    """The number of a data source, written in decimal (decision K1); None for anything else.

    Example:
        >>> from tensor_pool.wire.messages import MetaAttribute
        >>> read_data_source_id(MetaAttribute("data_source_id", "text/plain", b"42"))
        42
    """
    if attribute is None or attribute.format != _TEXT or not 1 <= len(attribute.value) <= len(str(_MAX_ID)):
        return None
    if not attribute.value.isdigit():
        return None
    number = int(attribute.value)
    return number if number <= _MAX_ID else None
