"""Which epochs may go (decision D8), and that nothing else ever goes."""

import os
from pathlib import Path

import msgspec
import numpy as np
import pytest

from tensor_pool import _native
from tensor_pool.errors import RegionError
from tensor_pool.ops.shm.collect import Moment, Served, judge, lock_holder, newest_epochs, remove
from tensor_pool.ops.shm.regions import EpochFolder, Region, read_epoch
from tensor_pool.ops.shm.survey import survey, this_moment
from tensor_pool.wire.shm import LAYOUT_VERSION, MAGIC, RegionType, ShmRegionSuperblock

S = 1_000_000_000
NOW = Moment(
    monotonic_ns=1_000 * S, realtime_ns=1_700_000_000 * S, stale_after_ns=60 * S, booted_ns=1_699_999_000 * S
)
KEY = (10000, 7)


def folder(activity_ns: int | None, written_ns: int = NOW.realtime_ns - 500 * S) -> EpochFolder:
    superblock = activity_ns is not None and ShmRegionSuperblock(
        magic=MAGIC,
        layout_version=LAYOUT_VERSION,
        epoch=7,
        stream_id=10000,
        region_type=RegionType.HEADER_RING,
        pool_id=0,
        nslots=8,
        slot_bytes=256,
        stride_bytes=0,
        pid=1,
        start_timestamp_ns=1,
        activity_timestamp_ns=activity_ns,
    )
    return EpochFolder(
        path="/dev/shm/tensorpool-ada/default/10000/7",
        user="ada",
        namespace="default",
        stream_id=10000,
        epoch=7,
        modified_ns=written_ns,
        ring=Region(name="header.ring", path="x", modified_ns=written_ns, superblock=superblock or None),
    )


ACTIVE, STALE = NOW.monotonic_ns - S, NOW.monotonic_ns - 61 * S
DRIVER = Served(answered=True)


