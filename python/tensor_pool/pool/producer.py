"""What a program publishes with."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Final, Self

from tensor_pool import _native
from tensor_pool.closing import Closing
from tensor_pool.datatypes import wire_dtype
from tensor_pool.errors import ClosedError, ConfigError, TensorLayoutError
from tensor_pool.pool.arguments import check_count
from tensor_pool.pool.claim import ClaimObserver
from tensor_pool.pool.program_end import program_end
from tensor_pool.pool.sizing import element_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import DTypeLike, NDArray
    from typing_extensions import Buffer

    from tensor_pool.datatypes import Dtype
    from tensor_pool.pool.metadata import MetadataSource
    from tensor_pool.pool.sessions.producer import ProducerSession
    from tensor_pool.pool.stats import ProducerStats

__all__ = ["Producer"]

_SLICE_S: Final = 0.02


class Producer(_native.FrameSender, Closing):
    """Publishes the frames of one stream, as the only one who may. Made by `Pool.producer`.

    It never waits for consumers. May be used by several threads, one frame at a time. What runs for every
    frame, `publish` and `claim`, is native; here is what they ask for when there is more to do.

    Example:
        >>> import numpy as np, tensor_pool as tp
        >>> with tp.connect(embedded=True) as pool:
        ...     with pool.producer("camera-1", dtype="uint16", shape=(480, 640)) as out:
        ...         first = out.publish(np.zeros((480, 640), "uint16"))
        ...         with out.claim((480, 640), "uint16") as slot:
        ...             slot.array[...] = 7
        ...         first, out.stats.frames
        (0, 2)
    """

    def __new__(cls, session: ProducerSession, **_options: object) -> Self:
        """See `__init__`; the native part needs only what it shares with the session."""
        return super().__new__(cls, session.outlet, realtime=session.options.realtime)

    def __init__(self, session: ProducerSession, *, on_close: Callable[[Producer], object]) -> None:
        self._session = session
        self._on_close = on_close
        self._closed = False
        self._pid = os.getpid()

    # --- what the native part asks for --------------------------------------------------------------

    def _meta_version(self) -> int:
        return self._session.meta_version

    def _on_closed_writer(self, writer: _native.RingWriter) -> None:
        self._check_open()
        self._session.forget(writer)

    def _on_published(
        self, writer: _native.RingWriter, seq: int, timestamp_ns: int, trace_id: int | None
    ) -> None:
        self._session.tell_privately(writer, seq, timestamp_ns, trace_id)

    def _observer(
        self, writer: _native.RingWriter, progress: object, timestamp_ns: int, trace_id: int | None
    ) -> ClaimObserver:
        return ClaimObserver(
            self._session, writer, progress=progress, timestamp_ns=timestamp_ns, trace_id=trace_id
        )

    def _publish_with_progress(
        self,
        array: Buffer | NDArray[Any],
        dtype: DTypeLike | Dtype | None,
        timestamp_ns: int,
        trace_id: int | None,
    ) -> int:
        import numpy as np  # noqa: PLC0415 - see datatypes.to_numpy

        # What `publish` refuses, and what it makes of order and dtype, must not depend on who is told of it.
        if isinstance(array, np.ma.MaskedArray):
            raise TensorLayoutError("a masked array would lose its mask", hint="publish array.filled(...)")
        values = np.asarray(array if isinstance(array, np.ndarray) else memoryview(array))
        kind = wire_dtype(values.dtype if dtype is None else dtype)
        if element_bytes(kind) != values.itemsize:
            need = f"dtype {kind.name.lower()} has {element_bytes(kind)} bytes an element"
            raise TensorLayoutError(
                f"{need}, the array {values.itemsize}",
                hint="dtype says what the elements mean and keeps their size",
            )
        is_column_major = values.flags.f_contiguous and not values.flags.c_contiguous
        slot = self.claim(
            values.shape,
            kind,
            order="F" if is_column_major else "C",
            timestamp_ns=timestamp_ns,
            trace_id=trace_id,
            progress=True,
        )
        with slot:
            slot.array[...] = values.view(slot.array.dtype)
        return slot.seq

    # --- the stream ---------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The stream's name, empty when it has none."""
        return self._session.wish.name

    @property
    def stream_id(self) -> int:
        """The stream's id."""
        stream_id = self._session.attachment.stream_id
        assert stream_id is not None, "a producer is made after the driver has told the id"
        return stream_id

    @property
    def epoch(self) -> int | None:
        """The stream's present epoch; None while there is no lease, or its ring is not open yet."""
        lease = self._session.attachment.lease
        return None if lease is None or self._session.writer is None else lease.epoch

    @property
    def client_id(self) -> int | None:
        """What the driver knows it by; None while there is no lease."""
        lease = self._session.attachment.lease
        return None if lease is None else lease.client_id

    @property
    def writer(self) -> _native.RingWriter | None:
        """The ring, for services that fill it themselves; None while there is no lease."""
        return self._session.writer

    @property
    def max_frame_bytes(self) -> int:
        """The largest payload that fits."""
        return (self._session.writer or self._wait_for_writer()).max_payload_bytes

    @property
    def metadata(self) -> MetadataSource:
        """What consumers should know of the stream; behaves like a dict.

        Every change is a new version, which the frames published after it name.
        """
        return self._session.metadata

    def send_blob(self, blob_type: int, data: Buffer) -> None:
        """Sends a large piece of metadata, such as a calibration table, to all consumers and later ones.

        It replaces the former one of its type. What a type means is between producer and consumers.

        Args:
            blob_type: A number from 0 to 2**32 - 1.
            data: Its bytes; all blobs of a stream together have at most 64 MiB.

        Raises:
            ConfigError: There is no such type of blob.
            MalformedMessageError: Too much for metadata.

        Example:
            >>> import time, tensor_pool as tp
            >>> with tp.connect(embedded=True) as pool, pool.producer("a", dtype="uint8", shape=(4,)) as out:
            ...     inp = pool.consumer("a")
            ...     out.send_blob(1, bytes(100_000))
            ...     while 1 not in inp.blobs:
            ...         time.sleep(0.01)
            ...     len(inp.blobs[1].data)
            100000
        """
        self._check_open()
        checked_type = check_count("blob_type", blob_type, least=0, most=2**32 - 1)
        if checked_type is None:
            raise ConfigError("blob_type=None", hint="a number that says what it is")
        session, copied = self._session, bytes(memoryview(data))
        session.context.run(
            lambda: session.blobs.put(checked_type, copied, meta_version=session.meta_version)
        )

    @property
    def session(self) -> ProducerSession:
        """Its part on the agent's thread; for other parts of the library."""
        return self._session

    @property
    def stats(self) -> ProducerStats:
        """What it has done so far."""
        return self._session.stats()

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def close(self, linger_s: float = 0.1) -> None:
        """Gives the stream back; consumers see its end. May be called again.

        Args:
            linger_s: The stream's memory ends with its lease. If somebody reads it, so long after the last
                frame is waited, so that those who keep up get that too; 0 for no wait at all.
        """
        if self._closed:
            return
        if self._pid != os.getpid():
            self._closed = True  # a forked child has nothing to give back: all of it is its parent's
            return
        session = self._session
        left_s = session.outlet.published_ns / 1e9 + linger_s - time.monotonic()
        try:
            if left_s > 0 and session.has_consumers:
                time.sleep(left_s)
        finally:  # who is tired of waiting, and interrupts it, does not want to keep the stream
            self._closed = True
            session.metadata.close()
            session.context.run(session.close)
            self._on_close(self)

    def _check_open(self) -> None:
        if self._closed:
            program_end.end_thread()
            raise ClosedError(f"the producer of stream {self._session.wish.label} was closed")

    def _wait_for_writer(self) -> _native.RingWriter:
        """Waits for a new lease as the policy says; producers wait for their driver, never for consumers."""
        self._check_open()
        session = self._session
        section = session.context.section
        deadline = time.monotonic() + section.reconnect_timeout_ms / 1000
        while (writer := session.writer) is None:
            self._check_open()
            if session.dead is not None:
                raise session.dead.with_traceback(None)
            if section.on_lease_loss == "raise" or time.monotonic() > deadline:
                raise session.lost_error()
            time.sleep(_SLICE_S)
            _native.check_not_exiting()
        return writer

    def __repr__(self) -> str:
        state = "closed" if self._closed else "attached" if self._session.writer else "without lease"
        return f"<Producer of stream {self._session.wish.label}, {state}>"
