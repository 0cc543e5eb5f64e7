"""A process that does not poll, or holds the interpreter, loses nothing and stalls nobody."""

from __future__ import annotations

import ctypes
import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tensor_pool.errors import ClosedError, ConfigError
from tensor_pool.runtime import AgentRunner
from tensor_pool.runtime.idle import Doorbell
from tensor_pool.transport import (
    AeronClient,
    Client,
    Drain,
    DrainedSubscription,
    EmbeddedMediaDriver,
    Publication,
    Subscription,
)

TETHERED = "aeron:ipc?term-length=64k|tether=true"
"""A subscriber of this that does not read stops the publication: nothing but the drain can help."""
WAIT_MS = 20_000
Eventually = Callable[[Callable[[], object]], None]


@pytest.fixture
def drain(client: AeronClient) -> Iterator[Drain]:
    with Drain(client) as drain:
        yield drain


def pair(client: Client, channel: str = TETHERED) -> tuple[Publication, Subscription]:
    subscription = client.add_subscription(channel, 7)
    publication = client.add_publication(channel, 7)
    assert publication.wait_connected(WAIT_MS)
    return publication, subscription


def publish_for(publication: Publication, seconds: float) -> tuple[int, float]:
    """Publishes numbers at 2 kHz, each until it is taken: how many, and the longest time that one took."""
    worst, count = 0.0, 0
    end = time.monotonic() + seconds
    while (start := time.monotonic()) < end:
        message = count.to_bytes(8, "little").ljust(200, b".")
        while not publication.offer(message):
            assert time.monotonic() < end + 10, "the stream is blocked"
        worst = max(worst, time.monotonic() - start)
        count += 1
        time.sleep(0.000_5)
    return count, worst


STUCK = """
import ctypes, sys, time
from tensor_pool.transport import *

client = AeronClient.connect(sys.argv[1])
subscriber = Drain(client).client if sys.argv[2] == "drained" else client
subscription = subscriber.add_subscription(sys.argv[3], 7)
assert subscription.wait_connected(20_000)
print("ready", flush=True)
ctypes.PyDLL(None).usleep(2_500_000)  # with the interpreter's lock
messages = []
while not messages or messages[-1] != b"end":
    messages += subscription.receive(100_000)
numbers = [int.from_bytes(message[:8], "little") for message in messages[:-1]]
print(len(numbers), numbers == list(range(len(numbers))), flush=True)
"""


@pytest.mark.quiet
@pytest.mark.parametrize("how", ["drained", "polled"])
def test_a_process_that_holds_the_interpreter_stalls_nobody(
    media_driver: EmbeddedMediaDriver, client: AeronClient, how: str
) -> None:
    publication = client.add_publication(TETHERED, 7)
    process = subprocess.Popen(
        [sys.executable, "-c", STUCK, media_driver.aeron_dir, how, TETHERED],
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        count, worst = publish_for(publication, 2.0)
        while not publication.offer(b"end"):
            time.sleep(0.001)
        outcome = process.stdout.readline()
    print(f"{how}: {count} messages, the slowest took {1e3 * worst:.1f} ms")
    assert outcome == f"{count} True\n", "nothing was lost"
    # Without the drain the same program stops its publisher: the test can tell.
    assert worst < 0.5 if how == "drained" else worst > 0.5


@pytest.mark.quiet
def test_threads_of_this_process_need_not_poll_either(drain: Drain) -> None:
    publication, subscription = pair(drain.client)
    count, worst = publish_for(publication, 1.0)
    assert worst < 0.5
    numbers = [int.from_bytes(message[:8], "little") for message in subscription.receive(100_000)]
    assert numbers == list(range(count))


@pytest.mark.quiet
def test_pulses_go_on_while_the_interpreter_is_held(drain: Drain) -> None:
    publication = drain.client.add_publication(TETHERED, 7)
    subscription = drain.client.add_subscription(TETHERED, 7)
    assert publication.wait_connected(WAIT_MS)
    pulse = drain.pulse(publication, bytes(16), period_ms=10, timestamp_offset=8)
    ctypes.PyDLL(None).usleep(1_000_000)
    pulse.stop()
    stamps = [int.from_bytes(message[8:], "little") for message in subscription.receive(1_000)]
    assert len(stamps) == pulse.sent > 10
    assert max(later - earlier for earlier, later in itertools.pairwise(stamps)) < 500_000_000


@pytest.mark.quiet
def test_an_agent_sleeps_in_the_drain_and_is_woken(drain: Drain) -> None:
    publication, subscription = pair(drain.client)
    received, woken = [], threading.Event()

    class Listener:
        name = "listener"

        def on_start(self) -> None:
            pass

        def on_close(self) -> None:
            pass

        def do_work(self) -> int:
            messages = subscription.receive()
            received.extend(messages)
            if messages:
                woken.set()
            return len(messages)

    with AgentRunner(Listener(), idle=Doorbell(drain, timeout_s=0.1)):
        delays = []
        for number in range(10):
            woken.clear()
            start = time.monotonic()
            drain.hurry(100)
            publication.offer(bytes([number]))
            assert woken.wait(WAIT_MS / 1e3)
            delays.append(time.monotonic() - start)
    print(f"woken after {1e3 * sorted(delays)[5]:.2f} ms (median)")
    assert received == [bytes([number]) for number in range(10)]
    assert min(delays) < 0.05


def test_unwanted_and_too_many_messages_are_counted(drain: Drain, eventually: Eventually) -> None:
    subscription = drain.client.add_subscription(TETHERED, 7, max_messages=2, accept=[(900, 1)])
    publication = drain.client.add_publication(TETHERED, 7)
    assert publication.wait_connected(WAIT_MS)
    wanted = bytes([0, 0, 1, 0, 0x84, 3, 1, 0])
    for message in (wanted, b"noise", wanted, wanted):
        publication.offer(message)
    eventually(lambda: subscription.overflowed)
    assert (subscription.waiting, subscription.ignored, subscription.overflowed) == (2, 1, 1)
    assert subscription.receive() == [wanted, wanted]


class TestEnds:
    def test_a_closed_drain_gives_what_it_has_and_then_says_so(self, drain: Drain) -> None:
        publication, subscription = pair(drain.client)
        publication.offer(b"last")
        assert drain.wait(20.0)
        drain.close()
        drain.close()
        assert drain.closed
        assert subscription.receive() == [b"last"]
        for use in (
            subscription.receive,
            lambda: drain.wait(0.0),
            lambda: drain.hurry(1),
            lambda: drain.pulse(publication, b"x", period_ms=1),
            lambda: drain.client.add_subscription(TETHERED, 8),
        ):
            with pytest.raises(ClosedError):
                use()
        assert not drain.client.closed
        assert publication.connected

    def test_a_closed_subscription_forgets_what_waits(self, drain: Drain) -> None:
        publication, subscription = pair(drain.client)
        assert isinstance(subscription, DrainedSubscription)
        publication.offer(b"x")
        assert drain.wait(20.0)
        subscription.close()
        assert (subscription.waiting, subscription.closed) == (0, True)
        with pytest.raises(ClosedError):
            subscription.receive()


@pytest.mark.parametrize(("shortest", "longest"), [(0, 1), (2, 1), (-1, 1), (1, 1e6)])
def test_pauses_must_make_sense(client: AeronClient, shortest: float, longest: float) -> None:
    with pytest.raises(ConfigError, match="pauses"):
        Drain(client, shortest_pause_ms=shortest, longest_pause_ms=longest)
