"""What one stuck process costs the others: eight consumers, of which one is stopped and one is killed.

With Aeron's own settings a stopped subscriber silences a stream for everybody, for as long as it is stopped.
This measures that it does not here: frames lost by the others, their worst silence beside that of an equally
long phase in which nothing happens, and how long newcomers wait for their attach meanwhile.
"""

from __future__ import annotations

import functools
import json
import statistics
import time
from typing import TYPE_CHECKING, Final

import msgspec

from tensor_pool.testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensor_pool.testing.cluster import Cluster, Process

__all__ = ["StuckReport", "measure_stuck_consumers"]

_STREAM: Final = "stuck"

_PRODUCER: Final = """
    rate_hz, slots = {rate_hz!r}, {slots!r}
    out = pool.producer({stream!r}, dtype="uint64", shape=(64,), slots=slots)
    values = np.zeros(64, "uint64")
    print(out.stream_id)
    due = time.monotonic()
    while True:
        values[:] = out.publish(values) + 1
        due += 1 / rate_hz
        pause = due - time.monotonic()
        if pause > 0: time.sleep(pause)
        elif pause < -0.1: due = time.monotonic()  # no burst after a pause of the machine
"""

_CONSUMER: Final = """
    import array, json, threading
    inp = pool.consumer({stream!r}, max_outstanding_seq_gap=0, wait_s=10)
    # Not a growing list of tuples: Python would search it for cycles, all readers at once, 30 ms long.
    times, numbers = array.array("d"), array.array("q")

    def answer():
        for line in sys.stdin:
            begin, end = map(float, line.split())
            known = len(numbers)
            at, seqs = np.array(times[:known]), np.array(numbers[:known])
            inside = (begin <= at) & (at < end)
            at, seqs = at[inside], seqs[inside]
            missing = int(seqs[-1] - seqs[0]) + 1 - len(seqs) if len(seqs) else 0
            stats = inp.stats
            print(json.dumps(dict(
                frames=len(seqs), missing=missing, worst_silence_ms=1e3 * np.diff(at).max(initial=0.0),
                lost=stats.drops + stats.overwritten, descriptors_missed=stats.descriptors_missed,
            )))

    threading.Thread(target=answer, daemon=True).start()
    print("ready")
    while True:
        frame = inp.poll(timeout=1.0)
        if frame is not None:
            times.append(time.monotonic())
            numbers.append(frame.seq)
            assert frame.copy()[0] == frame.seq or frame.seq == 0
"""


class StuckReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured."""

    seconds: float
    """How long each of the two phases took."""
    frames: int
    """Frames that each healthy consumer got while the others were stuck, the fewest of them."""
    lost: int
    """Frames that healthy consumers lost, all together."""
    descriptors_missed: int
    """Frames that they found without being told of them: the stuck ones held the descriptor stream up."""
    calm_silence_ms: float
    """The longest time without a frame of any healthy consumer, without faults."""
    stuck_silence_ms: float
    """The same with one consumer stopped and one killed."""
    attach_ms: tuple[float, ...]
    """How long each newcomer's attach took meanwhile, sorted."""
    connect_ms: tuple[float, ...]
    """The same with the connection to the media driver that a new process makes first."""

    @property
    def attach_p95_ms(self) -> float:
        """Nineteen of twenty newcomers waited no longer."""
        return _p95(self.attach_ms)

    @property
    def connect_p95_ms(self) -> float:
        """The same with their connection."""
        return _p95(self.connect_ms)

    def __str__(self) -> str:
        return (
            f"lost {self.lost} of {self.frames:,} frames, {self.descriptors_missed} without a descriptor; "
            f"worst silence {self.stuck_silence_ms:.1f} ms, {self.calm_silence_ms:.1f} ms without faults; "
            f"attach p50 {statistics.median(self.attach_ms):.1f} ms, p95 {self.attach_p95_ms:.1f} ms; "
            f"connect and attach p95 {self.connect_p95_ms:.1f} ms"
        )


