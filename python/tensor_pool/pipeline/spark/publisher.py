"""The process that holds the producers of Spark's sink.

A stream has one producer, and Spark gives no promise which worker runs a task: this process outlives tasks,
keeps the lease between batches, and remembers which batches it has published. Workers start it when it is not
there, and it ends after a while without work. They talk over a socket in a directory that only their user can
enter.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import struct
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tensor_pool.errors import MalformedMessageError, TensorPoolError
from tensor_pool.pipeline.record.recording import as_array
from tensor_pool.pipeline.spark.live_pool import Connection  # noqa: TC001 - msgspec reads it
from tensor_pool.pipeline.spark.resolve import TensorUnavailableError, open_tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tensor_pool.pool.pool import Pool
    from tensor_pool.pool.producer import Producer

__all__ = ["Answer", "Begin", "End", "FrameToPublish", "Publisher", "PublisherOptions", "receive", "send"]

_LOG: Final = logging.getLogger(__name__)
_LENGTH: Final = struct.Struct("<Q")
_MOST_BYTES: Final = 1 << 34
_LAST_BATCH: Final = "spark.batch"
"""The attribute of a stream's metadata that names the last batch that was published wholly."""
_LOOK_S: Final = 0.5


class PublisherOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker tells the process that it starts, as JSON on its command line."""

    socket: str
    connection: Connection
    idle_s: float = 30.0


class Begin(msgspec.Struct, frozen=True, tag="begin", kw_only=True):
    """A task begins: what it will publish."""

    stream: str
    slots: int
    batch: str
    """Names the batch of a streaming query; empty where nothing is ever repeated."""
    part: int
    frame_bytes: int
    """How large frames can be; 0 when the first one tells."""


class FrameToPublish(msgspec.Struct, frozen=True, tag="frame", kw_only=True):
    """One tensor: its bytes, or where they are."""

    dtype: str
    shape: tuple[int, ...]
    order: str = "C"
    timestamp_ns: int | None = None
    trace_id: int | None = None
    values: bytes | None = None
    row: dict[str, Any] | None = None


class End(msgspec.Struct, frozen=True, tag="end", kw_only=True):
    """The task has sent everything."""

    is_whole: bool = True


class Answer(msgspec.Struct, frozen=True, tag="answer", kw_only=True):
    """What became of a task."""

    published: int = 0
    unavailable: int = 0
    """Rows whose tensor was gone."""
    is_repeated: bool = False
    """The batch was published before; nothing was published now."""
    error: str = ""


_Message = Begin | FrameToPublish | End | Answer


def send(connection: socket.socket, message: _Message) -> None:
    """Sends one message.

    Raises:
        OSError: The other side is gone.
    """
    content = msgspec.msgpack.encode(message)
    connection.sendall(_LENGTH.pack(len(content)))
    connection.sendall(content)


def receive(connection: socket.socket) -> _Message | None:
    """The next message; None when the other side has ended.

    Raises:
        MalformedMessageError: That is no message.
        OSError: The other side is gone.
    """
    head = _exactly(connection, _LENGTH.size)
    if head is None:
        return None
    (length,) = _LENGTH.unpack(head)
    if length > _MOST_BYTES:
        raise MalformedMessageError(f"a message of {length} bytes")
    content = _exactly(connection, length)
    if content is None:
        raise MalformedMessageError("a message ends in the middle")
    try:
        return msgspec.msgpack.decode(content, type=Begin | FrameToPublish | End | Answer)
    except (msgspec.DecodeError, msgspec.ValidationError) as e:
        raise MalformedMessageError(str(e)) from None


def _exactly(connection: socket.socket, length: int) -> bytearray | None:
    content = bytearray(length)
    view = memoryview(content)
    while view:
        got = connection.recv_into(view)
        if not got:
            return None
        view = view[got:]
    return content


class Publisher:
    """Serves workers until nobody has had work for a while.

    Args:
        options: Where it listens, and for which pool.
    """

    def __init__(self, options: PublisherOptions) -> None:
        self._options = options
        self._pool: Pool = options.connection.open("spark sink")
        self._producers: dict[str, Producer] = {}
        self._done: dict[str, set[tuple[str, int]]] = {}
        """Parts of the newest batch of each stream that were published."""
        self._locks: dict[str, threading.Lock] = {}
        """One task of a stream publishes at a time: a stream has an order."""
        self._busy = 0
        self._idle_since = time.monotonic()

    def serve(self) -> None:
        """Works until it has been idle for long enough."""
        with self._pool, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(self._options.socket)
            listener.listen(64)
            listener.settimeout(_LOOK_S)
            while self._busy or time.monotonic() - self._idle_since < self._options.idle_s:
                try:
                    connection, _ = listener.accept()
                except TimeoutError:
                    continue
                connection.settimeout(None)
                self._busy += 1
                threading.Thread(target=self._serve_one, args=(connection,), daemon=True).start()
            # Who connects from now on finds nobody, and starts another one.
            Path(self._options.socket).unlink()

    def _serve_one(self, connection: socket.socket) -> None:
        try:
            with connection:
                begin = receive(connection)
                if isinstance(begin, Begin):
                    with self._locks.setdefault(begin.stream, threading.Lock()):
                        self._serve_task(connection, begin)
        except (OSError, MalformedMessageError) as e:
            _LOG.warning("a task ended early: %s", e)
        finally:
            self._idle_since = time.monotonic()
            self._busy -= 1

    def _serve_task(self, connection: socket.socket, begin: Begin) -> None:
        is_repeated = self._is_done(begin)
        published = unavailable = 0
        error = ""
        while isinstance(message := receive(connection), FrameToPublish):
            if is_repeated or error:
                continue
            try:
                self._publish(begin, message)
                published += 1
            except TensorUnavailableError:
                unavailable += 1
            except TensorPoolError as e:
                error = f"{e.message}; {e.hint}" if e.hint else e.message
            except Exception as e:
                # The task is told; without an answer it would only see that the connection ended.
                _LOG.exception("a frame of %s", begin.stream)
                error = f"{type(e).__name__}: {e}"
        if isinstance(message, End):
            if not error and message.is_whole:
                self._remember(begin)
            counts = {"published": published, "unavailable": unavailable}
            send(connection, Answer(**counts, is_repeated=is_repeated, error=error))

    def _publish(self, begin: Begin, frame: FrameToPublish) -> None:
        with contextlib.ExitStack() as resources:
            if frame.row is not None:
                array = resources.enter_context(open_tensor(frame.row))
            else:
                array = as_array(frame.values or b"", frame.dtype, frame.shape, frame.order)
            out = self._out(begin, array)
            out.publish(array, timestamp_ns=frame.timestamp_ns, trace_id=frame.trace_id)

    def _out(self, begin: Begin, array: NDArray[Any]) -> Producer:
        """The producer of a stream, made for its first frame; larger frames get another epoch."""
        out = self._producers.get(begin.stream)
        if out is not None and out.max_frame_bytes >= array.nbytes:
            return out
        if out is not None:
            out.close()
        stream = int(begin.stream) if begin.stream.isdecimal() else begin.stream
        needed = max(array.nbytes, begin.frame_bytes, 1)
        out = self._pool.producer(stream, max_bytes=needed, slots=begin.slots)
        self._producers[begin.stream] = out
        return out

    def _is_done(self, begin: Begin) -> bool:
        return bool(begin.batch) and (begin.batch, begin.part) in self._done.get(begin.stream, set())

    def _remember(self, begin: Begin) -> None:
        if not begin.batch:
            return
        done = self._done.setdefault(begin.stream, set())
        # Only the newest batch of a query is ever repeated.
        kept = {part for part in done if part[0] == begin.batch}
        self._done[begin.stream] = kept | {(begin.batch, begin.part)}
        if begin.stream in self._producers:
            self._producers[begin.stream].metadata[_LAST_BATCH] = begin.batch


def main() -> None:
    """Entry point of the process."""
    options = msgspec.json.decode(sys.argv[1], type=PublisherOptions)
    logging.basicConfig(level=logging.WARNING)
    try:
        publisher = Publisher(options)
    except TensorPoolError as e:
        sys.exit(f"{e}")
    publisher.serve()
