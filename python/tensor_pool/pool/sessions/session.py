"""What the sessions of producers and consumers have in common: a lease, kept alive, lost and regained."""

from __future__ import annotations

import abc
import logging
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from tensor_pool import wire
from tensor_pool.errors import LeaseLostError, TensorPoolError
from tensor_pool.pool.mapping import untimely
from tensor_pool.pool.sessions.attachment import Attachment, AttachmentState
from tensor_pool.pool.sessions.lease import Granted, Lost, Refused
from tensor_pool.pool.sessions.once import Once
from tensor_pool.runtime.faults import fault_point
from tensor_pool.wire import HEADER_BYTES
from tensor_pool.wire.messages import (
    NewerShmAttachResponse,
    ShmAttachResponse,
    ShmDriverShutdown,
    ShmLeaseRevoked,
    ShmPoolAnnounce,
    StreamResolved,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tensor_pool.config import ShmSection
    from tensor_pool.pool.config import ClientSection
    from tensor_pool.pool.discovering import Surroundings
    from tensor_pool.pool.fallback_uri import ChunkPlace
    from tensor_pool.pool.sessions.agent import ClientAgent
    from tensor_pool.pool.sessions.descriptors import DescriptorFeeds
    from tensor_pool.pool.sessions.fallback import ChunkFeed
    from tensor_pool.pool.sessions.lease import Event, Lease, StreamWish
    from tensor_pool.transport import Header
    from tensor_pool.wire import Message

__all__ = ["Keepalive", "Keepalives", "SessionContext", "StreamSession", "is_gone", "log_refusal"]

_LOG: Final = logging.getLogger(__name__)
_LEASES: Final = logging.getLogger(f"{__name__}.leases")
"""Apart from the other, which leaves out what repeats: the last line must say whether there is a lease."""

_LONGEST_RUN_S: Final = 0.1


class Keepalive(Protocol):
    """A lease that is being kept alive."""

    @property
    def last_sent_ns(self) -> int | None:
        """When the last message went out; None before the first."""
        ...

    def stop(self) -> None:
        """Stops it."""
        ...


class Keepalives(Protocol):
    """Keeps leases alive from a thread that no Python code can hold up (decision L9)."""

    def start(self, message: bytes, *, timestamp_offset: int, period_ns: int) -> Keepalive:
        """Sends `message` now and every period, each time with the present time at `timestamp_offset`."""
        ...


class SessionContext(msgspec.Struct, frozen=True):
    """What all sessions of a connection share."""

    agent: ClientAgent
    keepalives: Keepalives
    section: ClientSection
    shm: ShmSection
    feeds: DescriptorFeeds
    descriptor_stream_ids: range
    """Aeron streams that a producer may give to single consumers for their descriptors."""
    control_stream_ids: range
    """The same for their progress messages."""
    wake: Callable[[], object]
    """Ends the agent's sleep."""
    is_running: Callable[[], bool]
    """Whether the agent still takes work."""

    answers_hellos: bool
    """Whether producers are the authority that answers consumers' hellos (decision D14)."""
    own_stream: Callable[[StreamWish], Attachment]
    """Makes a stream that its producer owns, where there is no driver."""
    surroundings: Surroundings
    """Who knows about other streams and drivers."""
    open_chunks: Callable[[ChunkPlace, int], ChunkFeed]
    """Takes chunks of a stream from a place."""
    chunk_stream_id: int
    """The Aeron stream of chunks where a fallback names none."""

    def attachment(self, wish: StreamWish, kind: type[Attachment] = Attachment) -> Attachment:
        """What asks the driver for a lease."""
        return kind(
            wish,
            ids=self.agent,
            dialect=self.section.attach_dialect,
            keepalive_interval_ns=self.section.keepalive_interval_ns,
            freshness_ns=self.section.announce_freshness_ns,
        )

    def submit(self, work: Callable[[], object]) -> None:
        """Lets `work` run on the agent's thread, soon."""
        self.agent.submit(work)
        self.wake()

    def run(self, work: Callable[[], object]) -> None:
        """Lets `work` run on the agent's thread and waits until it has, unless the agent has ended."""
        done: Once[bool] = Once()

        def work_and_tell() -> None:
            try:
                work()
                done.give(True)
            except BaseException as e:  # raised again where it was asked for
                done.fail(e)

        self.submit(work_and_tell)
        while self.is_running() and done.wait(_LONGEST_RUN_S) is None:
            pass


def _timestamp_offset() -> int:
    layout = wire.compiled_layout("ShmLeaseKeepalive")
    field = next(field for field in layout.fields if field.name == "clientTimestampNs")
    return HEADER_BYTES + field.offset


def is_gone(error: BaseException) -> bool:
    """Whether a file is missing: mostly that of an epoch that is over, and the next one is announced (D7)."""
    return isinstance(error, FileNotFoundError) or "No such file" in str(error)


def log_refusal(label: str, failure: BaseException | None) -> None:
    """Says why the announced memory of a stream can't be used, if so."""
    if failure is not None:
        text = failure.message if isinstance(failure, TensorPoolError) else str(failure)
        level = logging.INFO if is_gone(failure) else logging.WARNING
        _LOG.log(level, "can't use the announced memory of stream %s: %s", label, text)


class StreamSession(abc.ABC):
    """One stream of one program. Everything but `ready` belongs to the agent's thread.

    Args:
        context: The connection.
        wish: Which stream, in which role.
        attachment: What stands in the place of a lease from the driver, for streams without one.
    """

    def __init__(
        self, context: SessionContext, wish: StreamWish, attachment: Attachment | None = None
    ) -> None:
        self.context = context
        self.wish = wish
        self.agent = context.agent
        self.attachment = context.attachment(wish) if attachment is None else attachment
        self.ready: Once[bool] = Once()
        """Given when the driver has answered: with a lease, or that the stream isn't there yet."""
        self.lease_losses = 0
        self.reconnects = 0
        self.loss_reason = ""
        self._keepalive: Keepalive | None = None
        self._followed: int | None = None
        self._due_ns = 0

    # --- what a role adds ---------------------------------------------------------------------------

    @abc.abstractmethod
    def open_ring(self, lease: Lease, now_ns: int) -> None:
        """Maps the ring of a new lease; raises if it can't."""

    @abc.abstractmethod
    def drop_ring(self, reason: str) -> None:
        """Stops using the ring at once [DRV-4.7-6]."""

    @abc.abstractmethod
    def on_stream_message(self, message: Message, header: Header, now_ns: int) -> None:
        """Takes a message about the stream."""

    @abc.abstractmethod
    def work(self, now_ns: int) -> int:
        """Does what is due; says when the next thing will be."""

    # --- the session ------------------------------------------------------------------------------------

    @property
    def base_dirs(self) -> Sequence[str]:
        """Below which regions are accepted."""
        return self.context.shm.base_dirs

    def step(self, now_ns: int) -> None:
        """Sends what is due, and lets the role do its part."""
        sent_ns = None if self._keepalive is None else self._keepalive.last_sent_ns
        messages, events = self.attachment.step(now_ns, sent_ns)
        for message in messages:
            self.agent.send(message, answer_to=self)
            if self.attachment.state is AttachmentState.ATTACHING:
                self._fault_point("attach_sent")
        self._apply(events, now_ns)
        self._follow()
        if self.attachment.state is AttachmentState.WAITING:
            self.ready.give(False)
        self._due_ns = min(self.attachment.due_ns, self.work(now_ns))

    def is_due(self, now_ns: int) -> bool:
        """Whether it wants a turn though nothing came for it."""
        return now_ns >= self._due_ns

    def on_message(self, message: Message, header: Header, now_ns: int) -> bool:
        """Takes a message about the stream, or an answer; says whether the attachment moved by it."""
        before = self.attachment.state
        match message:
            case StreamResolved():
                self._apply(self.attachment.on_resolved(message, now_ns), now_ns)
            case ShmAttachResponse() | NewerShmAttachResponse():
                self._apply(self.attachment.on_attach_response(message, now_ns), now_ns)
            case ShmDriverShutdown():
                self._apply(self.attachment.on_shutdown(message, now_ns), now_ns)
            case ShmLeaseRevoked():
                self._apply(self.attachment.on_revoked(message, now_ns), now_ns)
                self.on_stream_message(message, header, now_ns)
            case ShmPoolAnnounce():
                if self.is_fresh(message, header, now_ns):
                    self._apply(self.attachment.on_announce(message, now_ns, header.session_id), now_ns)
                self.on_stream_message(message, header, now_ns)
            case _:
                self.on_stream_message(message, header, now_ns)
        return self.attachment.state is not before

    def is_fresh(self, announce: ShmPoolAnnounce, header: Header, now_ns: int) -> bool:
        """Whether an announce is about the present, and not about an earlier run (decision L11)."""
        reason = untimely(
            announce,
            received_ns=now_ns,
            join_time_ns=self.agent.join_time_ns(header) or 0,
            realtime_ns=self.agent.clock.realtime_ns(),
            freshness_ns=self.context.section.announce_freshness_ns,
        )
        return reason is None

    def on_client_lost(self, error: BaseException) -> None:
        """The connection is gone: so is everything that came over it."""
        self._stop_keepalive()
        self.drop_ring(str(error))
        self.ready.fail(error)

    def close(self) -> None:
        """Gives the lease back."""
        self._stop_keepalive()
        self.drop_ring("closed")
        self._fault_point("in_detach")
        for message in self.attachment.detach():
            self.agent.send(message)
        self.agent.remove(self)

    def lost_error(self) -> LeaseLostError:
        """Why there is no lease."""
        refusal = (
            f"; the driver now says {self.attachment.last_refusal}" if self.attachment.last_refusal else ""
        )
        return LeaseLostError(
            f"no lease on stream {self.wish.label}: {self.loss_reason or 'no driver answers'}{refusal}",
            hint="is the driver running? `tpool driver status` tells",
        )

    def _apply(self, events: Sequence[Event], now_ns: int) -> None:
        for event in events:
            match event:
                case Granted(lease):
                    self._granted(lease, now_ns)
                case Lost(lease, reason):
                    self.lease_losses += 1
                    self.loss_reason = reason
                    self._stop_keepalive()
                    self.drop_ring(reason)
                    _LEASES.warning(
                        "lost the lease on stream %s: %s; asking for another", self.wish.label, reason
                    )
                case Refused(error):
                    self.ready.fail(error)
                    self.loss_reason = error.message

    def _granted(self, lease: Lease, now_ns: int) -> None:
        self._fault_point("lease_got")
        self._follow()
        if lease.lease_id:
            self._keepalive = self.context.keepalives.start(
                wire.encode(lease.keepalive()),
                timestamp_offset=_timestamp_offset(),
                period_ns=lease.keepalive_period_ns(self.context.section.keepalive_interval_ns),
            )
        try:
            self.open_ring(lease, now_ns)
        except TensorPoolError as e:
            self._cannot_open(e, now_ns)
            return
        self._fault_point("mapped")
        if self.lease_losses:
            self.reconnects += 1
            _LEASES.warning("has a lease on stream %s again, epoch %d", self.wish.label, lease.epoch)
        self.ready.give(True)

    def _cannot_open(self, error: TensorPoolError, now_ns: int) -> None:
        """The lease is of no use; a file that is gone means that the next epoch is on its way (D7)."""
        if not is_gone(error) and not self.lease_losses:
            self.ready.fail(error)
            self.close()
            return
        self._apply(self.attachment.lose(f"its memory can't be used: {error.message}", now_ns), now_ns)

    def _fault_point(self, step: str) -> None:
        fault_point(f"{self.wish.role.name.lower()}.{step}")

    def _follow(self) -> None:
        if self.attachment.stream_id != self._followed and self.attachment.stream_id:
            self._followed = self.attachment.stream_id
            self.agent.follow(self._followed, self)

    def _stop_keepalive(self) -> None:
        if self._keepalive is not None:
            self._keepalive.stop()
            self._keepalive = None