@pytest.mark.parametrize(
    ("activity_ns", "served", "circumstances", "state"),
    [
        (ACTIVE, Served(), {}, "live"),
        (ACTIVE, DRIVER, {}, "live"),
        (NOW.monotonic_ns - 60 * S + 1, Served(), {}, "live"),
        (NOW.monotonic_ns - 60 * S, Served(), {}, "stale"),
        (STALE, DRIVER, {}, "stale"),
        (STALE, DRIVER, {"is_newest": True}, "stale"),
        (STALE, DRIVER, {"is_newest": True, "pid_alive": True, "lock_pid": 5}, "stale"),
        (STALE, Served(answered=True, current=frozenset({KEY})), {}, "current"),
        (STALE, Served(answered=True, leases={KEY: 2}), {}, "leased"),
        (STALE, Served(answered=True, current=frozenset({(10000, 8)}), leases={(10000, 8): 1}), {}, "stale"),
        (STALE, Served(), {"is_newest": True}, "stale"),
        (STALE, Served(), {"is_newest": True, "pid_alive": True}, "kept"),
        (STALE, Served(), {"is_newest": True, "lock_pid": 5}, "kept"),
        (STALE, Served(), {"pid_alive": True, "lock_pid": 5}, "stale"),
        (NOW.monotonic_ns + 5 * S, Served(), {}, "kept"),
        (NOW.monotonic_ns + S // 2, Served(), {}, "live"),
        (None, Served(), {}, "damaged"),
    ],
)
def test_what_an_epoch_is(
    activity_ns: int | None, served: Served, circumstances: dict[str, object], state: str
) -> None:
    verdict = judge(folder(activity_ns), NOW, served=served, **{"is_newest": False, **circumstances})

    assert verdict.state == state
    assert verdict.collectable == (state in {"stale", "damaged"})
    assert verdict.reason


def test_what_is_left_from_before_a_reboot_is_stale_whatever_its_clock_said() -> None:
    before = folder(10_000 * S, written_ns=NOW.booted_ns - S)

    assert judge(before, NOW, served=Served(), is_newest=True).state == "stale"


def test_a_half_made_epoch_is_left_alone_while_it_is_fresh() -> None:
    fresh = folder(None, written_ns=NOW.realtime_ns - S)

    assert judge(fresh, NOW, served=Served(), is_newest=True).state == "live"


def test_the_holder_of_a_namespace_is_found_without_touching_its_lock(tmp_path: Path) -> None:
    import fcntl

    with (tmp_path / "driver.lock").open("w") as lock:
        assert lock_holder(tmp_path, Path("/proc/locks").read_text()) is None
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert lock_holder(tmp_path, Path("/proc/locks").read_text()) == os.getpid()
    assert lock_holder(tmp_path, Path("/proc/locks").read_text()) is None
    assert lock_holder(tmp_path / "missing", "") is None


def test_the_newest_epoch_of_each_stream() -> None:
    epochs = [
        msgspec.structs.replace(folder(1), epoch=epoch, path=f"/x/{stream}/{epoch}")
        for stream, epoch in [(1, 9), (1, 10), (2, 3)]
    ]

    assert newest_epochs(epochs) == {"/x/1/10", "/x/2/3"}


def make_epoch(base: Path, epoch: int) -> Path:
    directory = base / "tensorpool-ada" / "default" / "10000" / str(epoch)
    directory.mkdir(parents=True)
    _native.create_ring(directory, stream_id=10000, epoch=epoch, nslots=8, pools=[(1, 1024)])
    return directory


class TestRemove:
    def test_files_and_directory_go_the_stream_stays(self, tmp_path: Path) -> None:
        directory = make_epoch(tmp_path, 7)
        found = read_epoch(directory)

        assert remove(found) == found.allocated_bytes > 0
        assert not directory.exists()
        assert directory.parent.is_dir()

    def test_one_that_came_to_life_is_left(self, tmp_path: Path) -> None:
        directory = make_epoch(tmp_path, 7)
        found = read_epoch(directory)
        address = _native.RingAddress(
            stream_id=10000,
            epoch=7,
            nslots=8,
            header_uri=_native.format_region_uri(str(directory / "header.ring")),
            pools=[(1, 1024, _native.format_region_uri(str(directory / "1.pool")))],
        )
        with _native.RingWriter(address, base_dirs=[directory]) as writer:
            writer.publish(np.zeros(3, "uint8"))

        with pytest.raises(RegionError, match="changed since"):
            remove(found)
        assert (directory / "header.ring").exists()

    def test_other_peoples_files_are_left(self, tmp_path: Path) -> None:
        directory = make_epoch(tmp_path, 7)
        (directory / "notes.txt").write_text("mine")

        with pytest.raises(RegionError, match=r"notes\.txt"):
            remove(read_epoch(directory))
        assert sorted(path.name for path in directory.iterdir()) == ["1.pool", "header.ring", "notes.txt"]

    def test_a_file_that_appears_meanwhile_saves_all(self, tmp_path: Path) -> None:
        directory = make_epoch(tmp_path, 7)
        found = read_epoch(directory)
        (directory / "notes.txt").write_text("mine")

        with pytest.raises(RegionError):
            remove(found)
        assert len(list(directory.iterdir())) == 3

    def test_one_that_is_gone_is_an_error_and_no_crash(self, tmp_path: Path) -> None:
        found = read_epoch(make_epoch(tmp_path, 7))
        remove(found)

        with pytest.raises(RegionError):
            remove(found)


def test_a_survey_says_everything_about_real_epochs(tmp_path: Path) -> None:
    for epoch in (7, 8):
        make_epoch(tmp_path, epoch)
    served = Served(answered=True, current=frozenset({(10000, 8)}), leases={(10000, 8): 3})
    old, current = survey([str(tmp_path)], this_moment(stale_after_s=60), served)

    assert (old.row.state, old.row.newest, old.row.leases) == ("live", False, 0)
    assert (current.row.state, current.row.newest, current.row.leases) == ("current", True, 3)
    assert current.row.pid == os.getpid()
    assert current.row.pid_alive is True
    assert current.row.activity_age_s is not None
    assert 0 <= current.row.activity_age_s < 60
    assert current.row.bytes == 2 * 64 + 8 * (256 + 1024)
