"""Sends messages in their order, and keeps for a moment what can't be sent at once."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final

from tensor_pool.errors import AeronClientLostError, ClosedError, NoMediaDriverError, TransportError
from tensor_pool.runtime.repeats import limit_repeats
from tensor_pool.transport.backpressure import OfferResult
from tensor_pool.wire import encode

if TYPE_CHECKING:
    from tensor_pool.runtime import Counter
    from tensor_pool.transport.protocol import Publication
    from tensor_pool.wire import Message

__all__ = ["Outbox"]

_LOG: Final = limit_repeats(logging.getLogger(__name__))
_CAPACITY: Final = 4_096
_AGAIN: Final = frozenset({OfferResult.BACK_PRESSURED, OfferResult.ADMIN_ACTION})


class Outbox:
    """What is to be sent on one publication.

    Back-pressure lasts at most as long as a stuck subscriber is waited for, a tenth of a second. What meets
    it waits here and goes out first in the next duty cycle; when too much waits, the newest is given up and
    counted: answers are asked for again, announces come again.

    Args:
        publication: Where to send.
        unsent: Counts what is given up.

    Example:
        >>> from tensor_pool.runtime import CounterType, LocalCounters
        >>> from tensor_pool.transport.memory import MemoryBus
        >>> from tensor_pool.wire.messages import GetDriverStatus
        >>> bus = MemoryBus()
        >>> listener = bus.client().add_subscription("aeron:ipc", 1000)
        >>> unsent = LocalCounters().create(CounterType.DRIVER_UNSENT, "unsent")
        >>> outbox = Outbox(bus.client().add_publication("aeron:ipc", 1000), unsent)
        >>> bus.hold_back("aeron:ipc", 1000)
        >>> outbox.send(GetDriverStatus(correlation_id=1, client_id=7))
        >>> bus.hold_back("aeron:ipc", 1000, on=False)
        >>> len(listener.receive()), outbox.flush(), len(listener.receive())
        (0, 1, 1)
    """

    def __init__(self, publication: Publication, unsent: Counter) -> None:
        self.publication = publication
        self._unsent = unsent
        self._waiting: deque[bytes] = deque()

    def send(self, message: Message | bytes) -> None:
        """Sends a message, which may have been encoded before, behind those that wait."""
        data = message if isinstance(message, bytes) else encode(message)
        if not self._waiting and self._is_done(data):
            return
        if len(self._waiting) >= _CAPACITY:
            self._unsent.add()
        else:
            self._waiting.append(data)

    def flush(self) -> int:
        """Sends what waits, as far as possible; says how much was done."""
        done = 0
        while self._waiting and self._is_done(self._waiting[0]):
            self._waiting.popleft()
            done += 1
        return done

    def _is_done(self, data: bytes) -> bool:
        try:
            return self.publication.offer(data) not in _AGAIN
        except (ClosedError, NoMediaDriverError, AeronClientLostError):
            raise
        except TransportError as e:  # this message can't be sent; the next one can
            self._unsent.add()
            _LOG.warning("a message can't be sent: %s", e.message)
            return True
