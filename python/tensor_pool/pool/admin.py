"""Questions to a running SHM driver: what it serves, who holds leases, how it is; and ending a lease.

These are the requests of schema 906 (decision D17), sent and answered on the driver's control stream. That
stream is untethered and may lose a message, so a request is repeated until its answer comes; the driver does
a repeated request only once, because its correlation id stays the same.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from tensor_pool import wire
from tensor_pool.closing import Closing
from tensor_pool.errors import NoDriverError, TensorPoolError
from tensor_pool.runtime import SystemClock
from tensor_pool.wire.messages import (
    DriverStatus,
    GetDriverStatus,
    LeaseEntry,
    LeaseRevokeResult,
    LeasesListed,
    ListLeases,
    ListStreams,
    ResponseCode,
    RevokeLease,
    StreamEntry,
    StreamsListed,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensor_pool.config import StreamsSection
    from tensor_pool.runtime import Clock
    from tensor_pool.transport import Client

__all__ = ["AdminClient"]

_NS_PER_S: Final = 1_000_000_000
_REPEAT_NS: Final = 100_000_000
_PAUSE_S: Final = 0.002
_PAGE: Final = 1_000
_MOST_ENTRIES: Final = 1_000_000
"""A driver that claims to have more is not believed: a listing must end."""


class _Answer(Protocol):
    """What all answers of schema 906 have in common."""

    @property
    def correlation_id(self) -> int: ...
    @property
    def client_id(self) -> int: ...
    @property
    def code(self) -> ResponseCode: ...
    @property
    def error_message(self) -> str: ...


AnswerT = TypeVar("AnswerT", bound=_Answer)


class AdminClient(Closing):
    """Asks the SHM driver of a control stream. Not for several threads at once.

    Args:
        client: The connection to the media driver; stays open when this is closed.
        streams: Where the driver listens.
        timeout_s: How long to wait for each answer.
        clock: What time-outs are measured with.
        pause: Called between two looks for an answer; sleeps for a moment by default.

    Example:
        >>> from tensor_pool.config import StreamsSection
        >>> from tensor_pool.transport.memory import MemoryBus
        >>> with AdminClient(MemoryBus().client(), StreamsSection(), timeout_s=0.01) as admin:
        ...     admin.status()
        Traceback (most recent call last):
        tensor_pool.errors.NoDriverError: no SHM driver answers on stream 1000 of aeron:ipc within 0.01 s
          try: start one with `tpool up`; `tpool doctor` says what is missing
    """

    def __init__(
        self,
        client: Client,
        streams: StreamsSection,
        *,
        timeout_s: float = 2.0,
        clock: Clock | None = None,
        pause: Callable[[], object] | None = None,
    ) -> None:
        self._clock = clock if clock is not None else SystemClock()
        self._pause = pause if pause is not None else lambda: time.sleep(_PAUSE_S)
        self._timeout_s = timeout_s
        self._where = f"stream {streams.control_stream_id} of {streams.control_channel}"
        # Nobody else's answer can be taken for ours, not even one of an earlier run (decision L11).
        self._client_id = int.from_bytes(os.urandom(4), "little") or 1
        self._last_correlation_id = int.from_bytes(os.urandom(7), "little")
        self._answer: Any = None
        self._router = wire.Router()
        for kind in (DriverStatus, StreamsListed, LeasesListed, LeaseRevokeResult):
            self._router.on(kind, self._on_answer)
        self._subscription = client.add_subscription(streams.control_channel, streams.control_stream_id)
        self._publication = client.add_publication(streams.control_channel, streams.control_stream_id)

    @property
    def counts(self) -> wire.RouterCounts:
        """What became of everything that was heard on the control stream."""
        return self._router.counts

    def status(self) -> DriverStatus:
        """What the driver is, does and allows.

        Raises:
            NoDriverError: Nobody answers.
        """
        request = GetDriverStatus(correlation_id=self._next_correlation_id(), client_id=self._client_id)
        return self._ask(request, DriverStatus)

    def streams(self) -> list[StreamEntry]:
        """All streams, in order of their ids.

        Raises:
            NoDriverError: Nobody answers.
        """
        found: list[StreamEntry] = []
        while len(found) < _MOST_ENTRIES:
            page = self._ask(
                ListStreams(
                    correlation_id=self._next_correlation_id(),
                    client_id=self._client_id,
                    offset=len(found),
                    max_results=_PAGE,
                ),
                StreamsListed,
            )
            found += page.streams
            if not page.streams or len(found) >= page.total_count:
                break
        return found

    def leases(self, stream_id: int | None = None) -> list[LeaseEntry]:
        """The leases of one stream or of all, in order of their ids.

        Raises:
            NoDriverError: Nobody answers.
        """
        found: list[LeaseEntry] = []
        while len(found) < _MOST_ENTRIES:
            page = self._ask(
                ListLeases(
                    correlation_id=self._next_correlation_id(),
                    client_id=self._client_id,
                    stream_id=stream_id,
                    offset=len(found),
                    max_results=_PAGE,
                ),
                LeasesListed,
            )
            found += page.leases
            if not page.leases or len(found) >= page.total_count:
                break
        return found

    def revoke(self, stream_id: int, lease_id: int, *, token: str = "", reason: str = "") -> None:
        """Ends a lease; its holder is told.

        Args:
            stream_id: The stream it is for.
            lease_id: The lease.
            token: The administration token, where the driver has one.
            reason: What the holder is told.

        Raises:
            NoDriverError: Nobody answers.
            TensorPoolError: The driver refuses: there is no such lease, or the token is wrong.
        """
        request = RevokeLease(
            correlation_id=self._next_correlation_id(),
            client_id=self._client_id,
            stream_id=stream_id,
            lease_id=lease_id,
            token=token,
            reason=reason,
        )
        self._ask(request, LeaseRevokeResult)

    def close(self) -> None:
        """Closes both ends; may be called again."""
        self._publication.close()
        self._subscription.close()

    def _ask(self, request: wire.Message, answer_type: type[AnswerT]) -> AnswerT:
        encoded = wire.encode(request)
        self._answer = None
        now_ns = self._clock.monotonic_ns()
        deadline_ns, send_at_ns = now_ns + round(self._timeout_s * _NS_PER_S), now_ns
        while now_ns < deadline_ns:
            if now_ns >= send_at_ns:
                # How it ends does not matter: nobody may be there yet, and it is sent again.
                self._publication.offer(encoded)
                send_at_ns = now_ns + _REPEAT_NS
            self._subscription.poll(lambda message, _: self._router.dispatch(message), 100)
            if isinstance(self._answer, answer_type):
                return self._checked(self._answer)
            self._pause()
            now_ns = self._clock.monotonic_ns()
        raise NoDriverError(
            f"no SHM driver answers on {self._where} within {self._timeout_s:g} s",
            hint="start one with `tpool up`; `tpool doctor` says what is missing",
        )

    def _on_answer(self, answer: Any) -> None:
        # The stream is shared: other clients' answers pass by here too (decision D13).
        if (answer.client_id, answer.correlation_id) == (self._client_id, self._last_correlation_id):
            self._answer = answer

    def _next_correlation_id(self) -> int:
        self._last_correlation_id += 1
        return self._last_correlation_id

    def _checked(self, answer: AnswerT) -> AnswerT:
        if answer.code == ResponseCode.OK:
            return answer
        raise TensorPoolError(
            f"the SHM driver answers {answer.code.name}: {answer.error_message or 'no reason given'}",
            where=self._where,
            hint="`tpool leases` and `tpool streams` list what there is",
        )
