"""The driver over real Aeron and real shared memory, asked with raw messages."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from driver_process import SMALL, DriverProcess
from raw_client import RawClient
from tensor_pool import _native
from tensor_pool.config import load_config
from tensor_pool.driver import Driver
from tensor_pool.errors import ConfigError, RegionError
from tensor_pool.pool.mapping import ring_address
from tensor_pool.transport import EmbeddedMediaDriver, read_counters
from tensor_pool.wire.messages import (
    ControlResponse,
    DriverStatus,
    GetDriverStatus,
    LeaseRevokeReason,
    LeaseRevokeResult,
    ListStreams,
    PublishMode,
    ResolveStream,
    ResponseCode,
    RevokeLease,
    Role,
    ShmDriverShutdown,
    ShmDriverShutdownRequest,
    ShmLeaseRevoked,
    ShmPoolAnnounce,
    ShutdownReason,
    StreamPool,
    StreamResolved,
    StreamsListed,
)
from tensor_pool.wire.shm import decode_superblock

FAST = {"driver.keepalive_interval_ms": 100, "driver.announce_interval_ms": 100}

StartDriver = Callable[..., Driver]


@pytest.fixture
def media() -> Iterator[EmbeddedMediaDriver]:
    with EmbeddedMediaDriver.temporary() as driver:
        yield driver


@pytest.fixture
def base() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        yield Path(directory)


@pytest.fixture
def start(media: EmbeddedMediaDriver, base: Path) -> Iterator[StartDriver]:
    drivers: list[Driver] = []

    def start(**overrides: Any) -> Driver:
        settings = SMALL | {"shm.shm_base_dir": str(base)} | overrides
        config = load_config(overrides=settings, environ={}, search=False)
        drivers.append(Driver(config, aeron_dir=media.aeron_dir))
        return drivers[-1]

    yield start
    for driver in drivers:
        driver.close()
        assert driver.error is None
        assert list(driver.error_log) == []


@pytest.fixture
def client(media: EmbeddedMediaDriver) -> Iterator[RawClient]:
    with RawClient(media.aeron_dir) as raw:
        yield raw


def wait(condition: Callable[[], object], timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.005)


@pytest.mark.req("DRV-4.5-1", "DRV-4.2-2", "DRV-12-1", "DRV-4.11-1", "DRV-2.1-1")
@pytest.mark.parametrize("packaging", ["embedded", "process"])
def test_attach_use_detach(
    packaging: str, media: EmbeddedMediaDriver, base: Path, client: RawClient, start: StartDriver
) -> None:
    process = DriverProcess(media.aeron_dir, base).wait_serving() if packaging == "process" else None
    if process is None:
        start()
    try:
        lease = client.attached()
        announce = client.announce_above((lease.epoch or 0) - 1)
        with _native.RingWriter(ring_address(announce), base_dirs=[base]) as writer:
            writer.publish(np.arange(16, dtype="u1"))
            with _native.RingReader(ring_address(announce), base_dirs=[base]) as reader:
                frame = reader.poll()
                assert frame is not None
                assert frame.array.tolist() == list(range(16))
        assert client.detach(lease).code is ResponseCode.OK
        after = client.announce_above(lease.epoch or 0)
        assert after.producer_id == 0
        notice = client.wait_for(ShmLeaseRevoked, lambda message: message.lease_id == lease.lease_id)
        assert notice.reason is LeaseRevokeReason.DETACHED
        # The same places whichever way it is packaged [DRV-14-3].
        path = Path(_native.parse_region_uri(announce.header_region_uri)[0])
        user, namespace, stream, epoch, name = path.relative_to(base).parts
        assert user.startswith("tensorpool-")
        assert (namespace, stream, epoch, name) == ("default", "10000", str(lease.epoch), "header.ring")
    finally:
        if process is not None:
            process.close()


@pytest.mark.req("DRV-14-3")
def test_embedded_and_external_drivers_use_the_same_places(
    media: EmbeddedMediaDriver, base: Path, client: RawClient, start: StartDriver
) -> None:
    embedded = start()
    beside = {"driver.instance_id": "b", "streams.control_stream_id": 1010}
    with DriverProcess(media.aeron_dir, base, **beside):
        directories = sorted(path.name for path in Path(embedded.directory).parent.iterdir())
    assert directories == ["default", "default-b"]


@pytest.mark.req("DRV-4.4-3", "DRV-4.4-4", "DRV-7-1", "DRV-6-3")
def test_a_lease_lasts_while_it_is_kept_alive(client: RawClient, start: StartDriver) -> None:
    start(**FAST)
    lease = client.attached()
    ends_at = time.monotonic() + 1.5
    while time.monotonic() < ends_at:
        client.keep_alive(lease)
        client.listen()
        assert not [m for m in client.heard if isinstance(m, ShmLeaseRevoked)]
        time.sleep(0.05)
    notice = client.wait_for(ShmLeaseRevoked)
    assert (notice.lease_id, notice.reason) == (lease.lease_id, LeaseRevokeReason.EXPIRED)
    assert client.announce_above(lease.epoch or 0).producer_id == 0


@pytest.mark.req("DRV-4.7-5", "DRV-6-2")
def test_revoke(client: RawClient, start: StartDriver) -> None:
    start()
    lease = client.attached()
    request = RevokeLease(5, 9, stream_id=10_000, lease_id=lease.lease_id or 0, reason="maintenance")
    assert client.ask(LeaseRevokeResult, request).code is ResponseCode.OK
    notice = client.wait_for(ShmLeaseRevoked, lambda message: message.lease_id == lease.lease_id)
    assert (notice.reason, notice.error_message) == (LeaseRevokeReason.REVOKED, "maintenance")
    client.announce_above(lease.epoch or 0)


@pytest.mark.quiet
@pytest.mark.req("WIRE-10.1.1-1", "WIRE-15.11-2", "WIRE-15.11-5")
def test_announces_and_activity_follow_the_clock(client: RawClient, start: StartDriver) -> None:
    start(**{"driver.announce_interval_ms": 100})
    lease = client.attached(role=Role.CONSUMER)
    path = Path(_native.parse_region_uri(lease.header_region_uri)[0])
    client.wait_for(ShmPoolAnnounce)
    client.heard.clear()
    stamps, ends_at = set(), time.monotonic() + 2.0
    while time.monotonic() < ends_at:
        client.listen()
        stamps.add(decode_superblock(path.read_bytes()).activity_timestamp_ns)
        time.sleep(0.01)
    count = len([m for m in client.heard if isinstance(m, ShmPoolAnnounce)])
    assert 16 <= count <= 22
    assert len(stamps) >= 15


def test_names_and_geometry(client: RawClient, start: StartDriver) -> None:
    start()
    resolve = ResolveStream(1, 7, role=Role.PRODUCER, name="camera", nslots=4, pools=(StreamPool(128),))
    resolved = client.ask(StreamResolved, resolve)
    assert resolved.stream_id == 20_000
    lease = client.attached(20_000)
    assert (lease.header_nslots, lease.payload_pools[0].stride_bytes) == (4, 128)
    listed = client.ask(StreamsListed, ListStreams(2, 7))
    assert [(entry.name, entry.producer_id) for entry in listed.streams] == [("camera", 7)]


def test_many_pools_and_streams_travel_in_several_pieces(client: RawClient, start: StartDriver) -> None:
    """Above one MTU nothing is lost: 16 pools in an announce, 1,000 streams in a page."""
    start(**{"driver.default_pools": [64 << n for n in range(16)], "driver.default_nslots": 1})
    lease = client.attached(role=Role.CONSUMER)
    assert len(lease.payload_pools) == 16
    assert client.announce_above(0).payload_pools == lease.payload_pools
    for n in range(1_000):
        client.send(ResolveStream(100 + n, 9, role=Role.CONSUMER, name=f"stream-{n:04}"))
    client.wait_for(StreamResolved, lambda message: message.correlation_id == 1_099)
    page = client.ask(StreamsListed, ListStreams(5, 9))
    assert (len(page.streams), page.total_count) == (1_000, 1_001)


@pytest.mark.req("DRV-4.12-1", "DRV-4.12-4")
def test_shutdown_by_request(client: RawClient, start: StartDriver) -> None:
    driver = start(**{"driver.shutdown_token": "secret", "driver.shutdown_drain_ms": 50})
    request = ShmDriverShutdownRequest(77, ShutdownReason.ADMIN, token="secret")
    assert client.ask(ControlResponse, request).code is ResponseCode.OK
    assert client.wait_for(ShmDriverShutdown).reason is ShutdownReason.ADMIN
    assert driver.wait(10.0)
    assert driver.error is None


def test_counters_can_be_read_by_anybody(
    client: RawClient, start: StartDriver, media: EmbeddedMediaDriver
) -> None:
    start()
    client.attached()
    labels = {reading.label: reading.value for reading in read_counters(media.aeron_dir)}
    assert labels["driver: attaches"] == 1
    assert labels["driver: leases"] == 1


class TestTwoDrivers:
    @pytest.mark.req("DRV-2.1-2")
    def test_the_second_is_told(self, start: StartDriver, client: RawClient) -> None:
        driver = start()
        lease = client.attached()
        with pytest.raises(RegionError, match=f"process {os.getpid()}, serves {driver.directory}"):
            start()
        client.keep_alive(lease)
        assert client.ask(DriverStatus, GetDriverStatus(3, 9)).producer_count == 1

    def test_the_second_of_a_control_stream_is_told(self, start: StartDriver, client: RawClient) -> None:
        """A directory of its own does not help: both would answer the clients of the first."""
        start()
        lease = client.attached()
        with pytest.raises(ConfigError, match=f"process {os.getpid()}, serves stream 1000") as caught:
            start(**{"driver.instance_id": "b"})
        assert "streams.control_stream_id" in (caught.value.hint or "")
        client.keep_alive(lease)
        assert client.ask(DriverStatus, GetDriverStatus(3, 9)).producer_count == 1
        client.listen()
        assert not [m for m in client.heard if isinstance(m, ShmDriverShutdown | ShmLeaseRevoked)]

    def test_of_many_that_start_at_once_one_wins(
        self, media: EmbeddedMediaDriver, base: Path, client: RawClient
    ) -> None:
        processes = [DriverProcess(media.aeron_dir, base) for _ in range(4)]
        lines = [process.process.stdout.readline() for process in processes]  # type: ignore[union-attr]
        assert lines.count("serving\n") == 1
        for process, line in zip(processes, lines, strict=True):
            _, errors = process.process.communicate(timeout=30)
            if not line:
                assert process.process.returncode == 1
                winner = processes[lines.index("serving\n")].process.pid
                assert f"another SHM driver, process {winner}" in errors

    @pytest.mark.req("DRV-5-1", "DRV-5-2")
    def test_of_many_producers_one_wins(self, start: StartDriver, media: EmbeddedMediaDriver) -> None:
        start()
        clients = [RawClient(media.aeron_dir) for _ in range(4)]
        codes = [raw.attach(client_id=n).code for n, raw in enumerate(clients, start=1)]
        for raw in clients:
            raw.__exit__()
        assert sorted(codes) == [ResponseCode.OK, *[ResponseCode.REJECTED] * 3]


class TestKilled:
    @pytest.mark.req("DRV-10-4", "DRV-13-2")
    @pytest.mark.parametrize("recreate", [False, True])
    def test_the_next_driver_goes_on_with_higher_epochs(
        self, media: EmbeddedMediaDriver, base: Path, client: RawClient, recreate: bool
    ) -> None:
        with DriverProcess(media.aeron_dir, base) as first:
            before = client.attached()
            first.kill()
        with DriverProcess(media.aeron_dir, base, **{"driver.recreate_on_start": recreate}):
            client.keep_alive(before)
            notice = client.wait_for(ShmLeaseRevoked, lambda message: message.lease_id == before.lease_id)
            assert notice.client_id == 7
            after = client.attached(client_id=8)
            assert (after.epoch or 0) > (before.epoch or 0)
            assert after.lease_id != before.lease_id
            old = Path(_native.parse_region_uri(before.header_region_uri)[0])
            assert not (recreate and old.exists())
            wait(lambda: not old.exists())  # stale, so collected

    def test_many_restarts_leave_nothing(
        self, media: EmbeddedMediaDriver, base: Path, client: RawClient, start: StartDriver
    ) -> None:
        """In this process, so that its descriptors and mappings show what is left."""
        epochs = []

        def resources() -> tuple[int, int, int]:
            maps = Path("/proc/self/maps").read_text().count(str(base))
            return len(list(Path("/proc/self/fd").iterdir())), maps, len(list(base.rglob("*")))

        before: tuple[int, int, int] | None = None
        for n in range(12):
            driver = start()
            lease = client.attached(client_id=100 + n)
            epochs.append(lease.epoch)
            driver.close()
            if n == 4:
                before = resources()
        after = resources()
        assert epochs == sorted(set(epochs))
        assert before is not None
        assert after[1] == before[1] == 0
        assert after[2] == before[2]
        assert after[0] <= before[0] + 4


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
class TestFullMemory:
    @pytest.fixture
    def small(self, tmp_path: Path) -> Iterator[Path]:
        directory = tmp_path / "small"
        directory.mkdir()
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=2m", "none", directory], check=False, capture_output=True
        )
        if mounted.returncode:
            pytest.skip(f"can't mount: {mounted.stderr!r}")
        try:
            yield directory
        finally:
            subprocess.run(["umount", "--lazy", directory], check=True)

    @pytest.mark.req("DRV-4.6-5")
    def test_is_refused_with_words_and_leaves_nothing(
        self, small: Path, client: RawClient, start: StartDriver
    ) -> None:
        driver = start(**{"shm.shm_base_dir": str(small), "driver.default_pools": [1 << 20]})
        response = client.attach()
        assert response.code is ResponseCode.INTERNAL_ERROR
        assert "no room" in response.error_message
        assert len(response.error_message) <= 1024
        assert not list(Path(driver.directory).glob("10000/*"))
        resolve = ResolveStream(
            1, 8, role=Role.PRODUCER, stream_id=10_001, nslots=4, pools=(StreamPool(4096),)
        )
        client.ask(StreamResolved, resolve)
        lease = client.attached(10_001, client_id=8)
        # Memory that is full later harms nobody who has his.
        with pytest.raises(OSError, match="No space left"):
            (small / "filler").write_bytes(bytes(4 << 20))
        announce = client.announce_above(0, 10_001)
        with _native.RingWriter(ring_address(announce), base_dirs=[small]) as writer:
            for _ in range(8):
                writer.publish(np.zeros(4096, "u1"))
        client.detach(lease, 8)
        # Its next epoch may not fit; it comes when there is room again.
        (small / "filler").unlink()
        client.announce_above(lease.epoch or 0, 10_001)


def test_ordinary_file_systems_work(tmp_path: Path, client: RawClient, start: StartDriver) -> None:
    driver = start(**{"shm.shm_base_dir": str(tmp_path)})
    lease = client.attached(mode=PublishMode.EXISTING_OR_CREATE)
    announce = client.announce_above((lease.epoch or 0) - 1)
    with _native.RingWriter(ring_address(announce), base_dirs=[tmp_path]) as writer:
        writer.publish(np.zeros(10, "u1"))
    driver.close()
    assert not list(Path(driver.directory).glob("[0-9]*"))
    shutil.rmtree(Path(driver.directory).parent)


def test_five_hundred_attaches(client: RawClient, start: StartDriver) -> None:
    # The first lease must not be over before the last attach, which may take as long as is allowed below.
    driver = start(**{"driver.max_attaches_per_second": 10_000, "driver.keepalive_interval_ms": 10_000})
    started = time.monotonic()
    for n in range(500):
        client.attached(10_000 + n, client_id=1 + n)
    took = time.monotonic() - started
    print(f"500 attaches in {took:.2f} s")
    assert driver.status().producer_count == 500
    assert took < 15.0  # the goal is 3 s on an idle machine; the benchmark measures it
