"""Streams of single consumers where somebody else than the producer is the authority (decision D14)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensor_pool.ids import AeronStreamId
from tensor_pool.pool.consumer_desk import Assignment
from tensor_pool.pool.private_streams import PrivateStream, PrivateStreams
from tensor_pool.runtime import TimerQueue
from tensor_pool.wire.messages import Mode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tensor_pool.wire.messages import ConsumerConfig, ConsumerHello

__all__ = ["ToldAssignments"]


class ToldAssignments:
    """What a producer has to publish where, as it overhears what consumers are told.

    Whoever tells a consumer to listen to a stream of its own needs the producer to speak there. No message is
    for that, but the producer hears the same control stream. Anybody could have sent it: only channels and
    ids that could be asked for are opened, and only so many.

    Args:
        stream_id: The producer's stream.
        descriptor_stream_ids: Ids of private descriptor streams.
        control_stream_ids: Ids of private control streams.
        silence_ns: A consumer that says nothing for so long has no stream any more [WIRE-5-10].
        limited_rate_hz: Frames a second for who is limited and named no rate.
        allowed_channels: Channels of private streams.
        max_private: Consumers with streams of their own at most.

    Example:
        >>> from tensor_pool.wire.messages import ConsumerConfig
        >>> told = ToldAssignments(10000, descriptor_stream_ids=range(31000, 32000),
        ...                        control_stream_ids=range(0), silence_ns=4, limited_rate_hz=10)
        >>> told.on_config(ConsumerConfig(10000, 7, True, Mode.RATE_LIMITED, descriptor_stream_id=31005,
        ...                               descriptor_channel="aeron:ipc"), None, now_ns=0)
        >>> told.assignments[7].descriptor.stream_id, told.assignments[7].max_rate_hz
        (31005, 10)
    """

    def __init__(
        self,
        stream_id: int,
        *,
        descriptor_stream_ids: range,
        control_stream_ids: range,
        silence_ns: int,
        limited_rate_hz: int,
        allowed_channels: Sequence[str] = ("aeron:ipc",),
        max_private: int = 64,
    ) -> None:
        self.changes = 0
        """Grows with every change of `assignments`."""
        self._stream_id = stream_id
        self._descriptor_ids = descriptor_stream_ids
        self._control_ids = control_stream_ids
        self._channels = PrivateStreams(range(0), allowed_channels=allowed_channels)
        self._silence_ns = silence_ns
        self._limited_rate_hz = limited_rate_hz
        self._max_private = max_private
        self._assignments: dict[int, Assignment] = {}
        self._deadlines: TimerQueue[int] = TimerQueue()

    @property
    def assignments(self) -> Mapping[int, Assignment]:
        """What each consumer has, by its id; only those who have something."""
        return self._assignments

    def on_config(self, config: ConsumerConfig, wish: ConsumerHello | None, now_ns: int) -> None:
        """A consumer was told how to read; `wish` is its last hello, if it was heard."""
        if config.stream_id != self._stream_id:
            return
        consumer_id = config.consumer_id
        descriptor = self._private(
            config.descriptor_channel, config.descriptor_stream_id, self._descriptor_ids
        )
        control = self._private(config.control_channel, config.control_stream_id, self._control_ids)
        before = self._assignments.get(consumer_id)
        others = [a for a in self._assignments.values() if a.consumer_id != consumer_id]
        # Two on one stream would each get what is for the other.
        if descriptor is not None and descriptor in [other.descriptor for other in others]:
            descriptor = None
        if (descriptor is None and control is None) or len(others) >= self._max_private:
            self.on_disconnect(consumer_id)
            return
        rate = self._rate_hz(config, wish) if descriptor is not None else 0
        assignment = Assignment(consumer_id, descriptor, control, rate)
        if assignment != before:
            self._assignments[consumer_id] = assignment
            self.changes += 1
        self._deadlines.set(consumer_id, now_ns + self._silence_ns)

    def on_life(self, consumer_id: int, now_ns: int) -> None:
        """A consumer said hello or reported."""
        if consumer_id in self._assignments:
            self._deadlines.set(consumer_id, now_ns + self._silence_ns)

    def on_disconnect(self, consumer_id: int) -> None:
        """A consumer left, or has no stream of its own any more."""
        self._deadlines.cancel(consumer_id)
        self.changes += self._assignments.pop(consumer_id, None) is not None

    def expire(self, now_ns: int) -> None:
        """Takes their streams from those who fell silent."""
        for consumer_id in self._deadlines.expire(now_ns):
            self.changes += self._assignments.pop(consumer_id, None) is not None

    def _private(self, channel: str, stream_id: int, ids: range) -> PrivateStream | None:
        allowed = self._channels.allowed(channel) if channel and stream_id in ids else None
        return None if allowed is None else PrivateStream(allowed, AeronStreamId(stream_id))

    def _rate_hz(self, config: ConsumerConfig, wish: ConsumerHello | None) -> int:
        """The consumer's own rate counts before ours [WIRE-11-5]."""
        if config.mode is Mode.STREAM:
            return 0
        named = 0 if wish is None else wish.max_rate_hz
        asked_for_it = wish is not None and wish.mode is Mode.RATE_LIMITED
        return named if asked_for_it else named or self._limited_rate_hz
