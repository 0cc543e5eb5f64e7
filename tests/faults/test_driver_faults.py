"""A driver that is killed between any two steps: the next one goes on, and nothing half made is seen."""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from driver_process import DriverProcess
from raw_client import RawClient
from tensor_pool import _native
from tensor_pool.transport import EmbeddedMediaDriver
from tensor_pool.wire.messages import (
    PublishMode,
    ResponseCode,
    Role,
    ShmAttachRequest,
    ShmDetachRequest,
    ShmLeaseRevoked,
    ShmPoolAnnounce,
)
from tensor_pool.wire.shm import decode_superblock


@pytest.fixture
def media() -> Iterator[EmbeddedMediaDriver]:
    with EmbeddedMediaDriver.temporary() as driver:
        yield driver


@pytest.fixture
def base() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        yield Path(directory)


def announced(client: RawClient) -> list[ShmPoolAnnounce]:
    client.listen()
    return [message for message in client.heard if isinstance(message, ShmPoolAnnounce)]


def assert_whole(epoch_directory: Path, epoch: int) -> None:
    for path in epoch_directory.iterdir():
        assert decode_superblock(path.read_bytes()).epoch == epoch


def goes_on(media: EmbeddedMediaDriver, base: Path, above: int) -> None:
    """The next driver serves the stream, with a higher epoch, and leaves nothing of the dead one."""
    with DriverProcess(media.aeron_dir, base), RawClient(media.aeron_dir) as client:
        lease = client.attach(client_id=1_000)
        while lease.code is ResponseCode.REJECTED:
            # The log of the control stream may replay the attach that the dead driver was killed in; nobody
            # keeps that lease alive, so it expires (decision L11).
            assert "has a producer" in lease.error_message
            lease = client.attach(client_id=1_000)
            time.sleep(0.1)
        assert (lease.epoch or 0) > above
        header = Path(_native.parse_region_uri(lease.header_region_uri)[0])
        assert_whole(header.parent, lease.epoch or 0)
        deadline = time.monotonic() + 20
        while len(left := sorted(path.name for path in header.parent.parent.iterdir())) > 1:
            assert time.monotonic() < deadline, left
            client.keep_alive(lease, 1_000)
            time.sleep(0.2)
        assert left == [str(lease.epoch)]


@pytest.mark.parametrize(
    ("point", "is_announced"),
    [
        ("driver.before_create", False),
        ("driver.after_create", False),
        ("driver.after_rename", False),
        ("driver.before_state:2", False),
        ("driver.after_state:2", False),
        ("driver.before_announce", False),
        ("driver.after_announce", True),
    ],
)
def test_while_a_producer_attaches(
    media: EmbeddedMediaDriver, base: Path, point: str, is_announced: bool
) -> None:
    name, _, times = point.partition(":")
    with RawClient(media.aeron_dir) as client:
        process = DriverProcess(media.aeron_dir, base, fault=f"{name}:kill:{times or 1}").wait_serving()
        request = ShmAttachRequest(1, 10_000, 7, Role.PRODUCER, publish_mode=PublishMode.EXISTING_OR_CREATE)
        while process.process.poll() is None:  # a young driver does not hear attaches yet (decision L11)
            client.send(request)
            process.lives_on(0.1)
        process.wait_killed()
        heard = announced(client)
        assert bool(heard) == is_announced
        for announce in heard:  # what was announced exists and is whole
            header = Path(_native.parse_region_uri(announce.header_region_uri)[0])
            assert_whole(header.parent, announce.epoch)
        numbered = [path for path in base.glob("*/default/10000/*") if path.name.isdecimal()]
        for directory in numbered:
            assert_whole(directory, int(directory.name))
        goes_on(media, base, max([0, *(announce.epoch for announce in heard)]))


def test_while_a_lease_is_revoked(media: EmbeddedMediaDriver, base: Path) -> None:
    with RawClient(media.aeron_dir) as client:
        process = DriverProcess(media.aeron_dir, base, fault="driver.while_revoking:kill").wait_serving()
        lease = client.attached()
        client.send(ShmDetachRequest(2, lease.lease_id or 0, 10_000, 7, Role.PRODUCER))
        process.wait_killed()
        client.listen()
        assert not [message for message in client.heard if isinstance(message, ShmLeaseRevoked)]
        goes_on(media, base, lease.epoch or 0)


def test_while_an_epoch_is_removed(media: EmbeddedMediaDriver, base: Path) -> None:
    """The sparse epoch of a consumer goes when the producer comes: at no moment is it half there."""
    with RawClient(media.aeron_dir) as client:
        process = DriverProcess(media.aeron_dir, base, fault="driver.during_gc:kill").wait_serving()
        consumer = client.attached(client_id=8, role=Role.CONSUMER)
        client.send(
            ShmAttachRequest(3, 10_000, 7, Role.PRODUCER, publish_mode=PublishMode.EXISTING_OR_CREATE)
        )
        process.wait_killed()
        left = sorted(path.name for path in base.glob("*/default/10000/*"))
        assert f".{consumer.epoch}.going" in left
        assert str(consumer.epoch) not in left
        goes_on(media, base, consumer.epoch or 0)


def test_a_driver_that_is_stopped_keeps_its_clients(media: EmbeddedMediaDriver, base: Path) -> None:
    """Longer than a lease lasts, and longer than Aeron waits for a subscriber."""
    fast = {"driver.keepalive_interval_ms": 200, "driver.announce_interval_ms": 100}
    with DriverProcess(media.aeron_dir, base, **fast) as driver, RawClient(media.aeron_dir) as client:
        lease = client.attached()
        driver.process.send_signal(signal.SIGSTOP)
        ends_at = time.monotonic() + 2.0
        while time.monotonic() < ends_at:
            client.control.offer(b"")  # whatever is sent now may be lost
            time.sleep(0.05)
        driver.process.send_signal(signal.SIGCONT)
        client.heard.clear()
        ends_at = time.monotonic() + 2.0
        while time.monotonic() < ends_at:
            client.keep_alive(lease)
            client.listen()
            time.sleep(0.05)
        assert not [message for message in client.heard if isinstance(message, ShmLeaseRevoked)]
        assert {m.epoch for m in client.heard if isinstance(m, ShmPoolAnnounce)} == {lease.epoch}
