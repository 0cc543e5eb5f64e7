"""What only real Aeron shows: other processes, the network, stuck subscribers, many sizes."""

from __future__ import annotations

import array
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tensor_pool.transport import (
    AeronClient,
    EmbeddedMediaDriver,
    OfferResult,
    read_counters,
    retry_for,
    udp,
)

Eventually = Callable[[Callable[[], object]], None]
RunScript = Callable[..., "subprocess.CompletedProcess[str]"]
IPC = "aeron:ipc?term-length=64k"


def test_messages_of_all_sizes_survive_many_rotations_of_the_log(client: AeronClient) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    subscription = client.add_subscription(IPC, 7)
    publication = client.add_publication(IPC, 7, policy=retry_for(20_000))
    assert publication.wait_connected(20_000)
    received: list[bytes] = []
    sent: list[bytes] = []
    for _ in range(2_000):
        message = rng.randbytes(
            rng.choice([0, 1, 31, 32, 1000, 1376, 1377, 5000, publication.max_message_bytes])
        )
        while not publication.native.offer(message) >= 0:
            received += subscription.receive(100)
        sent.append(message)
    deadline = time.monotonic() + 20
    while len(received) < len(sent) and time.monotonic() < deadline:
        received += subscription.receive(100)
    assert received == sent
    assert publication.counts.admin_actions > 10
    assert subscription.abandoned_messages == 0


def test_anything_with_a_contiguous_buffer_can_be_sent(client: AeronClient) -> None:
    subscription = client.add_subscription(IPC, 7)
    publication = client.add_publication(IPC, 7)
    assert publication.wait_connected(20_000)
    numbers = array.array("I", [1, 2, 3])
    assert publication.offer(numbers)  # type: ignore[arg-type]
    assert publication.offer(memoryview(b"0123456789")[2:5])
    assert subscription.receive() == [numbers.tobytes(), b"234"]
    with pytest.raises(BufferError, match="contiguous"):
        publication.offer(memoryview(b"0123456789")[::2])
    for nothing in ("text", 7, None):
        with pytest.raises(TypeError):
            publication.offer(nothing)  # type: ignore[arg-type]


def test_messages_longer_than_the_subscriber_takes_are_abandoned_and_counted(client: AeronClient) -> None:
    subscription = client.add_subscription("aeron:ipc", 7, max_message_bytes=10_000)
    publication = client.add_publication("aeron:ipc", 7)
    assert publication.wait_connected(20_000)
    for length in (9_999, 10_001, 5):
        assert publication.offer(bytes(length))
    received: list[int] = []
    while len(received) < 2:
        received += map(len, subscription.receive())
    assert received == [9_999, 5]
    assert subscription.abandoned_messages == 1


def test_the_network_carries_them_too(client: AeronClient) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        channel = udp(f"127.0.0.1:{probe.getsockname()[1]}", term_length="1m")
    subscription = client.add_subscription(channel, 7)
    publication = client.add_publication(channel, 7)
    assert publication.wait_connected(20_000)
    large = os.urandom(100_000)
    assert publication.offer(large)
    received: list[bytes] = []
    deadline = time.monotonic() + 20
    while not received and time.monotonic() < deadline:
        received += subscription.receive(100)
    assert received == [large]
    assert subscription.images()[0].source_identity.startswith("127.0.0.1:")


def test_counters_are_visible_from_another_process(
    media_driver: EmbeddedMediaDriver, client: AeronClient, run_script: RunScript, eventually: Eventually
) -> None:
    counter = client.add_counter(4007, "frames of camera-1", b"camera-1")
    counter.set(1234)
    script = """
import sys
from tensor_pool.transport import read_counters
(reading,) = read_counters(sys.argv[1], type_id=4007)
print(reading.value, reading.label, reading.key.rstrip(b"\\0").decode())
"""
    result = run_script(script, media_driver.aeron_dir)
    assert result.stdout == "1234 frames of camera-1 camera-1\n"
    aerons_own = [reading for reading in read_counters(media_driver.aeron_dir) if reading.type_id == 0]
    assert any(reading.label.startswith("Bytes sent") for reading in aerons_own)
    # Aeron shows clients by their heartbeat (type 11), with their names from the first keepalive on.
    eventually(
        lambda: any(
            "tensor-pool" in reading.label for reading in read_counters(media_driver.aeron_dir, type_id=11)
        )
    )


