"""What a consumer knows about its stream: the metadata that its producer sends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from tensor_pool.pool.metadata.attributes import MetadataValue, read_attribute
from tensor_pool.pool.summary import Summary, parse_summary
from tensor_pool.wire.messages import DataSourceAnnounce, DataSourceMeta, MetaAttribute

if TYPE_CHECKING:
    from tensor_pool.wire import Message

__all__ = ["MetadataVersion", "MetadataView"]

_NO_METADATA: Final = 0
"""What a slot says whose producer has no metadata (decision B16)."""


class MetadataVersion(Mapping[str, MetadataValue]):
    """One version of a stream's metadata. Values that can't be read are bytes; none of them ever raises.

    Example:
        >>> version = MetadataVersion(3, (MetaAttribute("gain", "application/json", b"4"),))
        >>> version["gain"], version.attributes["gain"].format
        (4, 'application/json')
    """

    __slots__ = ("attributes", "meta_version")

    def __init__(self, meta_version: int, attributes: tuple[MetaAttribute, ...]) -> None:
        self.meta_version = meta_version
        self.attributes: Mapping[str, MetaAttribute] = MappingProxyType({a.key: a for a in attributes})

    def __getitem__(self, key: str) -> MetadataValue:
        return read_attribute(self.attributes[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self.attributes)

    def __len__(self) -> int:
        return len(self.attributes)

    def __repr__(self) -> str:
        return f"MetadataVersion({self.meta_version}, {dict(self)!r})"


class MetadataView(Mapping[str, MetadataValue]):
    """The newest metadata of a stream, and older versions for frames that refer to them.

    One thread feeds it with messages; any thread may read.

    Args:
        stream_id: The stream; messages of others change nothing.
        max_versions: How many versions are kept.

    Example:
        >>> view = MetadataView(10000)
        >>> for n in (1, 2):
        ...     exposure = MetaAttribute("exposure_ms", "application/json", b"%d" % n)
        ...     view.on_message(DataSourceMeta(10000, n, timestamp_ns=0, attributes=(exposure,)))
        True
        True
        >>> view["exposure_ms"], view.at(1)["exposure_ms"], view.at(9)
        (2, 1, None)
    """

    def __init__(self, stream_id: int, *, max_versions: int = 16) -> None:
        self.stream_id = stream_id
        self.announce: DataSourceAnnounce | None = None
        """The last announce, or None."""
        self._max_versions = max_versions
        # Both are replaced and never changed in place, so readers on other threads need no lock.
        self._versions: Mapping[int, MetadataVersion] = {}
        self._newest = MetadataVersion(_NO_METADATA, ())

    def on_message(self, message: Message) -> bool:
        """Takes a message over; says whether anything is new."""
        if isinstance(message, DataSourceAnnounce) and message.stream_id == self.stream_id:
            return self._on_announce(message)
        if isinstance(message, DataSourceMeta) and message.stream_id == self.stream_id:
            return self._on_meta(message)
        return False

    @property
    def meta_version(self) -> int:
        """The version that is shown; 0 when none came yet."""
        return self._newest.meta_version

    @property
    def complete(self) -> bool:
        """Whether the version that was announced is here."""
        return self.announce is not None and self.announce.meta_version in (*self._versions, _NO_METADATA)

    @property
    def name(self) -> str:
        """The stream's name; empty when none came yet."""
        return "" if self.announce is None else self.announce.name

    @property
    def summary(self) -> Summary | None:
        """What the stream carries, if its producer says so in our words."""
        return None if self.announce is None else parse_summary(self.announce.summary)

    @property
    def versions(self) -> Sequence[MetadataVersion]:
        """Those that are kept, in the order in which they came."""
        return tuple(self._versions.values())

    def at(self, meta_version: int) -> MetadataVersion | None:
        """The metadata of a frame; None when that version never came or is no longer kept."""
        if meta_version == _NO_METADATA:
            return MetadataVersion(_NO_METADATA, ())
        return self._versions.get(meta_version)

    def __getitem__(self, key: str) -> MetadataValue:
        return self._newest[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._newest)

    def __len__(self) -> int:
        return len(self._newest)

    def __repr__(self) -> str:
        return f"MetadataView({dict(self._newest)!r})"

    def _on_announce(self, announce: DataSourceAnnounce) -> bool:
        before = self.announce
        if announce == before:
            return False
        if before is not None:
            if announce.epoch < before.epoch:
                return False  # a lingering log tells of a producer that is gone (decision L11)
            if (announce.epoch, announce.producer_id) != (before.epoch, before.producer_id):
                self._versions = {}  # another producer counts its versions anew
        self.announce = announce
        self._show_newest()
        return True

    def _on_meta(self, meta: DataSourceMeta) -> bool:
        version = MetadataVersion(meta.meta_version, meta.attributes)
        known = self._versions.get(meta.meta_version)
        if known is not None and known.attributes == version.attributes:
            return False
        versions = {n: v for n, v in self._versions.items() if n != meta.meta_version}
        versions[meta.meta_version] = version
        while len(versions) > self._max_versions:
            del versions[next(iter(versions))]
        self._versions = versions
        self._show_newest()
        return True

    def _show_newest(self) -> None:
        """Shows the version that was announced, or else the one that came last."""
        announced = self._versions.get(self.announce.meta_version) if self.announce is not None else None
        if announced is not None:
            self._newest = announced
        elif self._versions:
            self._newest = list(self._versions.values())[-1]
