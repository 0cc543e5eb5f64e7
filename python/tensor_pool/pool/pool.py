"""A program's connection to the streams of its host."""

from __future__ import annotations

import math
import os
import time
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from tensor_pool.closing import Closing
from tensor_pool.errors import (
    AttachRefusedError,
    ConfigError,
    ForkedProcessError,
    NoDriverError,
    NoStreamError,
)
from tensor_pool.pool import refusals
from tensor_pool.pool.arguments import (
    check_choice,
    check_count,
    check_fallback,
    check_flag,
    check_metadata,
    check_rate,
    check_seconds,
    check_start,
    check_stream,
    check_tags,
)
from tensor_pool.pool.consumer import Consumer
from tensor_pool.pool.discovering import FoundStream
from tensor_pool.pool.producer import Producer
from tensor_pool.pool.program_end import program_end
from tensor_pool.pool.sessions.consumer import ConsumerSession
from tensor_pool.pool.sessions.consumer_options import ConsumerOptions
from tensor_pool.pool.sessions.lease import StreamWish
from tensor_pool.pool.sessions.once import Once
from tensor_pool.pool.sessions.producer import ProducerOptions, ProducerSession
from tensor_pool.pool.sizing import MAX_SLOTS
from tensor_pool.pool.streams import PRESENT, StreamInfo, stream_info
from tensor_pool.pool.wakeups import WAITING, Bells
from tensor_pool.pool.wishes import producer_wish
from tensor_pool.wire.messages import (
    DriverStatus,
    GetDriverStatus,
    ListStreams,
    Mode,
    ResponseCode,
    Role,
    StreamsListed,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import DTypeLike, NDArray

    from tensor_pool.datatypes import Dtype
    from tensor_pool.pool.sessions.session import SessionContext, StreamSession
    from tensor_pool.wire import Message

__all__ = ["Pool"]

_MODES: Final = {"stream": Mode.STREAM, "rate_limited": Mode.RATE_LIMITED}
_REPEAT_S: Final = 0.25
_ASK_AGAIN_S: Final = 0.1
_UNEXPECTED_ANSWER_S: Final = 0.5
"""How long a driver may take where a program has said that there is none; one that runs answers at once."""


class Pool(Closing):
    """A program's connection to the streams of its host. Made by `tensor_pool.connect`.

    May be shared by threads. Closing it closes its producers and consumers.

    Example:
        >>> import numpy as np, tensor_pool as tp
        >>> with tp.connect(embedded=True) as pool:
        ...     out = pool.producer("camera-1", dtype="uint8", shape=(2, 2))
        ...     _ = out.publish(np.eye(2, dtype="uint8"))
        ...     pool.consumer("camera-1").poll(timeout=5.0).copy().tolist()
        [[1, 0], [0, 1]]
    """

    def __init__(
        self,
        context: SessionContext,
        *,
        aeron_dir: str,
        close: Callable[[], None],
        expects_driver: bool = True,
    ) -> None:
        self._context = context
        self._aeron_dir = aeron_dir
        self._close = close
        self._expects_driver = expects_driver
        self._closed = False
        self._pid = os.getpid()
        self._streams: dict[Producer | Consumer, None] = {}
        """What is open: closed with the pool, and kept until then."""
        self._bells = Bells()

    @property
    def aeron_dir(self) -> str:
        """The media driver's directory; other processes join with ``connect(aeron_dir=...)``."""
        return self._aeron_dir

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    @property
    def is_connected(self) -> bool:
        """Whether it is of use: not closed, and its media driver lives."""
        return not self._closed and self._context.is_running()

    @property
    def heard_driver(self) -> bool:
        """Whether a driver has answered or announced anything since the connection was made."""
        return self._context.agent.heard_driver_ns is not None

    @property
    def driver_silence_s(self) -> float:
        """Seconds since a driver has answered or announced anything; for ever where none ever did."""
        agent = self._context.agent
        heard_ns = agent.heard_driver_ns
        return math.inf if heard_ns is None else (agent.clock.monotonic_ns() - heard_ns) / 1e9

    # --- streams ------------------------------------------------------------------------------------

    def producer(
        self,
        stream: str | int,
        *,
        dtype: DTypeLike | Dtype | None = None,
        shape: Sequence[int] | None = None,
        max_bytes: int | None = None,
        slots: int | None = None,
        pools: Sequence[int] | None = None,
        rate_hz: float | None = None,
        consumer_latency_s: float | None = None,
        metadata: Mapping[str, Any] | None = None,
        order: Literal["C", "F"] = "C",
        clock: Literal["monotonic", "realtime"] = "monotonic",
        attach: bool = True,
        name: str = "",
        hugepages: bool | None = None,
        lock_memory: bool = False,
        stamp_descriptors: bool = False,
        fallback_uri: str | None = None,
        flush: Callable[[NDArray[Any]], object] | None = None,
        wait_s: float = 0.0,
    ) -> Producer:
        """The right to publish a stream, exclusively, with memory that fits its frames.

        Args:
            stream: Its name, or its id.
            dtype: Element type of its frames.
            shape: Shape of its largest frame; with `dtype` it chooses the pools.
            max_bytes: The largest frame in bytes, instead of `dtype` and `shape`.
            slots: How many frames the ring holds; a power of two.
            pools: Slot sizes in bytes, instead of what is chosen.
            rate_hz: Frames a second, and
            consumer_latency_s: how long a consumer may take: both together choose the number of slots.
            metadata: What consumers should know; see `Producer.metadata`.
            order: Memory order of its frames.
            clock: Which clock stamps frames that come without a time.
            attach: False for deployments without a driver: the producer owns its files and announces them.
            name: What the stream is called, where `stream` is an id.
            hugepages: Insist on huge pages.
            lock_memory: Keep the memory from being swapped out.
            stamp_descriptors: Say in each descriptor when it was sent.
            fallback_uri: Where consumers without shared memory read it: the payload channel of the bridge
                that sends it; `client.fallback_uri` when left out.
            flush: Called with a claimed slot's array before it is committed, for devices whose writes the CPU
                does not see by itself.
            wait_s: Ask again for so long while another producer, or a limit, is in the way. A producer that
                was killed has its lease for some seconds more.

        Raises:
            AttachRefusedError: The driver refuses: another producer, a limit, a bad name, a name that another
                stream has. The text tells.
            ConfigError: An argument makes no sense, two sizes contradict each other, or there is a
                `consumer_latency_s` without a `rate_hz`.
            NoDriverError: No driver answers.
        """
        wish = producer_wish(
            stream,
            name=name,
            dtype=dtype,
            shape=shape,
            max_bytes=max_bytes,
            slots=slots,
            pools=pools,
            rate_hz=rate_hz,
            consumer_latency_s=consumer_latency_s,
            order=order,
            hugepages=hugepages,
        )
        options = ProducerOptions(
            name=name,
            attach=check_flag("attach", attach),
            metadata=check_metadata(metadata),
            flush=flush,
            realtime=check_choice("clock", clock, ["monotonic", "realtime"]) == "realtime",
            lock_memory=check_flag("lock_memory", lock_memory),
            stamp_descriptors=check_flag("stamp_descriptors", stamp_descriptors),
            fallback_uri=self._fallback_uri(fallback_uri),
        )
        if flush is not None and not callable(flush):
            raise ConfigError(f"flush={flush!r:.80}", hint="a function that takes the array of a slot")
        deadline = time.monotonic() + check_seconds("wait_s", wait_s)
        while True:
            try:
                return self._open_producer(wish, options)
            except AttachRefusedError as e:
                if not e.may_pass or time.monotonic() >= deadline:
                    raise refusals.name_own_producer(e) from None
                time.sleep(_ASK_AGAIN_S)

    def relay(
        self,
        stream: str | int,
        *,
        name: str = "",
        pools: Sequence[int] = (),
        slots: int | None = None,
    ) -> Producer:
        """A producer for frames that come from elsewhere with their numbers, as a bridge writes them.

        It sends no metadata, and gives no consumer a stream of its own. Nobody publishes through it:
        `Producer.writer` is filled instead.

        Args:
            stream: Its name, or its id.
            name: What the stream is called, where `stream` is an id.
            pools: Slot sizes in bytes; left to the driver's configuration by default.
            slots: How many frames the ring holds.

        Raises:
            AttachRefusedError: The driver refuses, for instance because there is a producer.
            NoDriverError: No driver answers.
        """
        wish = producer_wish(stream, name=name, slots=slots, pools=list(pools) or None)
        return self._open_producer(wish, ProducerOptions(name=name, relays=True))

    def _open_producer(self, wish: StreamWish, options: ProducerOptions) -> Producer:
        session = ProducerSession(self._context, wish, options)
        self._start(session)
        writer = session.writer
        if writer is not None:
            writer.prefault(lock=options.lock_memory)  # here, and not in the first frames (decision D19)
        producer = Producer(session, on_close=self._forget)
        self._streams[producer] = None
        refusals.open_producers.add(producer)
        return producer

    def consumer(
        self,
        stream: str | int | FoundStream,
        *,
        start: Literal["latest", "oldest"] | int = "latest",
        mode: Literal["stream", "rate_limited"] | None = None,
        max_rate_hz: float = 0,
        progress: bool = False,
        own_stream: bool = False,
        attach: bool = True,
        shm: bool = True,
        fallback_uri: str | None = None,
        copy_mode: bool = False,
        relaxed_stride: bool = False,
        max_outstanding_seq_gap: int | None = None,
        wait_s: float | None = None,
    ) -> Consumer:
        """A reader of a stream. The stream may appear later; it is followed as soon as it does.

        A name that another driver of this host has is looked for there, where ``[[discovery.providers]]`` are
        configured that know of it; in any case that driver decides.

        Args:
            stream: Its name, or its id, or what `tensor_pool.discover` has found.
            start: The newest frame that is there, the oldest, or a sequence number.
            mode: ``"rate_limited"`` for at most `max_rate_hz` frames a second, ``"stream"`` for all. Left out
                it follows from `max_rate_hz`.
            max_rate_hz: See `mode`; less than one a second as well, such as 0.5. With ``mode="stream"`` it is
                what a supervisor may limit the consumer to.
            progress: Follow frames while they are written.
            own_stream: Ask the producer for a descriptor stream of one's own.
            attach: False follows announces without a lease: for deployments without a driver.
            shm: False to read without the stream's shared memory, from a bridge's chunks.
            fallback_uri: Where those are when nobody tells, and when the memory can't be used: the payload
                channel of the bridge that sends the stream; `client.fallback_uri` when left out.
            copy_mode: Read with system calls, as private copies: survives files that shrink.
            relaxed_stride: Accept pool strides that are any multiple of 64.
            max_outstanding_seq_gap: Skip to the newest frame when this many behind; 0 never.
            wait_s: Wait so long for the stream to be there.

        Raises:
            AttachRefusedError: The driver refuses.
            NoDriverError: No driver answers.
            NoStreamError: Nobody produces it within `wait_s`.
        """
        section = self._context.section
        patience_s = None if wait_s is None else check_seconds("wait_s", wait_s)
        wished_gap = check_count("max_outstanding_seq_gap", max_outstanding_seq_gap, least=0, most=MAX_SLOTS)
        rate_hz = check_rate("max_rate_hz", max_rate_hz)
        if mode is None:
            mode = "rate_limited" if rate_hz else "stream"
        if mode == "rate_limited" and not rate_hz:
            raise ConfigError('mode="rate_limited" without a rate', hint="give one, such as max_rate_hz=10")
        options = ConsumerOptions(
            start=check_start(start),
            mode=_MODES[check_choice("mode", mode, list(_MODES))],
            max_rate_hz=rate_hz,
            progress=check_flag("progress", progress),
            own_stream=check_flag("own_stream", own_stream),
            attach=check_flag("attach", attach),
            shm=check_flag("shm", shm),
            fallback_uri=self._fallback_uri(fallback_uri),
            copy_mode=check_flag("copy_mode", copy_mode),
            relaxed_stride=check_flag("relaxed_stride", relaxed_stride),
            max_outstanding_seq_gap=section.max_outstanding_seq_gap if wished_gap is None else wished_gap,
        )
        home, known_as = self._home_of(stream)
        wish = StreamWish(role=Role.CONSUMER, **check_stream(known_as))
        return home.open_consumer(wish, options, patience_s)

    def _home_of(self, stream: str | int | FoundStream) -> tuple[Pool, str | int]:
        """The pool of the driver that has a stream: mostly this one, which also waits for what nobody has."""
        around = self._context.surroundings
        if isinstance(stream, FoundStream):
            return around.pool_of(stream) or self, stream.stream_id
        found = around.find(stream) if isinstance(stream, str) else None
        return (self if found is None else around.pool_of(found) or self), stream

    def open_consumer(
        self, wish: StreamWish, options: ConsumerOptions, patience_s: float | None = None
    ) -> Consumer:
        """What `consumer` does once it is known which driver has the stream."""
        session = ConsumerSession(self._context, wish, options)
        self._start(session)
        if not options.attach and session.wish.name:
            self._context.submit(lambda: self._context.agent.follow_name(session.wish.name, session))
        style = WAITING[self._context.section.wake_profile]
        consumer = Consumer(session, bells=self._bells, style=style, on_close=self._forget)
        self._streams[consumer] = None
        if patience_s is not None:
            try:
                consumer.wait_for_stream(patience_s)
            except NoStreamError as e:
                consumer.close()
                raise self._context.surroundings.explain(wish.name, e) from None
            except BaseException:
                consumer.close()
                raise
        return consumer

    def _fallback_uri(self, given: str | None) -> str:
        return self._context.section.fallback_uri if given is None else check_fallback(given)

    def streams(
        self,
        *,
        name: str | None = None,
        tag: str | Iterable[str] = (),
        data_source_id: int | None = None,
        ended: bool = False,
    ) -> list[StreamInfo]:
        """What this host has: id, name, dtype, shape, rate, epoch, clients. `tensor_pool.discover` sees more.

        Args:
            name: Only the stream of this name.
            tag: Only streams with this tag, or with all of several.
            data_source_id: Only streams of this data source.
            ended: Also those of which the driver only knows the name, because they ended or because somebody
                waits for them; `StreamInfo.state` tells.

        Raises:
            NoDriverError: No driver answers.
            ConfigError: No stream can have such a name, tag or source.

        Example:
            >>> import tensor_pool as tp
            >>> with tp.connect(embedded=True) as pool, pool.producer("a", dtype="uint8", shape=(4,)):
            ...     [(stream.name, stream.shape, stream.dtype) for stream in pool.streams()]
            [('a', (4,), 'uint8')]
        """
        tags = check_tags([tag] if isinstance(tag, str) else tag)
        check_count("data_source_id", data_source_id, least=0, most=2**64 - 1)
        if name is not None and not isinstance(name, str):
            raise ConfigError(f"name={name!r:.80}", hint="a text, such as 'camera-1'")
        found = [stream for stream in self._all_streams() if name in {None, stream.name}]
        if tags or data_source_id is not None:
            matching = self._context.surroundings.own_streams(tags, data_source_id)
            found = [stream for stream in found if (stream.stream_id, stream.epoch) in matching]
        return found if ended else [stream for stream in found if stream.state in PRESENT]

    def _all_streams(self) -> list[StreamInfo]:
        found: list[StreamInfo] = []
        while True:
            answer = self.request(
                ListStreams(correlation_id=0, client_id=self._context.agent.client_id(), offset=len(found))
            )
            assert isinstance(answer, StreamsListed)
            found += [stream_info(entry) for entry in answer.streams]
            if not answer.streams or len(found) >= answer.total_count or answer.code is not ResponseCode.OK:
                return found

    def driver_status(self, timeout_s: float | None = None) -> DriverStatus:
        """What the driver is and does.

        Raises:
            NoDriverError: No driver answers.
        """
        request = GetDriverStatus(correlation_id=0, client_id=self._context.agent.client_id())
        answer = self.request(request, timeout_s=timeout_s)
        assert isinstance(answer, DriverStatus)
        return answer

    def request(self, message: Message, *, timeout_s: float | None = None) -> Message:
        """Sends a request of schema 906 and waits for its answer; the correlation id is filled in.

        Raises:
            NoDriverError: No driver answers in time.
            ClosedError: The pool was closed.
        """
        self._check_open()
        agent = self._context.agent
        answer: Once[Message] = Once()
        message = msgspec.structs.replace(message, correlation_id=agent.correlation_id())
        deadline = time.monotonic() + (
            self._timeout_s() if timeout_s is None else check_seconds("timeout_s", timeout_s)
        )
        while (left_s := deadline - time.monotonic()) > 0:
            # Control streams may lose a message; the driver does a repeated request once (decision D18).
            self._context.submit(lambda: agent.send(message, answer_to=answer))
            given = answer.wait(min(left_s, _REPEAT_S))
            if given is not None:
                return given
        raise self._no_driver_error()

    def _start(self, session: StreamSession) -> None:
        self._check_open()
        self._context.submit(lambda: session.agent.add(session))
        try:
            answered = session.ready.wait(self._timeout_s())
        except BaseException:
            self._context.submit(session.close)
            raise
        if answered is None:
            self._context.submit(session.close)
            raise self._no_driver_error(otherwise="give attach=False where there is to be none")

    def _forget(self, stream: Producer | Consumer) -> None:
        self._streams.pop(stream, None)

    def _timeout_s(self) -> float:
        patience_s = self._context.section.attach_timeout_ms / 1000
        return patience_s if self._awaits_driver else min(patience_s, _UNEXPECTED_ANSWER_S)

    @property
    def _awaits_driver(self) -> bool:
        return self._expects_driver or self.heard_driver

    def _no_driver_error(self, **words: str) -> NoDriverError:
        if self._awaits_driver:
            return refusals.no_driver_error(self._aeron_dir, **words)
        return refusals.not_expected_error(self._aeron_dir)

    def _check_open(self) -> None:
        if self._pid != os.getpid():
            raise ForkedProcessError(
                f"the pool belongs to process {self._pid}", hint="connect again after the fork"
            )
        if self._closed or not self._context.is_running():
            program_end.end_thread()
            raise self._context.agent.end_error()

    def close(self) -> None:
        """Closes its producers and consumers and the connection; may be called again."""
        if self._closed:
            return
        self._closed = True
        if self._pid != os.getpid():
            return  # a forked child has nothing to close: all of it is its parent's
        for stream in list(self._streams):
            stream.close()
        self._bells.close()
        self._close()

    def __repr__(self) -> str:
        return f"<Pool at {self._aeron_dir}{', closed' if self._closed else ''}, process {os.getpid()}>"
