"""What a producer says about its stream, and when it says it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tensor_pool.errors import ClosedError, MetadataError
from tensor_pool.pool.metadata.attributes import MetadataValue, read_attribute, to_attribute
from tensor_pool.runtime import Periodic
from tensor_pool.wire.messages import ClockDomain, DataSourceAnnounce, DataSourceMeta, MetaAttribute

if TYPE_CHECKING:
    from tensor_pool.wire import Message

__all__ = ["CLOCK_DOMAIN", "CLOCK_OFFSET", "MetadataLimits", "MetadataSource"]

CLOCK_DOMAIN: Final = "clock.domain"
"""Which clock the time stamps of frames are of: ``monotonic`` or ``realtime_synced``."""
CLOCK_OFFSET: Final = "clock.realtime_offset_ns"
"""What to add to a monotonic time stamp of this host to get real time."""
_CLOCK_ERROR: Final = "clock.error_budget_ns"
_OURS: Final = frozenset({CLOCK_DOMAIN, CLOCK_OFFSET, _CLOCK_ERROR})

_MAX_DRIFT_NS: Final = 1_000_000
"""Real time may move so far against monotonic time before consumers are told."""
_MAX_UNSENT: Final = 16
"""Versions that were made but not sent yet; a program that makes more between two sends loses the oldest."""
_EARLY_NS: Final = (50_000_000, 150_000_000, 350_000_000)
"""When everything is repeated in the first second: who was waiting for the stream learns its id meanwhile."""
_LAST_VERSION: Final = 2**32 - 2
"""2^32-1 is "no version" in descriptors, and 0 "no metadata" in slots (decision B16)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataLimits:
    """How much metadata a stream may have; it is sent as a whole every second.

    Example:
        >>> MetadataLimits(max_attributes=8).max_total_bytes
        262144
    """

    max_attributes: int = 256
    max_key_bytes: int = 128
    max_total_bytes: int = 256 << 10


