"""Ending the driver by message: off unless a token is configured (decision D10)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tensor_pool.driver.admin import same_token
from tensor_pool.wire.messages import ControlResponse, ResponseCode, ShutdownReason

if TYPE_CHECKING:
    from tensor_pool.driver.answers import Moment
    from tensor_pool.driver.config import DriverSection
    from tensor_pool.wire.messages import ShmDriverShutdownRequest

__all__ = ["ShutdownDesk"]

_REMEMBERED: Final = 16


class ShutdownDesk:
    """Answers requests to end the driver, and knows when it is to end.

    Args:
        section: The token and the time to drain.
        granted: Correlation ids of requests that earlier runs granted. A media driver replays the last
            messages of a client that is gone to whoever comes; such a request must not end the next driver
            too (decision L11).

    Example:
        >>> from tensor_pool.driver.answers import Moment
        >>> from tensor_pool.driver.config import DriverSection
        >>> from tensor_pool.wire.messages import ShmDriverShutdownRequest
        >>> desk = ShutdownDesk(DriverSection(shutdown_token="secret", shutdown_drain_ms=1))
        >>> request = ShmDriverShutdownRequest(correlation_id=5, reason=ShutdownReason.ADMIN, token="secret")
        >>> desk.request(request, Moment(0, 0)).code.name, desk.is_over(999_999), desk.is_over(1_000_000)
        ('OK', False, True)
    """

    def __init__(self, section: DriverSection, granted: tuple[int, ...] = ()) -> None:
        self._token = section.shutdown_token
        self._drain_ns = section.shutdown_drain_ms * 1_000_000
        self._ends_at_ns: int | None = None
        self.granted = granted
        self.reason = ShutdownReason.NORMAL
        """What the notice says when the driver ends."""
        self.text = ""

    @property
    def is_draining(self) -> bool:
        """Whether the driver is to end."""
        return self._ends_at_ns is not None

    def is_over(self, now_ns: int) -> bool:
        """Whether the time to end has come."""
        return self._ends_at_ns is not None and now_ns >= self._ends_at_ns

    def request(self, request: ShmDriverShutdownRequest, now: Moment) -> ControlResponse | None:
        """Answers a request; None for one that ended an earlier run."""
        if request.correlation_id in self.granted:
            if not self.is_draining:
                return None
            return _answer(request, ResponseCode.OK)
        if not self._token:
            return _answer(request, ResponseCode.UNSUPPORTED, "driver.shutdown_token is not configured")
        if not same_token(request.token, self._token):  # [DRV-4.12-3]
            return _answer(request, ResponseCode.REJECTED, "the token is not that of driver.shutdown_token")
        self.granted = (*self.granted, request.correlation_id)[-_REMEMBERED:]
        if not self.is_draining:
            self._ends_at_ns = now.monotonic_ns + self._drain_ns
            self.reason = request.reason
            self.text = request.error_message
        return _answer(request, ResponseCode.OK)


def _answer(request: ShmDriverShutdownRequest, code: ResponseCode, text: str = "") -> ControlResponse:
    return ControlResponse(correlation_id=request.correlation_id, code=code, error_message=text)
