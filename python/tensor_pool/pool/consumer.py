"""What a program reads with."""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING, Final, Self

from tensor_pool import _native
from tensor_pool.closing import Closing
from tensor_pool.errors import ClosedError, ConfigError, ForkedProcessError, NoStreamError
from tensor_pool.pool.arguments import check_seconds
from tensor_pool.pool.callbacks import FrameCallback
from tensor_pool.pool.program_end import program_end
from tensor_pool.pool.wakeups import WakeUp
from tensor_pool.wire.messages import FrameProgressState, Mode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

    from tensor_pool.pool.blobs import Blob
    from tensor_pool.pool.frame import Frame
    from tensor_pool.pool.metadata import MetadataView
    from tensor_pool.pool.sessions.consumer import ConsumerSession
    from tensor_pool.pool.sessions.descriptors import PrivateDescriptors
    from tensor_pool.pool.stats import ConsumerStats
    from tensor_pool.pool.wakeups import Bells, WaitStyle

__all__ = ["Consumer"]

_SLICE_S: Final = 0.1
"""The longest sleep: a ring that is replaced meanwhile is noticed after that."""


class Consumer(_native.FrameReceiver, Closing):
    """Reads the frames of one stream where they lie. Made by `Pool.consumer`; for one thread at a time.

    It never holds the producer up: what it doesn't read in time is lost, and counted in `stats`. A driver or
    a producer that starts again is followed by itself. `poll`, which runs for every frame, is native; here is
    what it asks for when there is more to do.

    Example:
        >>> import numpy as np, tensor_pool as tp
        >>> with tp.connect(embedded=True) as pool, pool.producer("a", dtype="uint8", shape=(4,)) as out:
        ...     inp = pool.consumer("a")
        ...     for value in range(3):
        ...         _ = out.publish(np.full(4, value, "uint8"))
        ...     [int(inp.poll(timeout=5.0).copy()[0]) for _ in range(3)]
        [0, 1, 2]
    """

    def __new__(cls, session: ConsumerSession, *, style: WaitStyle, **_options: object) -> Self:
        """See `__init__`; the native part needs only what it shares with the session."""
        max_gap = session.options.max_outstanding_seq_gap
        return super().__new__(
            cls, session.inlet, spin=style.spin_s, punctual=style.punctual, max_gap=max_gap
        )

    def __init__(
        self,
        session: ConsumerSession,
        *,
        bells: Bells,
        style: WaitStyle,  # noqa: ARG002 - for the native part
        on_close: Callable[[Consumer], object],
    ) -> None:
        self._session = session
        self._bells = bells
        self._on_close = on_close
        self._wake_up: WakeUp | None = None
        self._callback: FrameCallback | None = None
        self._closed = False
        self._pid = os.getpid()
        self._last_described: tuple[PrivateDescriptors, int, int] | None = None
        self._last_ordinal: int | None = None

    # --- frames -----------------------------------------------------------------------------------------

    def latest(self) -> Frame | None:
        """The newest frame, unless it was taken already; what lies between counts as skipped, not as lost.

        Raises:
            ClosedError: The consumer or its pool was closed.
            ConfigError: All frames go to a callback.
            NoMediaDriverError: The media driver ended, and the connection with it.
            NoStreamError: The stream's authority does not let this consumer use shared memory.
        """
        self.check_reserved()
        reader = self._session.reader
        if reader is not None:
            try:
                newest = reader.newest()
                if newest is not None:
                    self._session.joined(reader)
                    if newest > reader.next_seq:
                        reader.seek(newest, seen=True)
                    self._skip_described(reader.address.epoch, newest)
            except ClosedError:
                pass
        return self.poll()

    def __iter__(self) -> Iterator[Frame]:
        """All frames from now on; ends when the consumer is closed."""
        while not self._closed:
            try:
                frame = self.poll(timeout=_SLICE_S)
            except ClosedError:
                return
            if frame is not None:
                yield frame

    async def __aiter__(self) -> AsyncIterator[Frame]:
        """All frames from now on, for asyncio; needs no thread of its own."""
        loop = asyncio.get_running_loop()
        rang = asyncio.Event()
        # Its own copy: another iteration, or closing the consumer, must not take it away from the loop.
        fd = os.dup(self.fileno())
        loop.add_reader(fd, rang.set)
        try:
            while not self._closed:
                rang.clear()
                frame = self.poll()
                if frame is not None:
                    yield frame
                    await asyncio.sleep(0)  # a fast producer must not starve the loop's other tasks
                else:
                    await rang.wait()
        except ClosedError:
            return
        finally:
            loop.remove_reader(fd)
            os.close(fd)

    def check_open(self) -> None:
        """Raises why there will be no more frames, if so."""
        self._check_open()

    def on_frame(self, callback: Callable[[Frame], object]) -> FrameCallback:
        """Calls a function with each frame, from a thread of its own, until what is returned is closed.

        Meanwhile nobody else gets frames: `poll`, `latest`, `fileno`, loops and `tensor_pool.wait` fail.

        Raises:
            ClosedError: The consumer was closed.
            ConfigError: It calls another function already, or that is no function.
            ForkedProcessError: The consumer is the parent process's.

        Example:
            >>> import numpy as np, queue, tensor_pool as tp
            >>> seen = queue.Queue()
            >>> with tp.connect(embedded=True) as pool, pool.producer("a", dtype="uint8", shape=(4,)) as out:
            ...     with pool.consumer("a").on_frame(lambda frame: seen.put(frame.seq)):
            ...         _ = out.publish(np.zeros(4, "uint8"))
            ...         seen.get(timeout=5.0)
            0
        """
        self._check_open()
        if self._pid != os.getpid():
            raise ForkedProcessError(
                f"the consumer belongs to process {self._pid}", hint="connect again after the fork"
            )
        if not callable(callback):
            raise ConfigError(f"callback={callback!r}", hint="a function that takes a frame")
        self._callback = FrameCallback(self, callback)
        return self._callback

    def fileno(self) -> int:
        """A descriptor that is readable when there may be a frame: for select, poll, epoll and event loops.

        Poll until there is no frame, then wait for it again. It stays the same while the consumer is open.

        Raises:
            ClosedError: The consumer was closed.
            ConfigError: All frames go to a callback.
        """
        self._check_open()
        self.check_reserved()
        if self._wake_up is None:
            self._wake_up = WakeUp(self._session, self._bells)
        return self._wake_up.fd

    def poll_progress(self, timeout: float | None = None) -> _native.FramePrefix | None:
        """What there is of a frame that is still being written, newest first; needs ``progress=True``.

        Provisional: a private copy of the part that its producer has reported. Only `poll` gives the frame.

        Raises:
            ClosedError: The consumer or its pool was closed.
        """
        session = self._session
        deadline = time.monotonic() + (0.0 if timeout is None else check_seconds("timeout", timeout))
        while True:
            while session.progress:
                tracked = session.progress.pop()
                session.progress.clear()  # older news of the same frame, or of earlier ones
                reader = session.reader
                if reader is None or tracked.state is FrameProgressState.COMPLETE:
                    continue
                try:
                    prefix = reader.read_prefix(tracked.seq, tracked.payload_bytes_filled)
                except ClosedError:
                    continue
                if prefix is not None and prefix.usable_bytes:
                    return prefix
            self._check_open()
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return None
            with session.changed:
                if not session.progress:
                    session.changed.wait(min(left_s, _SLICE_S))

    def _poll_guided(self, timeout: float) -> Frame | None:
        """What `poll` does where the ring alone does not tell what comes next, or there is none."""
        deadline = time.monotonic() + timeout
        while True:
            frame = self._take()
            left_s = deadline - time.monotonic()
            if frame is not None or not left_s > 0:
                return frame
            self._wait(left_s)
            _native.check_not_exiting()

    def _take(self) -> Frame | None:
        self.judge_last()
        session = self._session
        reader = session.reader
        private = session.streams.private
        try:
            if reader is None:
                self._check_open()
                frame = None
            elif private is None:
                frame = session.pace.take(reader) if self._has_joined(reader) else None
            else:
                frame = self._take_described(reader, private)
            if frame is not None:
                return self.deliver(frame, private is None and not session.pace.keeps_up)
        except ClosedError:
            self._check_open()
        return None if self._wake_up is None else self._take_after_clearing(self._wake_up)

    def _has_joined(self, reader: _native.RingReader) -> bool:
        """Goes to the first frame that came, or to the one that was asked for, where it may be any.

        False as long as none has come: it would be the wrong place to look for the next one.
        """
        if self._session.midway is not reader:
            return True
        if not reader.has_next():
            return False  # and the next one ends a wait
        oldest, start = reader.oldest() or 0, self._session.options.start
        first_seq = max(oldest, start) if isinstance(start, int) else oldest
        reader.seek(first_seq, seen=first_seq != start)
        self._session.joined(reader)
        return True

    def _take_after_clearing(self, wake_up: WakeUp) -> Frame | None:
        """Looks once more after the descriptor was cleared: what comes from now on makes it readable."""
        self._wake_up = None
        try:
            wake_up.clear()
            return self._take()
        finally:
            self._wake_up = wake_up

    def _take_described(self, reader: _native.RingReader, private: PrivateDescriptors) -> Frame | None:
        """On a stream of its own the producer chooses what a consumer gets: only what is described."""
        if self._is_between_streams(reader, private):
            return self._session.pace.take(reader) if self._has_joined(reader) else None
        while (seq := self._next_described(reader, private)) is not None:
            is_first = self._last_ordinal is None
            self._count_passed_by(private, reader.address.epoch, seq)
            self._last_described = (private, reader.address.epoch, seq)
            frame = reader.read(seq)
            if seq >= reader.next_seq:
                # How far it is, for who asks; and where to go on when it has no stream of its own any more.
                reader.seek(seq + 1)
            # The producer keeps the rate from now on, but does not know what was taken from the ring before,
            # nor a rate that no whole number tells.
            options = self._session.options
            is_known = options.max_rate_hz == options.whole_rate_hz
            if frame is not None and ((is_known and not is_first) or self._session.pace.allows(frame)):
                return frame
        return None

    def _is_between_streams(self, reader: _native.RingReader, private: PrivateDescriptors) -> bool:
        """Whether the ring still tells what comes next: before the first frame that is described.

        A producer that has just started must be asked for the stream first, and what lies in the ring is
        there now. Who gets fewer frames thins them out by itself meanwhile.
        """
        epoch = reader.address.epoch
        if self._has_begun(private, epoch):
            return False
        first = private.log.after(epoch, None)
        return first is None or reader.next_seq < first.seq

    def _has_begun(self, private: PrivateDescriptors, epoch: int) -> bool:
        """Whether anything was taken yet that this stream described."""
        return self._last_described is not None and self._last_described[:2] == (private, epoch)

    def _skip_described(self, epoch: int, newest_seq: int) -> None:
        """Lets the newest frame be the next one on a stream of its own, too."""
        private = self._session.streams.private
        if private is None or self._last_described is None or not self._has_begun(private, epoch):
            return
        private.log.find(epoch, newest_seq)  # looks at the stream itself if need be
        newest = private.log.newest
        if newest is not None and newest.epoch == epoch and newest.seq > self._last_described[2]:
            self._last_described, self._last_ordinal = (private, epoch, newest.seq - 1), None

    def _count_passed_by(self, private: PrivateDescriptors, epoch: int, seq: int) -> None:
        """Counts frames that were for this consumer, and were forgotten before it came to read them."""
        ordinal = private.log.ordinal(epoch, seq)
        last_seq = -1 if self._last_described is None else self._last_described[2]
        if self._session.pace.mode is Mode.STREAM:
            # Also those whose descriptor was lost on its way.
            self._session.streams.passed_by += seq - last_seq - 1
        elif ordinal is not None and self._last_ordinal is not None:
            self._session.streams.passed_by += max(0, ordinal - self._last_ordinal - 1)
        self._last_ordinal = ordinal

    def _next_described(self, reader: _native.RingReader, private: PrivateDescriptors) -> int | None:
        """The next frame that is for this consumer, if it is there; otherwise the bell will end a wait."""
        epoch = reader.address.epoch
        if self._last_described is None or not self._has_begun(private, epoch):
            # What the ring has given so far, before there was a stream of its own, is not given again.
            self._last_described, self._last_ordinal = (private, epoch, reader.next_seq - 1), None
        last = self._last_described[2]
        after = None if last < 0 else last
        found = private.log.after(epoch, after)
        ahead = None if found is None or last < 0 else reader.ahead_of(last)
        if ahead is not None:
            # The producer overwrote what was being read, and would do the same with what is nearly as old.
            fresh = private.log.after(epoch, max(last, ahead - 1)) or private.log.newest
            found = fresh if fresh is not None and fresh.epoch == epoch else found
        if found is None:
            # The other frames in the ring are not for us, and must not end the next wait: go behind them.
            # Then look once more; a descriptor comes before its bell.
            newest = reader.newest()
            if newest is not None and newest >= reader.next_seq:
                reader.seek(newest + 1)
            if not reader.has_next():
                found = private.log.after(epoch, after)
        return None if found is None else found.seq

    def has_frame(self) -> bool:
        """Whether `poll` would find a frame now; for waiting on many.

        Raises:
            ClosedError: The ring was replaced at this moment.
        """
        reader, private = self._session.reader, self._session.streams.private
        if reader is None:
            return False
        if private is None or self._is_between_streams(reader, private):
            return reader.has_next()
        return self._next_described(reader, private) is not None

    def _wait(self, timeout_s: float) -> None:
        session = self._session
        if session.reader is None:
            with session.changed:
                if session.reader is None:
                    session.changed.wait(min(timeout_s, _SLICE_S))
            return
        try:
            self.wait_for_ring(timeout_s)
        except ClosedError:
            self._check_open()

    # --- the stream -------------------------------------------------------------------------------------

    @property
    def stream_id(self) -> int | None:
        """The stream's id; None until the driver has told it."""
        return self._session.attachment.stream_id

    @property
    def name(self) -> str:
        """The stream's name, empty when it was asked for by id."""
        return self._session.wish.name

    @property
    def mapped(self) -> bool:
        """Whether there is memory to read frames from now: the stream's, or that of a fallback."""
        return self._session.reader is not None

    @property
    def metadata(self) -> MetadataView:
        """What the producer says of the stream; behaves like a dict."""
        return self._session.metadata

    @property
    def blobs(self) -> Mapping[int, Blob]:
        """The newest large piece of metadata of each type, see `Producer.send_blob`."""
        return self._session.blobs

    @property
    def stats(self) -> ConsumerStats:
        """What it has read and lost so far."""
        return self._session.stats()

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    @property
    def session(self) -> ConsumerSession:
        """Its part on the agent's thread; for other parts of the library."""
        return self._session

    def wait_for_stream(self, timeout: float) -> Self:
        """Waits until the stream is there.

        Raises:
            NoStreamError: Nobody produces it within `timeout` seconds.
        """
        deadline = time.monotonic() + check_seconds("timeout", timeout)
        while not self.mapped:
            self._check_open()
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise self._no_stream()
            self._wait(left_s)
        return self

    def _no_stream(self) -> NoStreamError:
        refusal = self._session.attachment.last_refusal
        said = f" (the driver says {refusal})" if refusal else ""
        return NoStreamError(
            f"nobody produces stream {self._session.wish.label}{said}",
            hint="`tpool streams` lists what is there; names must match exactly",
        )

    def close(self) -> None:
        """Gives the stream back. Frames in use can't be trusted from now on. May be called again."""
        if self._closed:
            return
        self._closed = True
        if self._pid != os.getpid():
            return  # a forked child has nothing to give back: all of it is its parent's
        if self._callback is not None:
            self._callback.request_stop()
        self.judge_last()  # also lets go of the frame, and with it of the ring
        if self._wake_up is not None:
            self._wake_up.ring()
        self._session.context.run(self._session.close)
        self._session.await_feeds()
        if self._wake_up is not None:
            self._wake_up.close()
        self._on_close(self)

    def _check_open(self) -> None:
        if self._session.dead is not None:
            raise self._session.dead.with_traceback(None)
        if self._session.refusal is not None:
            raise self._session.refusal
        if self._closed:
            program_end.end_thread()
            raise ClosedError(f"the consumer of stream {self._session.wish.label} was closed")

    def __repr__(self) -> str:
        read_from = "mapped" if self._session.fallback is None else "fallback"
        state = "closed" if self._closed else read_from if self.mapped else "waiting"
        return f"<Consumer of stream {self._session.wish.label}, {state}>"