class MetadataSource(MutableMapping[str, MetadataValue]):
    """What a producer says about its stream; anything `attributes` lists may be a value.

    Values are copied when they are set: changing a list afterwards changes nothing, setting it again does.
    Several changes become one version when nobody looked at `meta_version` in between (a frame that is
    published does), or for certain with one `update`. Any thread may write while another one sends.

    Args:
        stream_id: The stream.
        name: Its name.
        summary: What it carries, see `summary`.
        period_ns: How often everything is sent again, for those who join late.
        values: What it starts with.
        realtime_offset_ns: Real time minus monotonic time, as of now; `due` keeps it up to date.
        clock_domain: The clock of the frames' time stamps.
        clock_error_ns: How wrong a synchronised clock may be; said in ``clock.error_budget_ns``.
        limits: How much there may be.

    Example:
        >>> metadata = MetadataSource(10000, name="camera-1", summary="uint16 480x640 row")
        >>> metadata.bind(producer_id=7, epoch=5)
        >>> metadata.update(exposure_ms=12.5, serial="A-17")
        >>> metadata.meta_version
        1
        >>> announce, meta = metadata.due(now_ns=1_000)
        >>> announce.name, [attribute.key for attribute in meta.attributes]
        ('camera-1', ['clock.domain', 'clock.realtime_offset_ns', 'exposure_ms', 'serial'])
        >>> metadata.due(now_ns=2_000)
        []
        >>> metadata["exposure_ms"] = 20
        >>> [message.meta_version for message in metadata.due(now_ns=3_000)]
        [2, 2]
    """

    def __init__(
        self,
        stream_id: int,
        *,
        name: str = "",
        summary: str = "",
        period_ns: int = 1_000_000_000,
        values: Mapping[str, MetadataValue] | None = None,
        realtime_offset_ns: int = 0,
        clock_domain: ClockDomain = ClockDomain.MONOTONIC,
        clock_error_ns: int | None = None,
        limits: MetadataLimits | None = None,
    ) -> None:
        self.stream_id = stream_id
        self.on_change: Callable[[], None] | None = None
        """Called after something was written, by whoever wrote it."""
        self.superseded = 0
        """Versions that were never sent, because too many came between two sends."""
        self._name = _checked_text("name", name)
        self._summary = _checked_text("summary", summary)
        self._limits = limits or MetadataLimits()
        self._period_ns = period_ns
        self._periodic: Periodic | None = None
        self._early: deque[int] = deque()
        self._producer_id = 0
        self._epoch = 0
        self._lock = threading.Lock()
        self._version = 0
        self._dirty = True
        self._sealed: tuple[MetaAttribute, ...] = ()
        self._unsent: deque[tuple[int, tuple[MetaAttribute, ...]]] = deque()
        self._current: DataSourceMeta | None = None
        self._closed = False
        self._attributes = {
            CLOCK_DOMAIN: to_attribute(CLOCK_DOMAIN, clock_domain.name.lower()),
            CLOCK_OFFSET: to_attribute(CLOCK_OFFSET, realtime_offset_ns),
        }
        if clock_error_ns is not None:
            self._attributes[_CLOCK_ERROR] = to_attribute(_CLOCK_ERROR, clock_error_ns)
        self._offset_ns = realtime_offset_ns
        self.update(values or {})

    # --- what users do ------------------------------------------------------------------------------

    def __getitem__(self, key: str) -> MetadataValue:
        return read_attribute(self._attributes[key])

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._attributes))

    def __len__(self) -> int:
        return len(self._attributes)

    def __setitem__(self, key: str, value: MetadataValue) -> None:
        self._change({key: value})

    def __delitem__(self, key: str) -> None:
        _refuse_ours(key)
        with self._lock:
            self._check_open()
            attributes = dict(self._attributes)
            del attributes[key]
            self._attributes = attributes
            self._mark_changed()

    def update(self, other: Any = (), /, **values: MetadataValue) -> None:
        """Several changes as one, in one version; none of them if one is refused."""
        self._change(dict(other, **values))

    def clear(self) -> None:
        """Forgets everything but what says which clock it is."""
        with self._lock:
            self._check_open()
            kept = {key: value for key, value in self._attributes.items() if key in _OURS}
            if len(kept) != len(self._attributes):
                self._attributes = kept
                self._mark_changed()

    def popitem(self) -> tuple[str, MetadataValue]:
        """Takes away what was written last, but never what says which clock it is.

        Raises:
            KeyError: There is nothing else.
        """
        for key in reversed(list(self._attributes)):
            if key not in _OURS:
                return key, self.pop(key)
        raise KeyError("no attribute but those of the clock")

    def close(self) -> None:
        """From now on nothing can be written: nobody would be told."""
        self._closed = True

    def __repr__(self) -> str:
        return f"{type(self).__name__}({dict(self)!r})"

    @property
    def meta_version(self) -> int:
        """The version that holds everything written so far: what a frame published now refers to."""
        if self._dirty:
            with self._lock:
                self._seal()
        return self._version

    @property
    def has_changes(self) -> bool:
        """Whether something was written that was not sent yet."""
        return self._dirty or bool(self._unsent)

    # --- what the sender does -----------------------------------------------------------------------

    @property
    def next_ns(self) -> int:
        """When everything is to be sent again, unless something changes before."""
        if self._periodic is None:
            return 0
        return min([self._periodic.next_ns, *self._early])

    def bind(self, *, producer_id: int, epoch: int) -> None:
        """Speak for this producer and epoch from now on; everything is sent again at once."""
        self._producer_id = producer_id
        self._epoch = epoch
        self._periodic = None
        self._early.clear()

    def due(self, now_ns: int, *, realtime_ns: int | None = None) -> list[Message]:
        """What to send now: after a change at once, otherwise once a period [WIRE-10.3.2-1].

        Args:
            now_ns: Monotonic time.
            realtime_ns: Real time at the same moment, from which the clock offset is kept up to date.
        """
        if realtime_ns is not None:
            self._set_offset(realtime_ns - now_ns)
        with self._lock:
            self._seal()
            unsent = list(self._unsent)
            self._unsent.clear()
        if self._periodic is None:
            self._periodic = Periodic(period_ns=self._period_ns, start_ns=now_ns)
            self._early.extend(now_ns + early for early in _EARLY_NS if early < self._period_ns)
        repeat = self._periodic.due(now_ns)
        while self._early and self._early[0] <= now_ns:
            self._early.popleft()
            repeat = True
        metas = [
            DataSourceMeta(self.stream_id, version, now_ns, attributes) for version, attributes in unsent
        ]
        if metas:
            self._current = metas[-1]
        elif repeat and self._current is not None:
            metas = [self._current]
        if not metas:
            return []
        announce = DataSourceAnnounce(
            stream_id=self.stream_id,
            producer_id=self._producer_id,
            epoch=self._epoch,
            meta_version=metas[-1].meta_version,
            name=self._name,
            summary=self._summary,
        )
        return [announce, *metas]

    def _set_offset(self, offset_ns: int) -> None:
        with self._lock:
            if abs(offset_ns - self._offset_ns) > _MAX_DRIFT_NS:
                self._offset_ns = offset_ns
                self._attributes = self._attributes | {CLOCK_OFFSET: to_attribute(CLOCK_OFFSET, offset_ns)}
                self._mark_changed()

    def _change(self, values: Mapping[str, MetadataValue]) -> None:
        for key in values:
            _refuse_ours(key)
            self._check_key(key)
        added = {key: to_attribute(key, value) for key, value in values.items()}
        with self._lock:
            self._check_open()
            attributes = self._attributes | added
            self._check_size(attributes)
            if attributes != self._attributes:
                # Replaced, never changed in place: other threads may be reading the old one.
                self._attributes = attributes
                self._mark_changed()

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the producer was closed, and with it its metadata")

    def _mark_changed(self) -> None:
        self._dirty = True
        if self.on_change is not None:
            self.on_change()

    def _seal(self) -> None:
        """Makes what was written so far a version, with the lock held."""
        if not self._dirty:
            return
        self._dirty = False
        sealed = tuple(self._attributes.values())
        if sealed == self._sealed:
            return  # written and taken back
        self._sealed = sealed
        self._version = self._version % _LAST_VERSION + 1
        self._unsent.append((self._version, sealed))
        if len(self._unsent) > _MAX_UNSENT:
            self._unsent.popleft()
            self.superseded += 1

    def _check_key(self, key: str) -> None:
        longest = self._limits.max_key_bytes
        if not isinstance(key, str) or not key.isascii() or not key.isprintable() or not key or " " in key:
            raise MetadataError(f"{key!r} can't be a key", hint="visible ASCII characters, no spaces")
        if len(key) > longest:
            raise MetadataError(f"a key of {len(key)} characters; at most {longest} are taken")

    def _check_size(self, attributes: Mapping[str, MetaAttribute]) -> None:
        limits = self._limits
        if len(attributes) > limits.max_attributes:
            raise MetadataError(
                f"{len(attributes)} pieces of metadata; a stream has at most {limits.max_attributes}",
                hint="put what belongs together into one dict",
            )
        total = sum(len(a.key) + len(a.format) + len(a.value) + 12 for a in attributes.values())
        if total > limits.max_total_bytes:
            largest = max(attributes.values(), key=lambda attribute: len(attribute.value))
            raise MetadataError(
                f"{total} bytes of metadata; a stream has at most {limits.max_total_bytes}",
                hint=f"send {largest.key!r} ({len(largest.value)} bytes) with Producer.send_blob",
            )


def _refuse_ours(key: str) -> None:
    if key in _OURS:
        raise MetadataError(
            f"{key!r} says which clock this is, and is kept by the library", hint="use another key"
        )


def _checked_text(what: str, text: str) -> str:
    if not text.isascii() or not text.isprintable() or len(text) > 1024:
        raise MetadataError(
            f"{text[:80]!r} can't be the {what} of a stream", hint="at most 1024 printable ASCII characters"
        )
    return text
