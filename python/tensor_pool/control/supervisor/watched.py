"""One stream and one consumer as a supervisor knows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from tensor_pool.control.supervisor.judging import Standing
from tensor_pool.wire.messages import ConsumerHello, Mode

if TYPE_CHECKING:
    from tensor_pool.control.supervisor.samples import Samples
    from tensor_pool.wire.messages import ConsumerConfig, QosConsumer, ShmPoolAnnounce

__all__ = ["ConsumerKey", "StreamState", "WatchedConsumer", "WatchedStream"]

ConsumerKey = tuple[int, int]
"""Stream id and consumer id: ids of consumers are unique in a stream only."""
StreamState = Literal["live", "waiting", "dead"]


class WatchedStream:
    """A stream that is announced.

    Args:
        announce: Its last announce.
        announcer_id: The session that it came from.
        now_ns: When that came.
    """

    __slots__ = (
        "activity_ns",
        "announce",
        "announcer_id",
        "attributes",
        "heard_ns",
        "meta_version",
        "name",
        "reported_ns",
        "session_id",
        "state",
        "why",
    )

    def __init__(self, announce: ShmPoolAnnounce, announcer_id: int, now_ns: int) -> None:
        self.announce = announce
        self.announcer_id = announcer_id
        self.heard_ns = now_ns
        self.name = ""
        self.meta_version: int | None = None
        self.attributes: tuple[str, ...] = ()
        self.reported_ns: int | None = None
        """When its producer reported last in this epoch."""
        self.session_id: int | None = None
        """Who reports as its producer."""
        self.activity_ns: int | None = None
        """When its memory was last kept alive; None when that can't be read."""
        self.state: StreamState = "waiting"
        self.why = ""

    def begin_epoch(self, announce: ShmPoolAnnounce) -> None:
        """What was reported of another epoch says nothing of this one."""
        self.announce = announce
        self.reported_ns = self.session_id = self.activity_ns = None


class WatchedConsumer:
    """A consumer that said hello or reported.

    Args:
        key: Who it is.
        samples: Where its reports go.
        now_ns: When it was first heard.
    """

    __slots__ = (
        "heard_ns",
        "hello",
        "hello_session_id",
        "key",
        "report",
        "reported_ns",
        "samples",
        "session_id",
        "standing",
        "told",
    )

    def __init__(self, key: ConsumerKey, samples: Samples, now_ns: int) -> None:
        self.key = key
        self.samples = samples
        self.heard_ns = now_ns
        self.hello: ConsumerHello | None = None
        self.hello_session_id: int | None = None
        self.report: QosConsumer | None = None
        self.reported_ns: int | None = None
        self.session_id: int | None = None
        self.standing = Standing(since_ns=now_ns)
        self.told: ConsumerConfig | None = None
        """What it was told last."""

    @property
    def wish(self) -> ConsumerHello:
        """What it asks for; for those who never say hello, what everybody gets."""
        return self.hello or ConsumerHello(
            stream_id=self.key[0],
            consumer_id=self.key[1],
            supports_shm=True,
            supports_progress=False,
            mode=Mode.STREAM if self.report is None else self.report.mode,
        )

    @property
    def mode(self) -> Mode:
        """What it does, as far as is known."""
        return self.wish.mode if self.report is None else self.report.mode
