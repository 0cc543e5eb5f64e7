"""What consumers are told: the answer to their wishes, changed by what was decided about them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from tensor_pool.control.supervisor.judging import Remedy
from tensor_pool.pool.consumer_desk import ConsumerDesk
from tensor_pool.wire.messages import Mode

if TYPE_CHECKING:
    from tensor_pool.control.supervisor.config import Setting
    from tensor_pool.control.supervisor.watched import ConsumerKey
    from tensor_pool.wire.messages import ConsumerConfig, ConsumerHello, QosConsumer

__all__ = ["SupervisorDesk"]

_OWN_CHANNEL: Final = "aeron:ipc"


class SupervisorDesk:
    """Answers hellos by the rules by which producers do (`ConsumerDesk`).

    What was decided about a consumer is put into its mouth: one that shall be limited is answered as if it
    had asked for it. So everything holds for what it is told that holds for what it may ask for.

    Args:
        setting: Which streams may be given out, and where the fallback is.

    Example:
        >>> from tensor_pool.control.supervisor.config import Setting
        >>> from tensor_pool.wire.messages import ConsumerHello
        >>> desk = SupervisorDesk(Setting(descriptor_stream_ids=range(31000, 32000)))
        >>> hello = ConsumerHello(stream_id=10000, consumer_id=7, supports_shm=True,
        ...                       supports_progress=False, mode=Mode.STREAM)
        >>> desk.answer(hello, Remedy.RATE_LIMITED, now_ns=0).mode.name
        'RATE_LIMITED'
        >>> desk.answer(hello, Remedy.NONE, now_ns=1).mode.name
        'STREAM'
    """

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._desks: dict[int, ConsumerDesk] = {}

    def ladder(self, wish: ConsumerHello) -> tuple[Remedy, ...]:
        """What can be done about a consumer, beginning with nothing; only what would make a difference."""
        found, before = [Remedy.NONE], wish
        for remedy in Remedy:
            if remedy in self._setting.section.remedies and self._is_possible(remedy, wish):
                changed = self._changed(wish, remedy)
                if changed != before:
                    found.append(remedy)
                    before = changed
        return tuple(found)

    def answer(self, hello: ConsumerHello, remedy: Remedy, now_ns: int) -> ConsumerConfig:
        """What a consumer is told that wishes this, and for which that was decided."""
        config = self._desk(hello.stream_id).on_hello(self._changed(hello, remedy), now_ns)
        assert config is not None, "a desk answers for its stream"
        return config

    def answer_stranger(self, hello: ConsumerHello, now_ns: int) -> ConsumerConfig:
        """What a consumer is told for whom there is no room: nothing about it is remembered."""
        config = self._make_desk(hello.stream_id, max_consumers=0).on_hello(hello, now_ns)
        assert config is not None, "a desk answers for its stream"
        return config

    def on_qos(self, report: QosConsumer, now_ns: int) -> ConsumerConfig | None:
        """A consumer lives; what it is told if it was thought gone, and lost its streams."""
        desk = self._desks.get(report.stream_id)
        return None if desk is None else desk.on_qos(report, now_ns)

    def expire(self, now_ns: int) -> None:
        """Takes back the streams of those who fell silent."""
        for desk in self._desks.values():
            desk.expire(now_ns)

    def forget(self, key: ConsumerKey) -> None:
        """A consumer is gone."""
        desk = self._desks.get(key[0])
        if desk is not None:
            desk.on_disconnect(key[1])

    def forget_stream(self, stream_id: int) -> None:
        """A stream is gone, and its consumers with it."""
        self._desks.pop(stream_id, None)

    def _desk(self, stream_id: int) -> ConsumerDesk:
        if stream_id not in self._desks:
            most = self._setting.section.max_consumers
            self._desks[stream_id] = self._make_desk(stream_id, max_consumers=most)
        return self._desks[stream_id]

    def _make_desk(self, stream_id: int, *, max_consumers: int) -> ConsumerDesk:
        setting = self._setting
        return ConsumerDesk(
            stream_id,
            descriptor_stream_ids=setting.descriptor_stream_ids,
            control_stream_ids=setting.control_stream_ids,
            interval_ns=setting.report_interval_ns,
            fallback_uri=setting.fallback_uri,
            stale_intervals=setting.section.stale_intervals,
            max_consumers=max_consumers,
        )

    def _is_possible(self, remedy: Remedy, wish: ConsumerHello) -> bool:
        match remedy:
            case Remedy.OWN_STREAM:
                return wish.supports_shm and bool(self._setting.descriptor_stream_ids)
            case Remedy.FALLBACK:
                return wish.supports_shm and bool(self._setting.fallback_uri)
            case _:
                return True

    def _changed(self, wish: ConsumerHello, remedy: Remedy) -> ConsumerHello:
        """The wish as if the consumer had asked for the remedy, and for the allowed ones before it."""
        allowed, steps = self._setting.section.remedies, list(Remedy)
        upto = [step for step in steps[: steps.index(remedy) + 1] if step in allowed]
        if Remedy.RATE_LIMITED in upto:
            wish = msgspec.structs.replace(wish, mode=Mode.RATE_LIMITED)
        if remedy is Remedy.OWN_STREAM and not wish.descriptor_channel:
            ids = self._setting.descriptor_stream_ids
            own = ids[wish.consumer_id % len(ids)] if ids else 0
            wish = msgspec.structs.replace(wish, descriptor_channel=_OWN_CHANNEL, descriptor_stream_id=own)
        if remedy is Remedy.FALLBACK:
            # Descriptors of its own would tell of frames in memory that it no longer reads.
            wish = msgspec.structs.replace(
                wish, supports_shm=False, descriptor_channel="", descriptor_stream_id=0
            )
        return wish
