"""The drain thread with a real media driver: it goes on whatever Python does, and ends whenever it must."""

from __future__ import annotations

import ctypes
import gc
import itertools
import os
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from forking import SCRIPT_FORKS, forks
from tensor_pool import _native
from tensor_pool.errors import ClosedError, ForkedProcessError, NoMediaDriverError, TransportError
from tensor_pool.transport import AeronClient, AeronPublication, AeronSubscription, EmbeddedMediaDriver

IPC = "aeron:ipc?term-length=64k"
MS = 1_000_000
ROOMY = {"max_messages": 100_000, "max_bytes": 16 << 20}
Eventually = Callable[[Callable[[], object]], None]


@pytest.fixture
def drain() -> Iterator[_native.AeronDrain]:
    drain = _native.AeronDrain(name="drain", shortest_pause_ns=MS // 10, longest_pause_ns=10 * MS)
    yield drain
    drain.close()


@pytest.fixture
def stream(client: AeronClient) -> tuple[AeronPublication, AeronSubscription]:
    subscription = client.add_subscription(IPC, 7)
    publication = client.add_publication(IPC, 7)
    assert publication.wait_connected(20_000)
    return publication, subscription


def hold_the_interpreter(seconds: float) -> None:
    """Sleeps without letting any other Python thread run."""
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))


@pytest.mark.quiet
def test_python_that_is_busy_loses_nothing_and_shows_life(drain, stream) -> None:
    publication, subscription = stream
    inbox = drain.inbox(subscription.native, **ROOMY)
    message = struct.pack("<4sQ", b"beat", 0).ljust(128, b".")
    pulse = drain.pulse(publication.native, message, period_ns=MS, timestamp_offset=4)
    # More than the log holds: without the drain the publication would be blocked long before the end.
    hold_the_interpreter(1.5)
    pulse.stop()
    assert pulse.sent * 160 > 64 << 10
    assert pulse.failed == 0
    taken = inbox.take(100_000)
    assert len(taken) == pulse.sent
    stamps = [struct.unpack_from("<Q", message, 4)[0] for message, _, _ in taken]
    assert stamps == sorted(set(stamps))
    assert stamps[-1] == pulse.last_sent_ns
    gaps_ms = [(later - earlier) / MS for earlier, later in itertools.pairwise(stamps)]
    print(f"{len(stamps)} beats; the longest silence was {max(gaps_ms):.1f} ms")
    assert max(gaps_ms) < 500


def test_quiet_messages_are_kept_and_wake_nobody(drain, stream, eventually: Eventually) -> None:
    publication, subscription = stream
    inbox = drain.inbox(subscription.native, accept=[(900, 1), (901, 5)], quiet=[(901, 5)], **ROOMY)

    def message(schema: int, template: int) -> bytes:
        return struct.pack("<HHHH", 0, template, schema, 1)

    drain.wait(0.0)  # what came before
    publication.offer(message(901, 5))
    eventually(lambda: inbox.received == 1)
    assert not drain.wait(0.05)
    publication.offer(message(900, 1))
    assert drain.wait(10.0)
    assert [taken for taken, _, _ in inbox.take(10)] == [message(901, 5), message(900, 1)]


def test_only_accepted_messages_are_kept(drain, stream, eventually: Eventually) -> None:
    publication, subscription = stream
    inbox = drain.inbox(subscription.native, accept=[(900, 1), (901, 5)], **ROOMY)

    def message(schema: int, template: int) -> bytes:
        return struct.pack("<HHHH", 0, template, schema, 1)

    wanted = [message(901, 5), message(900, 1)]
    for sent in (wanted[0], message(900, 5), message(901, 1), b"short", b"", wanted[1]):
        publication.offer(sent)
    eventually(lambda: inbox.received + inbox.ignored == 6)
    assert [taken for taken, _, _ in inbox.take(10)] == wanted
    assert (inbox.received, inbox.ignored, inbox.overflowed, len(inbox)) == (2, 4, 0, 0)