def measure_stuck_consumers(
    host: Cluster,
    *,
    consumers: int = 8,
    rate_hz: float = 1_000,
    seconds: float = 5.0,
    newcomers: int = 20,
    slots: int = 8_192,
) -> StuckReport:
    """Stops one of several consumers and kills another; says what the others noticed.

    Args:
        host: Where to do it; left as it was found.
        consumers: How many, the two unlucky ones included.
        rate_hz: Frames a second.
        seconds: Length of each of the two phases.
        newcomers: Clients that attach in each phase; those count that do while others are stuck.
        slots: Slots of the ring: how far a consumer may fall behind on a busy machine.

    Example:
        >>> from tensor_pool.testing import Cluster
        >>> with Cluster() as host:
        ...     report = measure_stuck_consumers(host, consumers=3, seconds=0.5, newcomers=1, rate_hz=100)
        >>> report.lost
        0
    """
    producer = host.run_python(_PRODUCER.format(stream=_STREAM, rate_hz=rate_hz, slots=slots))
    producer.read_line()
    readers = [host.run_python(_CONSUMER.format(stream=_STREAM)) for _ in range(consumers)]
    try:
        for reader in readers:
            reader.read_line()
        stopped, killed, *healthy = readers
        _phase(0.5, 1, host)  # neither starts of others nor imports of ours are part of the calm
        calm = _phase(seconds, newcomers, host)  # what they cost is not what the faults cost
        stopped.stop()
        killed.kill()
        stuck = _phase(seconds, newcomers, host)
        calm_answers = [_ask(reader, calm.begin, calm.end) for reader in healthy]
        stuck_answers = [_ask(reader, stuck.begin, stuck.end) for reader in healthy]
    finally:
        for process in (producer, *readers):
            process.close()
    return StuckReport(
        seconds=seconds,
        frames=min(answer.frames for answer in stuck_answers),
        lost=sum(answer.lost + answer.missing for answer in stuck_answers),
        descriptors_missed=sum(answer.descriptors_missed for answer in stuck_answers),
        calm_silence_ms=max(answer.worst_silence_ms for answer in calm_answers),
        stuck_silence_ms=max(answer.worst_silence_ms for answer in stuck_answers),
        attach_ms=tuple(sorted(stuck.attach_ms)),
        connect_ms=tuple(sorted(stuck.connect_ms)),
    )


class _Answer(msgspec.Struct):
    frames: int
    missing: int
    worst_silence_ms: float
    lost: int
    descriptors_missed: int


class _Phase(msgspec.Struct):
    begin: float
    end: float
    attach_ms: list[float]
    connect_ms: list[float]


def _phase(seconds: float, newcomers: int, host: Cluster) -> _Phase:
    """Lets time pass; newcomers come at equal distances."""
    phase = _Phase(time.monotonic(), 0.0, [], [])
    for number in range(newcomers):
        at = phase.begin + seconds * number / newcomers
        time.sleep(max(0.0, at - time.monotonic()))
        started = time.monotonic()
        with host.connect() as pool:
            connected = time.monotonic()
            with pool.consumer(_STREAM, wait_s=10) as consumer:
                attached = time.monotonic()
                wait_until(functools.partial(consumer.poll, 1.0), what="a frame")
        phase.attach_ms.append(1e3 * (attached - connected))
        phase.connect_ms.append(1e3 * (attached - started))
    time.sleep(max(0.0, phase.begin + seconds - time.monotonic()))
    phase.end = time.monotonic()
    return phase


def _ask(reader: Process, begin: float, end: float) -> _Answer:
    reader.say(f"{begin} {end}")
    return msgspec.convert(json.loads(reader.read_line()), _Answer)


def _p95(values: Sequence[float]) -> float:
    """Of sorted values."""
    return values[max(0, -(-len(values) * 19 // 20) - 1)]