def test_messages_cross_processes(media_driver: EmbeddedMediaDriver, client: AeronClient) -> None:
    echo = subprocess.Popen(
        [
            sys.executable,
            "-c",
            """
import sys
from tensor_pool.transport import AeronClient, retry_for
with AeronClient.connect(sys.argv[1]) as client:
    requests = client.add_subscription("aeron:ipc", 1)
    answers = client.add_publication("aeron:ipc", 2, policy=retry_for(20_000))
    done = False
    while not done:
        for message in requests.receive():
            answers.offer(message[::-1])
            done = message == b"end"
    sys.stdin.read()
""",
            media_driver.aeron_dir,
        ],
        stdin=subprocess.PIPE,
    )
    try:
        requests, answers = client.add_publication("aeron:ipc", 1), client.add_subscription("aeron:ipc", 2)
        assert requests.wait_connected(20_000)
        assert answers.wait_connected(20_000)
        for message in (b"abc", bytes(range(256)) * 100, b"end"):
            assert requests.offer(message)
            received: list[bytes] = []
            while not received:
                received = answers.receive()
            assert received == [message[::-1]]
    finally:
        echo.communicate(timeout=20)
    assert echo.returncode == 0


@pytest.mark.quiet
@pytest.mark.parametrize("how", [signal.SIGSTOP, signal.SIGKILL], ids=["stopped", "killed"])
def test_a_stuck_subscriber_does_not_silence_the_others(
    media_driver: EmbeddedMediaDriver, client: AeronClient, eventually: Eventually, how: signal.Signals
) -> None:
    """With Aeron's own defaults the others would hear nothing for 10 s, or for as long as it is stopped."""
    subscription = client.add_subscription(IPC, 7)
    publication = client.add_publication(IPC, 7)
    stuck = subprocess.Popen(
        [
            sys.executable,
            "-c",
            """
import sys
from tensor_pool.transport import AeronClient
client = AeronClient.connect(sys.argv[1])
subscription = client.add_subscription("aeron:ipc?term-length=64k", 7)
subscription.wait_connected(20_000)
print("ready", flush=True)
while True:
    subscription.receive()
""",
            media_driver.aeron_dir,
        ],
        stdout=subprocess.PIPE,
    )
    try:
        assert stuck.stdout is not None
        assert stuck.stdout.readline() == b"ready\n"
        assert publication.wait_connected(20_000)
        os.kill(stuck.pid, how)
        worst, heard = 0.0, 0
        last = time.monotonic()
        ending = last + 1.5
        message = bytes(1000)
        while (
            time.monotonic() < ending
        ):  # 64 KiB of term are full after 30 messages: far less than this loop sends
            publication.offer(message)
            now = time.monotonic()
            if count := len(subscription.receive(100)):
                worst, last, heard = max(worst, now - last), now, heard + count
            time.sleep(0.0005)
        worst = max(worst, time.monotonic() - last)
        print(f"worst silence {1e3 * worst:.0f} ms, {heard} messages heard")
        assert heard > 100
        assert worst < 1.0, f"silent for {worst:.3f} s"
    finally:
        stuck.kill()
        stuck.communicate()


def test_a_subscriber_that_was_left_behind_joins_again(client: AeronClient, eventually: Eventually) -> None:
    """Untethered means left behind, not thrown out: once it reads again it hears again."""
    slow = client.add_subscription(IPC, 7)
    fast = client.add_subscription(IPC, 7)
    publication = client.add_publication(IPC, 7)
    assert publication.wait_connected(20_000)
    eventually(lambda: len(fast.images()) == len(slow.images()) == 1)

    def left_behind() -> bool:
        publication.offer(bytes(1000))
        fast.receive(100)
        return not slow.images()

    eventually(left_behind)

    def back_again() -> bool:
        slow.receive(100)
        fast.receive(100)
        return publication.offer(b"again") is OfferResult.SENT and slow.connected

    eventually(back_again)
    eventually(
        lambda: (
            publication.offer(b"heard") and b"heard" in slow.receive(100) and fast.receive(100) is not None
        )
    )
    assert [event.available for event in slow.take_image_events()][:3] == [True, False, True]


def test_a_client_that_made_and_closed_many_ends_stays_small(client: AeronClient) -> None:
    def fds() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    def mappings() -> int:
        return Path("/proc/self/maps").read_text().count("logbuffer")

    for i in range(5):
        client.add_publication(IPC, i).close()
    before = fds()
    for i in range(60):
        with client.add_subscription(IPC, i), client.add_publication(IPC, i) as publication:
            publication.wait_connected(20_000)
    deadline = time.monotonic() + 20
    while mappings() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert mappings() == 0
    assert fds() <= before + 2