def test_a_full_inbox_loses_the_newest_and_counts(drain, stream, eventually: Eventually) -> None:
    publication, subscription = stream
    inbox = drain.inbox(subscription.native, max_messages=3, max_bytes=100)
    for number in range(10):
        publication.offer(bytes([number]))
    eventually(lambda: inbox.overflowed == 7)
    assert len(inbox) == 3
    assert [(message, session) for message, session, _ in inbox.take(10)] == [
        (bytes([number]), publication.session_id) for number in range(3)
    ]


def test_messages_wake_who_waits(drain, stream) -> None:
    publication, subscription = stream
    inbox = drain.inbox(subscription.native, **ROOMY)
    drain.wait(0.0)
    publication.offer(b"one")
    publication.offer(b"two")
    assert drain.wait(60.0)
    taken = inbox.take(1)
    assert drain.wait(60.0), "one is left"
    assert [message for message, _, _ in taken + inbox.take(9)] == [b"one", b"two"]


class TestEnds:
    def test_the_subscription_first(self, drain, stream, eventually: Eventually) -> None:
        publication, subscription = stream
        inbox = drain.inbox(subscription.native, **ROOMY)
        publication.offer(b"x")
        eventually(lambda: len(inbox) == 1)
        subscription.close()
        eventually(lambda: inbox.closed)
        assert len(inbox.take(9)) == 1
        with pytest.raises(ClosedError, match="subscription"):
            inbox.take(9)
        inbox.close()

    def test_the_drain_first(self, drain, stream) -> None:
        publication, subscription = stream
        inbox = drain.inbox(subscription.native, **ROOMY)
        pulse = drain.pulse(publication.native, b"x", period_ns=60_000 * MS)
        assert drain.wait(60.0)
        drain.close()
        assert pulse.stopped
        assert len(inbox.take(9)) == 1
        with pytest.raises(ClosedError, match="drain"):
            inbox.take(9)
        with pytest.raises(ClosedError, match="drain"):
            drain.inbox(subscription.native, **ROOMY)
        assert publication.offer(b"the ends of the stream live on")
        assert subscription.connected

    def test_the_client_first(self, drain, client: AeronClient, stream, eventually: Eventually) -> None:
        publication, subscription = stream
        inbox = drain.inbox(subscription.native, **ROOMY)
        pulse = drain.pulse(publication.native, b"x", period_ns=MS)
        eventually(lambda: pulse.sent)
        client.close()
        eventually(lambda: pulse.failed > 1)
        while len(inbox):
            inbox.take(1_000)
        with pytest.raises(ClosedError):
            inbox.take(1)

    def test_the_media_driver_first(
        self, drain, media_driver: EmbeddedMediaDriver, stream, eventually: Eventually
    ) -> None:
        publication, subscription = stream
        inbox = drain.inbox(subscription.native, **ROOMY)
        pulse = drain.pulse(publication.native, b"x", period_ns=5 * MS)
        eventually(lambda: pulse.sent)
        media_driver.close()
        eventually(lambda: inbox.closed)
        while len(inbox):
            inbox.take(1_000)
        with pytest.raises(NoMediaDriverError):
            inbox.take(1)
        failed = pulse.failed
        eventually(lambda: pulse.failed > failed)
        assert not drain.closed

    @pytest.mark.quiet
    def test_forgotten_handles_end_by_themselves(self, drain, stream, eventually: Eventually) -> None:
        publication, subscription = stream
        inbox = drain.inbox(subscription.native, **ROOMY)
        drain.pulse(publication.native, b"nobody keeps me", period_ns=MS)
        gc.collect()
        position = publication.position
        hold_the_interpreter(0.02)
        assert publication.position == position
        del inbox
        publication.offer(b"x")
        hold_the_interpreter(0.05)  # five turns of the drain
        assert subscription.receive() != []

    @forks
    def test_forked_children_get_errors(self, drain, stream) -> None:
        publication, subscription = stream
        inbox = drain.inbox(subscription.native, **ROOMY)
        pulse = drain.pulse(publication.native, b"x", period_ns=MS)
        child = os.fork()
        if child == 0:
            refused = 0
            for use in (lambda: inbox.take(1), inbox.close, pulse.stop):
                try:
                    use()
                except ForkedProcessError:
                    refused += 1
            del use, inbox, pulse
            gc.collect()
            os._exit(0 if refused == 3 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        sent = pulse.sent
        while pulse.sent == sent:
            drain.wait(1.0)

    @pytest.mark.parametrize(
        "ending",
        [
            pytest.param("", id="nothing was closed"),
            pytest.param("driver.close()", id="only the media driver was closed"),
            pytest.param("client.close()", id="only the client was closed"),
            pytest.param("sys.keep = [pulse, inbox, drain, client, driver]", id="kept by a module"),
            pytest.param("ring = [drain, inbox]; ring.append(ring); del drain, inbox", id="in a cycle"),
            pytest.param("os.fork() or time.sleep(0.1)", id="after a fork"),
        ],
    )
    def test_the_interpreter_ends_cleanly(self, run_script, aeron_dir: str, ending: str) -> None:
        script = f"""
import os, sys, time
from tensor_pool import _native
from tensor_pool.transport import *
{SCRIPT_FORKS}
driver = EmbeddedMediaDriver(sys.argv[1])
client = AeronClient.connect(sys.argv[1])
drain = _native.AeronDrain(name="live", shortest_pause_ns=10_000, longest_pause_ns=100_000)
inbox = drain.inbox(client.add_subscription("{IPC}", 7).native, max_messages=9, max_bytes=9)
pulse = drain.pulse(client.add_publication("{IPC}", 7).native, b"x", period_ns=100_000)
while not pulse.sent:
    time.sleep(0.001)
pid = os.getpid()
{ending}
if os.getpid() == pid:
    print("done", flush=True)
"""
        result: subprocess.CompletedProcess[str] = run_script(script, aeron_dir)
        assert (result.returncode, result.stdout, result.stderr) == (0, "done\n", "")


def test_pulses_refuse_what_can_not_be_sent(drain, stream) -> None:
    publication, _ = stream
    for message, offset in ((bytes(8), 1), (bytes(8), 2**63), (bytes(1 << 20), None)):
        with pytest.raises(TransportError):
            drain.pulse(publication.native, message, period_ns=MS, timestamp_offset=offset)
    with pytest.raises(TransportError):
        drain.pulse(publication.native, b"x", period_ns=0)


@pytest.mark.quiet
def test_an_idle_drain_costs_next_to_nothing(drain, client: AeronClient) -> None:
    inboxes = [drain.inbox(client.add_subscription(IPC, 7 + i).native, **ROOMY) for i in range(5)]
    deadline = time.monotonic() + 20
    while drain.rounds < 50 and time.monotonic() < deadline:
        time.sleep(0.01)
    thread = _thread_named("drain")  # it names itself once it runs
    seconds = 2.0
    rounds, cpu, wall = drain.rounds, _cpu_seconds(thread), time.monotonic()
    time.sleep(seconds)
    share = (_cpu_seconds(thread) - cpu) / (time.monotonic() - wall)
    rounds_a_second = (drain.rounds - rounds) / seconds
    print(
        f"idle drain of {len(inboxes)}: {100 * share:.2f} % of a core, {rounds_a_second:.0f} rounds a second"
    )
    assert rounds_a_second < 110
    assert share < 0.02


def _thread_named(name: str) -> Path:
    tasks = Path("/proc/self/task").iterdir()
    return next(task for task in tasks if (task / "comm").read_text().strip() == name)


def _cpu_seconds(thread: Path) -> float:
    return int((thread / "schedstat").read_text().split()[0]) / 1e9
