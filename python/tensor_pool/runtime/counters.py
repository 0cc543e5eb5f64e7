"""Counters of agents: one table of types, cells from a factory.

Agents ask a `CounterFactory` for their cells. The default keeps them in the process; the transport's factory
makes each an Aeron counter, so that any process and Aeron's own tools can read them [WIRE-15.16-2].

Type ids: Aeron keeps everything below 1000 for itself (driver and client 0-99, archive 100-199, cluster
200-299, ...) and leaves the rest to applications. Ours start at 4000, above the low thousands that other
applications on the same media driver tend to pick, and each package has its own hundred:

====  ==============================
4000  agents and their runners
4100  messages and transport
4200  producers
4300  consumers
4400  SHM driver
4500  bridge
4600  discovery
4700  service control and supervisor
4800  recorder
====  ==============================
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, Protocol

from tensor_pool.closing import Closing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["FIRST_TYPE_ID", "Counter", "CounterFactory", "CounterSet", "CounterType", "LocalCounters"]

FIRST_TYPE_ID: Final = 4000


@enum.unique
class CounterType(enum.Enum):
    """Every kind of counter there is: its Aeron type id, its name and what it counts.

    Example:
        >>> CounterType.AGENT_ERRORS.type_id, CounterType.AGENT_ERRORS.label
        (4002, 'errors')
    """

    AGENT_CYCLES = 4000, "cycles", "Duty cycles that the agent has run."
    AGENT_WORK = 4001, "work", "Items of work that the agent has done: messages, frames, expired timers."
    AGENT_ERRORS = 4002, "errors", "Duty cycles that ended with an exception."
    AGENT_OVERRUNS = 4003, "cycle overruns", "Duty cycles that took longer than the runner allows."
    AGENT_LONGEST_CYCLE = 4004, "longest cycle ns", "The longest duty cycle, in nanoseconds."

    DRIVER_LEASES = 4400, "leases", "Leases that are active now."
    DRIVER_ATTACHES = 4401, "attaches", "Leases that were granted."
    DRIVER_LEASES_DETACHED = 4402, "leases detached", "Leases that their clients gave back."
    DRIVER_LEASES_EXPIRED = 4403, "leases expired", "Leases that ended because no keepalive came."
    DRIVER_LEASES_REVOKED = 4404, "leases revoked", "Leases that were ended by administration."
    DRIVER_REFUSED_UNSUPPORTED = 4405, "refused: unsupported", "Requests answered UNSUPPORTED."
    DRIVER_REFUSED_INVALID = 4406, "refused: invalid params", "Requests answered INVALID_PARAMS."
    DRIVER_REFUSED_REJECTED = 4407, "refused: rejected", "Requests answered REJECTED."
    DRIVER_REFUSED_INTERNAL = 4408, "refused: internal error", "Requests answered INTERNAL_ERROR."
    DRIVER_KEEPALIVES = 4409, "keepalives", "Keepalives that extended a lease."
    DRIVER_KEEPALIVES_UNKNOWN = 4410, "unknown keepalives", "Keepalives that matched no active lease."
    DRIVER_EPOCHS = 4411, "epochs", "Epochs that were made."
    DRIVER_EPOCHS_COLLECTED = 4412, "epochs collected", "Ended epochs whose files were removed."
    DRIVER_ANNOUNCES = 4413, "announces", "Announces that were made."
    DRIVER_STREAMS = 4414, "streams", "Streams that the driver knows now."
    DRIVER_REGION_BYTES = 4415, "region bytes", "Memory that all epochs take now."
    DRIVER_MALFORMED = 4416, "malformed messages", "Messages to the driver that could not be decoded."
    DRIVER_UNSENT = 4417, "unsent messages", "Messages given up because nobody took them."
    DRIVER_STALLS = 4418, "stalls", "Times that the driver itself did not run for a keepalive interval."

    BRIDGE_FRAMES_SENT = 4500, "frames sent", "Frames that were sent as a whole."
    BRIDGE_CHUNKS_SENT = 4501, "chunks sent", "Chunks that were sent."
    BRIDGE_BYTES_SENT = 4502, "bytes sent", "Payload bytes of frames that were sent as a whole."
    BRIDGE_FRAMES_UNSENT = 4503, "frames not sent", "Frames that were not sent as a whole, for one reason."
    BRIDGE_FRAMES = 4504, "frames received", "Frames that were put together and shown."
    BRIDGE_CHUNKS = 4505, "chunks received", "Chunks that came."
    BRIDGE_BYTES = 4506, "bytes received", "Payload bytes of frames that were put together."
    BRIDGE_FRAMES_LOST = 4507, "frames lost", "Frames that were given up, for one reason."
    BRIDGE_CHUNKS_UNUSED = 4508, "chunks unused", "Chunks that no frame was made of, for one reason."
    BRIDGE_ASSEMBLIES = 4509, "assemblies", "Frames that are being put together now."
    BRIDGE_ASSEMBLY_BYTES = 4510, "assembly bytes", "Payload bytes of frames that are being put together."
    BRIDGE_ASSEMBLY_NS = (
        4511,
        "assembly ns",
        "How long the last frame took, from its first chunk to its last.",
    )
    BRIDGE_FRAMES_THINNED = 4512, "frames thinned", "Frames left out to keep to the rate of a mapping."
    BRIDGE_ERROR = 4513, "error", "Exists while a mapping carries nothing; its label says why."
    BRIDGE_COUNTED_NS = (
        4514,
        "counted ns",
        "When the counters of a mapping were written, by the monotonic clock.",
    )

    DISCOVERY_QUERIES = 4600, "queries", "Queries that were answered."
    DISCOVERY_DROPPED = 4601, "queries dropped", "Queries that could not be answered, for one reason."
    DISCOVERY_UNSENT = 4602, "answers unsent", "Answers that nobody took in time."
    DISCOVERY_STREAMS = 4603, "streams known", "Streams that the provider knows now."
    DISCOVERY_REFUSED = 4604, "announces refused", "Announces that were not taken, for one reason."

    CONTROL_ACCEPTED = 4700, "commands accepted", "Commands that a service carried out and echoed."
    CONTROL_REFUSED = 4701, "commands refused", "Commands that a service did not accept, for one reason."
    CONTROL_UNSENT = 4702, "events unsent", "Echoes and status that could not be sent."

    SUPERVISOR_STREAMS = 4750, "streams watched", "Streams that the supervisor watches now."
    SUPERVISOR_CONSUMERS = 4751, "consumers watched", "Consumers that the supervisor watches now."
    SUPERVISOR_DECISIONS = 4752, "decisions", "Times that it decided to move a consumer."
    SUPERVISOR_CONFIGS = 4753, "consumers told", "Messages that told a consumer how to read."
    SUPERVISOR_UNSENT = 4754, "configs unsent", "Such messages that nobody took."
    SUPERVISOR_REFUSED = 4755, "messages refused", "Messages that were not taken, for one reason."

    def __init__(self, type_id: int, label: str, doc: str) -> None:
        self.type_id = type_id
        self.label = label
        self.doc = doc


class Counter(Protocol):
    """One 64-bit cell with a single writer; anybody may read it at any time.

    No method ever raises: a cell that was closed, or whose media driver is gone, keeps counting for nobody.
    An agent must not fail because of what it counts with.
    """

    @property
    def value(self) -> int:
        """The present value."""
        ...

    def add(self, amount: int = 1, /) -> None:
        """Raise the value."""
        ...

    def set(self, value: int, /) -> None:
        """Replace the value."""
        ...

    def close(self) -> None:
        """Give the cell back; may be called twice."""
        ...


class CounterFactory(Protocol):
    """Where cells come from."""

    def create(self, kind: CounterType, label: str, *, key: bytes = b"") -> Counter:
        """Make a cell that starts at 0.

        Args:
            kind: What is counted.
            label: What people read; unique for its owner, for instance ``driver: errors``.
            key: What programs look for, for instance a stream id.
        """
        ...


class _LocalCounter:
    """A cell in this process: a plain integer, because a counter has one writer."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def add(self, amount: int = 1, /) -> None:
        self.value += amount

    def set(self, value: int, /) -> None:
        self.value = value

    def close(self) -> None:
        """Nothing to give back."""


