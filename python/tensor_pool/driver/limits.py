"""Limits against clients that run away: each refusal says which one, and its number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tensor_pool.channels import format_size
from tensor_pool.driver.answers import Refusal
from tensor_pool.wire.messages import ResponseCode

if TYPE_CHECKING:
    from tensor_pool.driver.config import DriverSection
    from tensor_pool.driver.leases import LeaseBook
    from tensor_pool.pool.sizing import Geometry

__all__ = ["FairBucket", "Limits", "TokenBucket"]

_NS_PER_S: Final = 1_000_000_000
_REMEMBERED: Final = 1_024
"""Clients whose requests are counted each for itself; who has not asked for longest is forgotten."""


class TokenBucket:
    """Lets so many things a second happen, and as many at once.

    Args:
        per_second: How many.

    Example:
        >>> bucket = TokenBucket(per_second=2)
        >>> [bucket.take(now_ns) for now_ns in (0, 0, 0, 500_000_000, 500_000_000)]
        [True, True, False, True, False]
    """

    __slots__ = ("_cost_ns", "_free_at_ns")

    def __init__(self, per_second: int) -> None:
        self._cost_ns = _NS_PER_S // per_second
        self._free_at_ns = -_NS_PER_S  # a bucket starts full

    def take(self, now_ns: int) -> bool:
        """Whether one more may happen now."""
        free_at_ns = max(self._free_at_ns, now_ns - _NS_PER_S)
        if free_at_ns + self._cost_ns > now_ns:
            return False
        self._free_at_ns = free_at_ns + self._cost_ns
        return True


class FairBucket:
    """Lets so many things a second happen, and a tenth more for those who rarely ask.

    One who asks without end takes all that there is for everybody; the tenth is out of its reach.

    Args:
        per_second: How many.

    Example:
        >>> bucket = FairBucket(per_second=10)
        >>> sum(bucket.take(who=1, now_ns=0) for _ in range(100))
        10
        >>> bucket.take(who=2, now_ns=0), bucket.take(who=2, now_ns=0)
        (True, False)
    """

    def __init__(self, per_second: int) -> None:
        self._share = max(1, per_second // 10)
        self._everybodys = TokenBucket(per_second)
        self._reserve = TokenBucket(self._share)
        self._own: dict[int, TokenBucket] = {}

    def take(self, who: int, now_ns: int) -> bool:
        """Whether one more may happen now, for one of many."""
        own = self._own.pop(who, None) or TokenBucket(self._share)
        self._own[who] = own  # the last who asked comes last
        if len(self._own) > _REMEMBERED:
            del self._own[next(iter(self._own))]
        is_modest = own.take(now_ns)
        return self._everybodys.take(now_ns) or (is_modest and self._reserve.take(now_ns))


class Limits:
    """The limits of the section `driver`.

    Args:
        section: Their numbers.

    Example:
        >>> from tensor_pool.driver.config import DriverSection
        >>> try:
        ...     Limits(DriverSection(max_streams=1)).check_streams(1)
        ... except Refusal as refusal:
        ...     print(refusal.text)
        the driver serves 1 streams, the limit driver.max_streams is 1
    """

    def __init__(self, section: DriverSection) -> None:
        self._section = section
        self._attaches = FairBucket(section.max_attaches_per_second)
        self._new_streams = TokenBucket(section.max_new_streams_per_second)

    def check_attach_rate(self, session_id: int, now_ns: int) -> None:
        """One more attach request, of whoever publishes in this session.

        Raises:
            Refusal: They come too fast.
        """
        if not self._attaches.take(session_id, now_ns):
            limit = self._section.max_attaches_per_second
            raise _rejected(
                f"more than driver.max_attaches_per_second = {limit} attach requests; try again in a second"
            )

    def check_new_stream(self, unclaimed: int, now_ns: int) -> None:
        """One more name or id that somebody asks for, and that nobody has attached to yet.

        Raises:
            Refusal: They come too fast, or too many wait for an attach: asking costs nothing, so that a
                client could fill the driver's table with names.
        """
        if not self._new_streams.take(now_ns):
            limit = self._section.max_new_streams_per_second
            raise _rejected(
                f"more than driver.max_new_streams_per_second = {limit} new streams; try again in a second"
            )
        if unclaimed >= self._section.max_unclaimed_streams:
            raise _rejected(
                f"{unclaimed} streams were asked for that nobody attached to, the limit "
                f"driver.max_unclaimed_streams is {self._section.max_unclaimed_streams}"
            )

    def check_leases(self, leases: LeaseBook, stream_id: int) -> None:
        """One more lease.

        Raises:
            Refusal: There are too many, of this stream or in all.
        """
        if len(leases) >= self._section.max_leases:
            raise _rejected(
                f"{len(leases)} leases are active, the limit driver.max_leases is {self._section.max_leases}"
            )
        count = leases.count_of_stream(stream_id)
        if count >= self._section.max_leases_per_stream:
            raise _rejected(
                f"stream {stream_id} has {count} leases, the limit driver.max_leases_per_stream is "
                f"{self._section.max_leases_per_stream}"
            )

    def check_streams(self, count: int) -> None:
        """One more stream.

        Raises:
            Refusal: There are too many.
        """
        if count >= self._section.max_streams:
            raise _rejected(
                f"the driver serves {count} streams, the limit driver.max_streams is "
                f"{self._section.max_streams}"
            )

    def check_bytes(self, geometry: Geometry, total_bytes: int, ended_bytes: int = 0) -> None:
        """One more epoch.

        Args:
            geometry: Its slots.
            total_bytes: What all others take.
            ended_bytes: What those of them take that have ended and go by themselves: a producer that was
                started again meets its own.

        Raises:
            Refusal: It is too large, or all together are.
        """
        need = geometry.region_bytes
        per_stream, total = self._section.max_stream_bytes, self._section.max_total_bytes
        if per_stream and need > per_stream:
            raise _rejected(
                f"the stream needs {need} bytes, the limit driver.max_stream_bytes is "
                f"{format_size(per_stream)}"
            )
        if total and total_bytes + need > total:
            soon = f" ({ended_bytes} of them by epochs that have ended and go soon)" if ended_bytes else ""
            raise _rejected(
                f"the stream needs {need} bytes beside {total_bytes} in use{soon}, the limit "
                f"driver.max_total_bytes is {format_size(total)}"
            )


def _rejected(text: str) -> Refusal:
    return Refusal(ResponseCode.REJECTED, text)
