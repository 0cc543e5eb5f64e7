"""Publications for consumers that have streams of their own."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from tensor_pool.closing import Closing
from tensor_pool.errors import ClosedError
from tensor_pool.pool.pacing import RateGate

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tensor_pool.pool.consumer_desk import Assignment
    from tensor_pool.pool.sessions.agent import ClientAgent
    from tensor_pool.transport import Publication

__all__ = ["PrivateSinks"]


class _Sink:
    """What one consumer has."""

    def __init__(self, agent: ClientAgent, assignment: Assignment) -> None:
        self.assignment = assignment
        self.gate = RateGate(assignment.max_rate_hz)
        self.descriptors = _open(agent, assignment.descriptor)
        self.progress = _open(agent, assignment.control)

    def close(self) -> None:
        for publication in (self.descriptors, self.progress):
            if publication is not None:
                publication.close()


class PrivateSinks(Closing):
    """The publications of all consumers that have some; changed by the agent, used by user threads.

    Args:
        agent: Opens publications.
    """

    def __init__(self, agent: ClientAgent) -> None:
        self._agent = agent
        # Replaced, never changed: user threads go through it without a lock.
        self._sinks: dict[int, _Sink] = {}

    def match(self, assignments: Iterable[Assignment]) -> None:
        """Opens what is assigned and closes what no longer is [WIRE-5-9, WIRE-5-10]."""
        sinks: dict[int, _Sink] = {}
        for assignment in assignments:
            known = self._sinks.get(assignment.consumer_id)
            keeps = known is not None and known.assignment == assignment
            sinks[assignment.consumer_id] = known if keeps and known else _Sink(self._agent, assignment)
        old, self._sinks = self._sinks, sinks
        for sink in old.values():
            if sink not in sinks.values():
                sink.close()

    def send_descriptor(self, message: bytes, timestamp_ns: int) -> None:
        """Sends a descriptor to each consumer whose rate allows it [WIRE-5-13]."""
        now_ns = time.monotonic_ns()
        for sink in self._sinks.values():
            if sink.descriptors is not None and sink.gate.accept(timestamp_ns, now_ns=now_ns):
                _offer(sink.descriptors, message)

    def send_progress(self, message: bytes) -> None:
        """Sends progress to each consumer with a control stream of its own; nothing else goes there."""
        for sink in self._sinks.values():
            if sink.progress is not None:
                _offer(sink.progress, message)

    def close(self) -> None:
        """Closes all of them; may be called again."""
        self.match(())


def _open(agent: ClientAgent, stream: tuple[str, int] | None) -> Publication | None:
    return None if stream is None else agent.open_publication(stream[0], stream[1])


def _offer(publication: Publication, message: bytes) -> None:
    with contextlib.suppress(ClosedError):  # the agent may close it any time
        publication.try_claim(message)
