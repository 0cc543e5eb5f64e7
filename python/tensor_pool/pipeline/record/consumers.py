"""What the consumers of a stream said of themselves while it was recorded.

Every consumer tells about once a second how far it is and what it has lost. A recording keeps one entry for
each, in ``consumers.json`` beside the catalogue: totals, so its size does not grow with time. The file is
replaced as a whole, so a crash leaves the old one or the new one. Older recordings have none.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from tensor_pool import _native
from tensor_pool.errors import MalformedMessageError, RegionError
from tensor_pool.pipeline.record.place import Place
from tensor_pool.pipeline.record.synced import sync_directory, write_synced

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tensor_pool.wire.messages import QosConsumer

__all__ = ["CONSUMERS", "ConsumerNotes", "RecordedConsumer", "load_consumers", "save_consumers"]

CONSUMERS: Final = "consumers.json"
_ASIDE: Final = "consumers.json.unreadable"
_VERSION: Final = 1
_LOG: Final = logging.getLogger(__name__)
_NS: Final = 1_000_000_000
_MOST_CONSUMERS: Final = 1_024
_MOST_BYTES: Final = 1 << 20
_MOST: Final = 2**63 - 1
"""Numbers are signed in tables; what a consumer says may be larger."""
_NOTHING_SEEN: Final = 2**64 - 1
"""What some peers say who have not seen a frame yet."""
_SAVE_LOSSES_NS: Final = 5 * _NS
_SAVE_NS: Final = 60 * _NS
"""Where nothing but time has changed."""

_Count = Annotated[int, msgspec.Meta(ge=0, le=_MOST)]


class RecordedConsumer(msgspec.Struct, kw_only=True):
    """One consumer; numbers are of the time in which it was heard."""

    consumer_id: _Count
    mode: Annotated[str, msgspec.Meta(max_length=32)]
    is_recorder: bool = False
    """Whether it is the recorder itself."""
    first_seen_ns: _Count
    """Real time."""
    last_seen_ns: _Count
    epoch: _Count
    last_seq_seen: _Count | None = None
    """Of that epoch."""
    passed: _Count = 0
    """Frames that it went past, seen or lost."""
    drops_gap: _Count = 0
    """Frames that it never found."""
    drops_late: _Count = 0
    """Frames that were overwritten before or while it read them."""
    drops_before: _Count = 0
    """What it had lost already when it was first heard, of both kinds; not in the others."""

    @property
    def lost_share(self) -> float | None:
        """Lost frames of those that it went past; None when it went past none."""
        drops = self.drops_gap + self.drops_late
        return min(drops / self.passed, 1.0) if self.passed else 1.0 if drops else None


class _File(msgspec.Struct, kw_only=True):
    version: int
    crc32c: int = 0
    """Of the bytes of `consumers`, as they stand in the file."""
    consumers: msgspec.Raw = msgspec.Raw(b"[]")


_Consumers = Annotated[list[RecordedConsumer], msgspec.Meta(max_length=_MOST_CONSUMERS)]


def load_consumers(directory: Path | Place) -> list[RecordedConsumer]:
    """The consumers of a recorded stream; none where nobody noted them.

    Raises:
        MalformedMessageError: The file is damaged, or a newer release wrote it.
        OSError: It can't be read.
    """
    path = (directory if isinstance(directory, Place) else Place(directory)).child(CONSUMERS)
    nbytes = path.size()
    if nbytes is None:
        return []
    if nbytes > _MOST_BYTES:
        raise _damaged(path, f"it has {nbytes} bytes")
    try:
        file = msgspec.json.decode(path.read(), type=_File)
        if file.version > _VERSION:
            raise MalformedMessageError(
                f"{path} has format {file.version}; this release reads up to {_VERSION}",
                hint="use a newer release",
            )
        if _native.crc32c(bytes(file.consumers)) != file.crc32c:
            raise _damaged(path, "wrong checksum")
        return msgspec.json.decode(file.consumers, type=_Consumers)
    except (msgspec.DecodeError, UnicodeDecodeError) as e:
        raise _damaged(path, str(e)) from None


def save_consumers(directory: Path, consumers: Iterable[RecordedConsumer]) -> None:
    """Replaces the file; synced on return.

    Raises:
        OSError: It can't be written; the old one is still there.

    Example:
        >>> import pathlib, tempfile
        >>> one = RecordedConsumer(consumer_id=9, mode="stream", first_seen_ns=1, last_seen_ns=2, epoch=5)
        >>> with tempfile.TemporaryDirectory() as name:
        ...     save_consumers(pathlib.Path(name), [one])
        ...     load_consumers(pathlib.Path(name)) == [one]
        True
    """
    # Compact: the checksum is that of the very bytes.
    content = msgspec.json.encode(list(consumers))
    file = _File(version=_VERSION, crc32c=_native.crc32c(content), consumers=msgspec.Raw(content))
    write_synced(directory / CONSUMERS, msgspec.json.encode(file) + b"\n")
    sync_directory(directory)


def _damaged(path: Place, why: str) -> MalformedMessageError:
    return MalformedMessageError(
        f"{path} can't be understood: {why}",
        hint="remove it: nothing but what consumers lost is in it",
    )


class ConsumerNotes:
    """Notes what consumers say, and saves it now and then.

    Reports may come in one thread while another one saves.

    Args:
        directory: Of the stream. What an earlier recorder noted there stays.

    Example:
        >>> import pathlib, tempfile
        >>> from tensor_pool.wire.messages import Mode, QosConsumer
        >>> with tempfile.TemporaryDirectory() as name:
        ...     notes = ConsumerNotes(pathlib.Path(name))
        ...     for seq, gaps in ((9, 2), (29, 7)):
        ...         notes.on_report(QosConsumer(1, 9, 5, seq, gaps, 0, Mode.STREAM), False, now_ns=seq)
        ...     notes.save()
        ...     (found,) = load_consumers(pathlib.Path(name))
        >>> found.drops_gap, found.drops_before, found.lost_share
        (5, 2, 0.25)
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._last: dict[int, QosConsumer] = {}
        """The last report of each that this recorder has heard."""
        self._saved_ns: int | None = None
        self._is_changed = False
        self._has_losses = False
        """Somebody came or lost something since it was saved."""
        self._error: str | None = None
        self._noted: dict[int, RecordedConsumer] = {}
        try:
            self._noted = {each.consumer_id: each for each in load_consumers(directory)}
        except (MalformedMessageError, RegionError, OSError) as e:
            _LOG.warning("what consumers lost before is set aside as %s: %s", _ASIDE, e)
            with contextlib.suppress(OSError):
                (directory / CONSUMERS).rename(directory / _ASIDE)

    def on_report(self, report: QosConsumer, is_recorder: bool, *, now_ns: int) -> None:
        """A consumer told how it is doing; real time."""
        with self._lock:
            before = self._last.get(report.consumer_id)
            noted = self._noted.get(report.consumer_id)
            if noted is None:
                noted = self._new(report, now_ns)
            noted.is_recorder |= is_recorder
            noted.mode = report.mode.name.lower()
            noted.last_seen_ns = now_ns
            seen = None if report.last_seq_seen == _NOTHING_SEEN else report.last_seq_seen
            if before is not None:
                gaps, late = (
                    _more(report.drops_gap, before.drops_gap),
                    _more(report.drops_late, before.drops_late),
                )
                noted.drops_gap = _clamped(noted.drops_gap + gaps)
                noted.drops_late = _clamped(noted.drops_late + late)
                noted.passed = _clamped(noted.passed + _passed(report, before))
                self._has_losses |= bool(gaps or late)
            noted.epoch = _clamped(report.epoch)
            noted.last_seq_seen = None if seen is None else _clamped(seen)
            self._last[report.consumer_id] = report
            self._is_changed = True

    def _new(self, report: QosConsumer, now_ns: int) -> RecordedConsumer:
        """Makes room for it, at the cost of who was silent for longest."""
        while len(self._noted) >= _MOST_CONSUMERS:
            oldest = min(self._noted.values(), key=lambda each: each.last_seen_ns)
            del self._noted[oldest.consumer_id]
            self._last.pop(oldest.consumer_id, None)
        noted = self._noted[report.consumer_id] = RecordedConsumer(
            consumer_id=report.consumer_id,
            mode="",
            first_seen_ns=now_ns,
            last_seen_ns=now_ns,
            epoch=0,
            drops_before=_clamped(report.drops_gap + report.drops_late),
        )
        self._has_losses = True
        return noted

    def on_time(self, now_ns: int) -> None:
        """Saves it if something has changed and it was not saved just now; monotonic time.

        A disk that fails is logged, and tried again later: frames matter more.
        """
        pause_ns = _SAVE_LOSSES_NS if self._has_losses else _SAVE_NS
        if self._is_changed and (self._saved_ns is None or now_ns - self._saved_ns >= pause_ns):
            self._saved_ns = now_ns
            self.save()

    def save(self) -> None:
        """Saves it now, if something has changed."""
        with self._lock:
            if not self._is_changed:
                return
            consumers = [msgspec.structs.replace(each) for each in self._noted.values()]
            self._is_changed = self._has_losses = False
        try:
            save_consumers(self._directory, consumers)
        except OSError as e:
            self._is_changed = True
            if self._error != str(e):
                _LOG.warning("can't note the consumers of %s: %s", self._directory.name, e)
            self._error = str(e)
        else:
            self._error = None


def _more(now: int, before: int) -> int:
    """How much a total grew; one that fell began anew."""
    return now - before if now >= before else now


def _passed(now: QosConsumer, before: QosConsumer) -> int:
    """Frames between two reports. Numbers begin at 0 in each epoch."""
    if now.last_seq_seen == _NOTHING_SEEN:
        return 0
    if now.epoch != before.epoch or before.last_seq_seen == _NOTHING_SEEN:
        return now.last_seq_seen + 1
    return max(now.last_seq_seen - before.last_seq_seen, 0)


def _clamped(number: int) -> int:
    return min(number, _MOST)