class LocalCounters:
    """The factory of cells that only this process sees.

    Example:
        >>> frames = LocalCounters().create(CounterType.AGENT_WORK, "camera: work")
        >>> frames.add(); frames.add(2); frames.value
        3
    """

    __slots__ = ()

    def create(self, kind: CounterType, label: str, *, key: bytes = b"") -> Counter:  # noqa: ARG002
        """See `CounterFactory.create`; the cell has no name anywhere, its owner knows it."""
        return _LocalCounter()


class CounterSet(Closing):
    """The counters of one owner, made together and closed together.

    Args:
        factory: Where the cells come from.
        owner: Whose they are; becomes the first part of each label.
        kinds: What to count.

    Example:
        >>> kinds = [CounterType.AGENT_CYCLES, CounterType.AGENT_ERRORS]
        >>> counters = CounterSet(LocalCounters(), "driver", kinds)
        >>> counters[CounterType.AGENT_CYCLES].add()
        >>> counters.snapshot()
        {'cycles': 1, 'errors': 0}
    """

    __slots__ = ("_cells",)

    def __init__(self, factory: CounterFactory, owner: str, kinds: Iterable[CounterType]) -> None:
        self._cells: dict[CounterType, Counter] = {}
        try:
            for kind in kinds:
                self._cells[kind] = factory.create(kind, f"{owner}: {kind.label}")
        except BaseException:
            self.close()
            raise

    def __getitem__(self, kind: CounterType) -> Counter:
        return self._cells[kind]

    def __iter__(self) -> Iterator[CounterType]:
        return iter(self._cells)

    def snapshot(self) -> dict[str, int]:
        """All values by name."""
        return {kind.label: cell.value for kind, cell in self._cells.items()}

    def close(self) -> None:
        """Give all cells back; may be called twice."""
        for cell in self._cells.values():
            cell.close()
