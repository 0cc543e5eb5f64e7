"""Brings segments to another place while they are recorded, and never holds the recorder back.

A thread of its own looks at the catalogues on the disk: nothing waits in memory, however slow the store is.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

import msgspec

from tensor_pool.closing import Closing
from tensor_pool.errors import TensorPoolError
from tensor_pool.pipeline.record.catalogue import CATALOGUE
from tensor_pool.pipeline.record.consumers import CONSUMERS
from tensor_pool.pipeline.record.upload import StreamUpload, streams_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tensor_pool.pipeline.record.catalogue import SegmentInfo
    from tensor_pool.pipeline.record.place import Place

__all__ = ["UploadProgress", "Uploader"]

_LOG: Final = logging.getLogger(__name__)
_LOOK_S: Final = 0.5
_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 30.0


class UploadProgress(msgspec.Struct, kw_only=True):
    """What is there so far, and what is not."""

    segments: int = 0
    """There, sent now or before."""
    nbytes: int = 0
    """Sent, also of a segment that is on its way."""
    waiting: int = 0
    """Segments that are sealed and not there yet."""
    waiting_bytes: int = 0
    missed: int = 0
    """Segments that were removed here before they could be sent."""
    retries: int = 0
    error: str | None = None
    """Why nothing can be sent at the moment."""
    hint: str | None = None
    """What to do about it."""


class Uploader(Closing):
    """Follows a recording of this machine until it is closed; tries again, ever more slowly, when it fails.

    Args:
        recording: The directory; need not be there yet.
        to: Where its segments go.
        on_safe: Called with a stream's directory and a number: segments up to it are there, and their
            catalogue too.

    Example:
        >>> with Uploader(Path("recordings"), Place("s3://bucket/run")) as uploader:  # doctest: +SKIP
        ...     with Recorder(pool, ["camera-1"], "recordings"):
        ...         ...
        ...     uploader.finish(timeout_s=60)
        True
    """

    def __init__(
        self, recording: Path, to: Place, *, on_safe: Callable[[Path, int], object] = lambda *_: None
    ) -> None:
        self._recording = recording
        self._to = to
        self._on_safe = on_safe
        self._streams: dict[Path, StreamUpload] = {}
        self._seen: dict[Path, tuple[int, ...]] = {}
        """Of which everything is there, as it was: times and sizes of its catalogue and its consumers."""
        self._sent_bytes = 0
        self._retries = 0
        self._errors: dict[Path, tuple[str, str | None]] = {}
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._finishing = threading.Event()
        self._is_done = threading.Event()
        to.filesystem  # noqa: B018 - a URI that nobody knows is an error at once
        self._thread = threading.Thread(target=self._run, name="record upload", daemon=True)
        self._thread.start()

    @property
    def progress(self) -> UploadProgress:
        """How far it is."""
        streams, errors = list(self._streams.values()), list(self._errors.values())
        waiting = [segment for stream in streams for segment in _waiting(stream)]
        return UploadProgress(
            segments=sum(stream.done.segments + stream.done.present for stream in streams),
            nbytes=self._sent_bytes,
            waiting=len(waiting),
            waiting_bytes=sum(segment.nbytes for segment in waiting),
            missed=sum(stream.done.missed for stream in streams),
            retries=self._retries,
            error="; ".join(dict.fromkeys(why for why, _ in errors)) or None,
            hint=next((hint for _, hint in errors if hint), None),
        )

    def finish(self, timeout_s: float) -> bool:
        """Waits until everything that is sealed is there; false if it is not after so long.

        Call it when the recorder is closed.
        """
        if not self._finishing.is_set():
            self._finishing.set()
            self._wake.set()  # no pause before the next try
        return self._is_done.wait(timeout_s)

    def remove_here(self) -> None:
        """Removes segments here that are there. Call it when `finish` said that everything is.

        Raises:
            RegionError: The place can't be asked; nothing more is removed.
        """
        for stream in self._streams.values():
            stream.remove_here()

    def close(self) -> None:
        """Ends after the segment that is on its way, or leaves it to its fate. May be called again.

        A store that does not answer can hold the sending thread for half a minute; it is not waited for.
        """
        self._stop.set()
        self._wake.set()
        self._thread.join(timeout=_LOOK_S)

    def _run(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while not self._stop.is_set():
            self._wake.clear()
            is_finishing = self._finishing.is_set()  # before the look: what came later may be missed
            if self._send_all():
                pause_s = _FIRST_PAUSE_S
                if is_finishing:
                    self._is_done.set()
                    return
                self._wake.wait(_LOOK_S)
            else:
                self._retries += 1
                self._wake.wait(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _send_all(self) -> bool:
        """One look at all streams; whether everything that was there to be sent is sent."""
        for directory in streams_of(self._recording):
            if self._stop.is_set():
                return True
            upload = self._streams.get(directory)
            if upload is None:
                upload = self._streams[directory] = StreamUpload(directory, self._to.child(directory.name))
            self._send(upload)
        return not self._errors

    def _send(self, upload: StreamUpload) -> None:
        directory = upload.directory
        try:
            state = (*_state_of(directory / CATALOGUE), *_state_of(directory / CONSUMERS))
            if self._seen.get(directory) == state:
                return
            upload.send(on_bytes=self._count, should_stop=self._stop.is_set)
        except (TensorPoolError, OSError) as e:
            self._fail(directory, getattr(e, "message", str(e)), getattr(e, "hint", None))
            return
        except Exception as e:
            # The thread must live: whatever it is, the recording goes on and says so.
            _LOG.exception("upload of %s", directory)
            self._fail(directory, f"{type(e).__name__}: {e}")
            return
        if self._errors.pop(directory, None) is not None:
            _LOG.warning("upload of %s goes on", directory.name)
        self._seen[directory] = state
        if upload.safe_through:
            self._on_safe(directory, upload.safe_through)

    def _fail(self, directory: Path, why: str, hint: str | None = None) -> None:
        if self._errors.get(directory, (None,))[0] != why:
            _LOG.warning("upload of %s waits: %s", directory.name, why)
        self._errors[directory] = why, hint

    def _count(self, nbytes: int) -> None:
        self._sent_bytes += nbytes


def _state_of(path: Path) -> tuple[int, ...]:
    """What is another one when the file is."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return (0, 0)
    return (found.st_mtime_ns, found.st_size)


def _waiting(stream: StreamUpload) -> list[SegmentInfo]:
    try:
        return stream.waiting()
    except (TensorPoolError, OSError):
        return []  # the sending thread has said so
