"""When a consumer lets go of what it has mapped, and what it maps next; against files that are damaged."""

from __future__ import annotations

import os
import shutil
import struct
import time
from collections.abc import Iterator

import msgspec
import numpy as np
import pytest

from foreign_driver import ForeignDriver
from pool_hosts import LAYOUTS, mapped_regions, quick_host
from slot_files import header_file, overwrite, pool_file
from tensor_pool import _native
from tensor_pool.errors import FrameOverwrittenError
from tensor_pool.pool.pool import Pool
from tensor_pool.testing import Cluster, wait_until
from tensor_pool.wire.messages import FrameDescriptor
from tensor_pool.wire.shm import SLOT_BYTES, SUPERBLOCK_BYTES

FIELDS = {"magic": (0, "<Q"), "layout_version": (8, "<I"), "epoch": (12, "<Q"), "stream_id": (20, "<I")}
"""Where the superblock has what must not change."""


@pytest.fixture(scope="module", params=list(LAYOUTS))
def bare_host(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with quick_host(request.param, driver=False) as cluster:
        yield cluster


@pytest.fixture
def driver(bare_host: Cluster) -> Iterator[ForeignDriver]:
    with ForeignDriver(bare_host) as foreign:
        yield foreign
    for path in foreign.base.iterdir():
        shutil.rmtree(path)


@pytest.fixture
def pool(bare_host: Cluster) -> Iterator[Pool]:
    with bare_host.connect(driver=False) as connected:
        yield connected


@pytest.fixture
def writer(driver: ForeignDriver) -> Iterator[_native.RingWriter]:
    with _native.RingWriter(driver.address, base_dirs=[driver.base]) as opened:
        yield opened


def frame(value: int) -> np.ndarray:
    return np.full(4, value, "uint32")


def test_where_the_superblock_has_its_fields(driver: ForeignDriver) -> None:
    data = header_file(driver.address).read_bytes()
    found = {name: struct.unpack_from(kind, data, at)[0] for name, (at, kind) in FIELDS.items()}
    assert found == {"magic": 0x544F504C53484D31, "layout_version": 1, "epoch": 1, "stream_id": 10_000}


@pytest.mark.req("WIRE-15.1-8", "WIRE-15.1-9", "WIRE-15.18-5", "DSC-7-5")
@pytest.mark.parametrize("field", list(FIELDS))
@pytest.mark.parametrize("region", ["header", "pool"])
def test_a_superblock_that_changes_ends_the_mapping(
    bare_host: Cluster, driver: ForeignDriver, pool: Pool, field: str, region: str
) -> None:
    """At the next announce everything of the stream is unmapped; what was announced once is not believed."""
    before = mapped_regions(os.getpid(), bare_host)  # the driver's own
    inp = pool.consumer(10_000, wait_s=5)
    assert len(mapped_regions(os.getpid(), bare_host)) > len(before)
    address = driver.address
    path = header_file(address) if region == "header" else pool_file(address)
    at, kind = FIELDS[field]
    good = path.read_bytes()[at : at + struct.calcsize(kind)]
    overwrite(path, at, struct.pack(kind, struct.unpack(kind, good)[0] + 1))
    wait_until(lambda: not inp.mapped, what="it lets go")
    wait_until(lambda: mapped_regions(os.getpid(), bare_host) == before, what="nothing of it stays mapped")
    assert inp.poll() is None
    driver.new_epoch(2)
    wait_until(lambda: inp.stats.epoch == 2, what="the next epoch is mapped")


@pytest.mark.req("WIRE-10.2.1-10", "WIRE-15.2-4", "WIRE-15.21-9", "WIRE-15.21-10")
def test_descriptors_of_other_epochs_bring_no_frame(driver: ForeignDriver, pool: Pool) -> None:
    """Neither before anything is mapped, nor of an epoch that is over or that nobody has announced yet."""

    def describe(*epochs: int, wait: bool = True) -> None:
        for epoch in epochs:
            for seq in range(4):
                driver.ear.say(
                    FrameDescriptor(stream_id=10_000, epoch=epoch, seq=seq), "descriptor", wait=wait
                )

    first, old = driver.announced, _native.RingWriter(driver.address, base_dirs=[driver.base])
    driver.announced = None
    inp = pool.consumer(10_000, attach=False)
    for value in range(3):
        old.publish(frame(value))
    describe(1, wait=False)  # who maps nothing need not even listen
    assert inp.poll(timeout=0.3) is None, "nothing is mapped"
    driver.announced = first
    wait_until(lambda: inp.mapped)
    kept = inp.poll(timeout=5)
    assert kept.seq == 2, "the newest, once there is a mapping"

    second = driver.prepare_epoch(2)
    new = _native.RingWriter(driver.address, base_dirs=[driver.base])
    new.publish(frame(20))
    describe(2, 2**63)
    assert inp.poll(timeout=0.3) is None, "what is not announced does not exist"
    assert (inp.stats.epoch, kept.still_valid()) == (1, True)
    wait_until(lambda: inp.stats.announces_ignored.get("descriptor of a higher epoch") == 8)

    driver.announced = second
    wait_until(lambda: inp.stats.epoch == 2)
    assert not kept.still_valid(), "in flight when its epoch ended"
    old.publish(frame(3))
    describe(1)
    frames = [inp.poll(timeout=5), inp.poll(timeout=0.3)]
    assert frames[0].copy()[0] == 20
    assert frames[1] is None
    assert (inp.stats.drops, inp.stats.remaps) == (0, 1)
    wait_until(lambda: inp.stats.announces_ignored.get("descriptor of a lower epoch") == 4)
    for writer in (old, new):
        writer.close()


@pytest.mark.req("WIRE-7.1-5")
def test_memory_that_nobody_keeps_alive_is_let_go(driver: ForeignDriver, pool: Pool) -> None:
    """Announces go on, but the activity time stamp stands still for longer than the freshness window."""
    inp = pool.consumer(10_000, wait_s=5)
    kept, driver._keepers = driver._keepers, []
    wait_until(lambda: not inp.mapped, 5, what="it lets go")
    driver._keepers = kept
    wait_until(lambda: inp.mapped, 5, what="it maps again")


@pytest.mark.req("WIRE-15.13-3", "WIRE-15.18-6", "WIRE-15.2-5", "DRV-6-7")
def test_files_that_are_made_anew_are_mapped_anew(
    bare_host: Cluster, driver: ForeignDriver, writer: _native.RingWriter, pool: Pool
) -> None:
    """Another inode, another epoch: nothing of the old ring is read, and counting starts over."""
    inp = pool.consumer(10_000, wait_s=5)
    for value in range(3):
        writer.publish(frame(value))
    assert [inp.poll(timeout=5).seq for _ in range(3)] == [0, 1, 2]
    old_inode = header_file(driver.address).stat().st_ino
    shutil.rmtree(driver.base / "epoch-1")
    driver.new_epoch(2, "epoch-1")
    address = driver.address
    assert header_file(address).stat().st_ino != old_inode
    wait_until(lambda: inp.stats.epoch == 2)
    with _native.RingWriter(address, base_dirs=[driver.base]) as second:
        second.publish(frame(7))
        found = inp.poll(timeout=5)
    assert (found.seq, found.info.epoch, found.copy()[0]) == (0, 2, 7)
    assert (inp.stats.drops, inp.stats.remaps) == (0, 1)


@pytest.mark.req("WIRE-15.18-3")
class TestTheOrderOfReading:
    """A failure at any step drops the frame, with its reason; the next one is read."""

    @pytest.fixture
    def inp(self, pool: Pool, driver: ForeignDriver, writer: _native.RingWriter):
        return pool.consumer(10_000, start="oldest", wait_s=5)

    def test_first_look_at_the_commit_word(self, inp, driver: ForeignDriver, writer) -> None:
        claim = writer.claim((4,), 6)
        assert inp.poll(timeout=0.1) is None
        claim.abort()
        writer.publish(frame(1))
        assert inp.poll(timeout=5).copy()[0] == 1
        assert inp.stats.delivered == 1

    @pytest.mark.parametrize(
        ("offset", "data"),
        [
            pytest.param(16, b"\xff\xff", id="no such pool"),
            pytest.param(8, b"\xff\xff\xff\x7f", id="longer than its slot"),
            pytest.param(64, b"\xff" * (SLOT_BYTES - 64), id="no tensor"),
        ],
    )
    def test_the_header(self, inp, driver: ForeignDriver, writer, *, offset: int, data: bytes) -> None:
        inp.session.reader.seek(1)
        writer.publish(frame(0))
        overwrite(header_file(driver.address), SUPERBLOCK_BYTES + offset, data)
        inp.session.reader.seek(0)
        writer.publish(frame(1))
        assert inp.poll(timeout=5).copy()[0] == 1
        assert sum(inp.stats.drops_by_reason.values()) == 1
        assert inp.stats.drops_late == 0

    def test_second_look_at_the_commit_word(self, inp, driver: ForeignDriver, writer) -> None:
        writer.publish(frame(0))
        found = inp.poll(timeout=5)
        for value in range(1, 9):  # the ring has eight slots
            writer.publish(frame(value))
        with pytest.raises(FrameOverwrittenError):
            found.copy()
        assert inp.stats.overwritten == 1


def test_an_announce_of_a_later_epoch_that_lies_costs_nothing(driver: ForeignDriver, pool: Pool) -> None:
    """What is in use stays until something better is really there."""
    inp = pool.consumer(10_000, wait_s=5)
    reader = inp.session.reader
    good = driver.announced
    assert good is not None
    driver.announced = msgspec.structs.replace(good, epoch=9)
    wait_until(lambda: inp.stats.announces_ignored.get("refused region"))
    assert inp.session.reader is reader
    driver.announced = good
    time.sleep(1.2)
    assert inp.mapped
