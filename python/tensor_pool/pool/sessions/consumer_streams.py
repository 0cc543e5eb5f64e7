"""The Aeron streams of one consumer: what it asks for in its hello, and what it was given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tensor_pool.closing import Closing
from tensor_pool.wire.messages import ConsumerHello, Mode
from tensor_pool.wire.shm import LAYOUT_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensor_pool import _native
    from tensor_pool.pool.sessions.consumer_options import ConsumerOptions
    from tensor_pool.pool.sessions.descriptors import PrivateDescriptors
    from tensor_pool.pool.sessions.session import SessionContext
    from tensor_pool.wire.messages import ConsumerConfig

__all__ = ["ConsumerStreams"]

_PRIVATE_CHANNEL: Final = "aeron:ipc"


class ConsumerStreams(Closing):
    """Which descriptor and control streams a consumer listens to.

    Args:
        context: The connection.
        options: How the consumer reads.
    """

    def __init__(self, context: SessionContext, options: ConsumerOptions) -> None:
        self.log: _native.DescriptorLog | None = None
        """What the shared descriptor stream says of the stream."""
        self.private: PrivateDescriptors | None = None
        """Set while the producer chooses what this consumer gets; read by user threads."""
        self.passed_by = 0
        """Frames that were chosen, and forgotten before they were read; user threads count."""
        self._context = context
        self._options = options
        self._address: _native.RingAddress | None = None
        self._regressions = 0
        self._stop_progress: Callable[[], None] | None = None
        self._progress_endpoint: tuple[str, int] | None = None

    def hello(self, stream_id: int, consumer_id: int) -> ConsumerHello:
        """How the consumer introduces itself; a wish for a stream has both a channel and an id."""
        options = self._options
        # Descriptors of one's own would tell of frames whose chunks are still under way.
        is_limited = options.mode is Mode.RATE_LIMITED and options.whole_rate_hz > 0
        wants_own = options.shm and (options.own_stream or is_limited)
        descriptor_ids = self._context.descriptor_stream_ids if wants_own else range(0)
        control_ids = (
            self._context.control_stream_ids if options.own_stream and options.progress else range(0)
        )
        return ConsumerHello(
            stream_id=stream_id,
            consumer_id=consumer_id,
            supports_shm=options.shm,
            supports_progress=options.progress,
            mode=options.mode,
            max_rate_hz=options.whole_rate_hz,
            expected_layout_version=LAYOUT_VERSION,
            descriptor_stream_id=_any_of(descriptor_ids, consumer_id),
            control_stream_id=_any_of(control_ids, consumer_id),
            descriptor_channel=_PRIVATE_CHANNEL if descriptor_ids else "",
            control_channel=_PRIVATE_CHANNEL if control_ids else "",
        )

    def on_mapped(self, reader: _native.RingReader) -> None:
        """Another ring is in use; what is said of others no longer counts (decision L4)."""
        self._address = address = reader.address
        streams = self._context.agent.streams
        if self.log is None:
            shared = (streams.descriptor_channel, streams.descriptor_stream_id)
            self.log = self._context.feeds.follow(shared, address.stream_id, address.nslots)
        newest = reader.newest()  # asked for after somebody listens: the next one's descriptor will be heard
        self.log.set_epoch(address.epoch, awaited_from=0 if newest is None else newest + 1)
        if self.private is not None:
            self.private.log.set_epoch(address.epoch)
        if self._options.progress and self._progress_endpoint is None:
            self._listen_for_progress((streams.control_channel, streams.control_stream_id))

    def on_fallback(self, log: _native.DescriptorLog | None) -> None:
        """Frames come from chunks: only what the writer of their ring tells of them counts; None ends it."""
        self._address = None
        self._use_descriptors(None)
        self.log = log
        if log is not None and self._options.progress and self._progress_endpoint is None:
            streams = self._context.agent.streams
            self._listen_for_progress((streams.control_channel, streams.control_stream_id))

    def on_config(self, config: ConsumerConfig) -> None:
        """What the authority assigned; an empty channel assigns nothing, and the shared stream stays.

        Anybody on the control stream can claim to be the authority: only shared memory is opened for it.
        """
        self._use_descriptors(_endpoint(config.descriptor_channel, config.descriptor_stream_id))
        if self._options.progress:
            streams = self._context.agent.streams
            shared = (streams.control_channel, streams.control_stream_id)
            self._listen_for_progress(_endpoint(config.control_channel, config.control_stream_id) or shared)

    def regressed(self) -> bool:
        """Whether sequence numbers went back since the last call (decision L1)."""
        log = self.log if self.private is None else self.private.log
        before, self._regressions = self._regressions, 0 if log is None else log.regressions
        return self._regressions > before

    @property
    def descriptors_received(self) -> int:
        """Descriptors of the present epoch on the shared stream."""
        return 0 if self.log is None else self.log.received

    @property
    def descriptors_ignored(self) -> dict[str, int]:
        """Descriptors of other epochs than the mapped one.

        Earlier ones are over (decision L1); where a later one lies only its announce can tell (decision L2).
        """
        log = self.log
        counts = {} if log is None else {"lower": log.lower_epochs, "higher": log.higher_epochs}
        return {f"descriptor of a {which} epoch": count for which, count in counts.items() if count}

    def descriptors_missed(self, delivered: int) -> int:
        """Frames that were found in the ring although no descriptor told of them."""
        return 0 if self.log is None else max(0, delivered - self.log.received)

    def close(self) -> None:
        """Lets go of streams of its own; may be called again."""
        self._use_descriptors(None)
        if self._stop_progress is not None:
            self._stop_progress()
            self._stop_progress = self._progress_endpoint = None

    def _use_descriptors(self, endpoint: tuple[str, int] | None) -> None:
        old, address = self.private, self._address
        if (None if old is None else old.endpoint) == endpoint:
            return
        self.private = None
        if endpoint is not None and address is not None:
            private = self._context.feeds.private(endpoint, address.stream_id, address.nslots)
            private.log.set_epoch(address.epoch)
            self.private = private
        if old is not None:
            old.close()

    def _listen_for_progress(self, endpoint: tuple[str, int]) -> None:
        if endpoint == self._progress_endpoint:
            return
        if self._stop_progress is not None:
            self._stop_progress()
        self._stop_progress = self._context.agent.listen_for_progress(*endpoint)
        self._progress_endpoint = endpoint


def _endpoint(channel: str, stream_id: int) -> tuple[str, int] | None:
    is_private = channel.partition("?")[0] == _PRIVATE_CHANNEL
    return (channel, stream_id) if is_private and stream_id else None


def _any_of(ids: range, seed: int) -> int:
    """A wish; consumers that wish for different ids rarely have to be given others."""
    return ids[seed % len(ids)] if ids else 0
