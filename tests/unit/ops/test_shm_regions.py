"""Finding, viewing and verifying regions: real files, good ones and hostile ones."""

import os
import random
import struct
from pathlib import Path

import numpy as np
import pytest

from tensor_pool import _native
from tensor_pool.errors import RegionError
from tensor_pool.ops.shm.regions import find_epochs, read_epoch, read_region
from tensor_pool.ops.shm.ring_view import SlotState, draw, view_ring
from tensor_pool.ops.shm.verify import verify_epoch

NSLOTS = 16


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return tmp_path / "shm"


def make_epoch(base: Path, stream_id: int = 10000, epoch: int = 7, frames: int = 0) -> Path:
    directory = base / "tensorpool-ada" / "default" / str(stream_id) / str(epoch)
    directory.mkdir(parents=True)
    address = _native.create_ring(
        directory, stream_id=stream_id, epoch=epoch, nslots=NSLOTS, pools=[(1, 1024), (2, 4096)]
    )
    with _native.RingWriter(address, base_dirs=[directory]) as writer:
        for value in range(frames):
            writer.publish(np.full((4, 5), value, "float32"))
    return directory


def poke(file: Path, offset: int, data: bytes) -> None:
    with file.open("r+b") as opened:
        opened.seek(offset)
        opened.write(data)


def problems(directory: Path) -> list[str]:
    return [flaw.what for flaw in verify_epoch(read_epoch(directory)) if flaw.severity == "problem"]


class TestFinding:
    def test_epochs_come_by_stream_and_number(self, base: Path) -> None:
        for stream_id, epoch in [(20000, 1), (10000, 10), (10000, 9)]:
            make_epoch(base, stream_id, epoch)
        found = [(folder.stream_id, folder.epoch) for folder in find_epochs([str(base), str(base)])]

        assert found == [(10000, 9), (10000, 10), (20000, 1)]

    def test_an_epoch_knows_what_it_holds(self, base: Path) -> None:
        (folder,) = find_epochs([str(make_epoch(base).parents[3])])

        assert (folder.user, folder.namespace, folder.stream_id, folder.epoch) == ("ada", "default", 10000, 7)
        assert [region.name for region in folder.regions] == ["header.ring", "1.pool", "2.pool"]
        assert folder.superblock is not None
        assert folder.superblock.pid == os.getpid()
        assert folder.size_bytes == 3 * 64 + NSLOTS * (256 + 1024 + 4096)
        assert folder.activity_ns is not None

    def test_what_is_no_epoch_is_passed_by(self, base: Path) -> None:
        directory = make_epoch(base)
        (base / "other" / "default" / "1" / "1").mkdir(parents=True)
        (base / "tensorpool-ada" / "default" / "driver.lock").touch()
        (base / "tensorpool-ada" / "default" / "10000" / "7.new").mkdir()
        (base / "tensorpool-ada" / "default" / "10000" / "8").symlink_to(directory)

        assert [folder.epoch for folder in find_epochs([str(base)])] == [7]
        assert list(find_epochs([str(base / "missing")])) == []

    @pytest.mark.parametrize("path", ["/", "/dev/shm", "/dev/shm/tensorpool-ada/default/x/7", "7"])
    def test_another_directory_is_refused_with_the_layout(self, path: str) -> None:
        with pytest.raises(RegionError, match="STREAM_ID/EPOCH"):
            read_epoch(Path(path))

    @pytest.mark.parametrize("kind", ["fifo", "link", "directory", "missing", "short", "zeros"])
    def test_a_file_that_is_no_region_is_told_and_never_waited_for(self, tmp_path: Path, kind: str) -> None:
        file = tmp_path / "header.ring"
        match kind:
            case "fifo":
                os.mkfifo(file)
            case "link":
                file.symlink_to("/etc/passwd")
            case "directory":
                file.mkdir()
            case "short":
                file.write_bytes(b"1MHSLPOT")
            case "zeros":
                file.write_bytes(bytes(64))
        region = read_region(file)

        assert region.superblock is None
        assert region.flaw


class TestView:
    def test_slots_are_counted_and_drawn(self, base: Path) -> None:
        directory = make_epoch(base, frames=5)
        ring = read_epoch(directory).ring
        assert ring is not None
        view = view_ring(ring)

        assert (view.committed, view.in_progress, view.empty, view.damaged) == (5, 0, NSLOTS - 5, 0)
        assert (view.oldest_seq, view.newest_seq) == (0, 4)
        assert view.strip == "====N" + "." * (NSLOTS - 5)

    def test_a_ring_that_went_round(self, base: Path) -> None:
        ring = read_epoch(make_epoch(base, frames=NSLOTS + 3)).ring
        assert ring is not None
        view = view_ring(ring, width=8)

        assert (view.oldest_seq, view.newest_seq, view.committed) == (3, NSLOTS + 2, NSLOTS)
        assert view.strip == "=N======"

    def test_slots_in_progress_and_damaged_ones_show(self, base: Path) -> None:
        directory = make_epoch(base, frames=3)
        poke(directory / "header.ring", 64 + 256, struct.pack("<Q", (NSLOTS + 1) << 1))
        poke(directory / "header.ring", 64 + 2 * 256 + 60, bytes([255] * 196))
        ring = read_epoch(directory).ring
        assert ring is not None
        view = view_ring(ring)

        assert view.strip.startswith("Nw?.")
        assert (view.in_progress, view.damaged) == (1, 1)

    def test_a_file_that_claims_too_much_ends_where_it_ends(self, base: Path) -> None:
        directory = make_epoch(base, frames=3)
        poke(directory / "header.ring", 28, struct.pack("<I", 2**31))
        view = view_ring(read_region(directory / "header.ring"))

        assert (view.slots, view.looked_at, view.committed) == (2**31, NSLOTS, 3)

    def test_what_people_look_for_wins_in_a_short_strip(self) -> None:
        states = [SlotState.EMPTY] * 6 + [SlotState.IN_PROGRESS, SlotState.COMMITTED]

        assert draw(states, 2) == ".w"
        assert draw([], 8) == ""


class TestVerify:
    def test_a_good_epoch_has_no_flaw(self, base: Path) -> None:
        assert verify_epoch(read_epoch(make_epoch(base, frames=NSLOTS + 5))) == []

    def test_a_frame_in_the_wrong_slot(self, base: Path) -> None:
        directory = make_epoch(base, frames=2)
        ring = directory / "header.ring"
        slot = ring.read_bytes()[64 : 64 + 256]
        poke(ring, 64 + 256, slot)

        assert problems(directory) == ["slot 1: holds frame 0, which belongs into slot 0"]

    @pytest.mark.parametrize(
        ("offset", "data", "what"),
        [
            (8, struct.pack("<I", 5000), "has 5000 bytes, its slot 1024"),
            (12, struct.pack("<I", 9), "is in payload slot 9"),
            (16, struct.pack("<H", 7), "is in pool 7, which there is not"),
            (18, struct.pack("<I", 64), "has a payload offset of 64"),
            (60, struct.pack("<I", 77), "192"),
        ],
    )
    def test_a_slot_that_points_elsewhere(self, base: Path, offset: int, data: bytes, what: str) -> None:
        directory = make_epoch(base, frames=1)
        poke(directory / "header.ring", 64 + offset, data)
        (found,) = problems(directory)

        assert found.startswith("slot 0: ")
        assert what in found

    def test_a_tensor_that_is_larger_than_its_payload(self, base: Path) -> None:
        directory = make_epoch(base, frames=1)
        poke(directory / "header.ring", 64 + 8, struct.pack("<I", 8))
        (found,) = problems(directory)

        assert "reaches over 80 bytes, has 8" in found

    @pytest.mark.parametrize(("name", "keep"), [("header.ring", 1000), ("1.pool", 64), ("2.pool", 100)])
    def test_a_truncated_file(self, base: Path, name: str, keep: int) -> None:
        directory = make_epoch(base, frames=1)
        os.truncate(directory / name, keep)

        assert any("its geometry needs" in what for what in problems(directory))

    def test_an_epoch_under_another_name(self, base: Path) -> None:
        directory = make_epoch(base, epoch=7)
        moved = directory.rename(directory.with_name("8"))

        assert set(problems(moved)) == {"superblock field epoch is 7, expected 8"}
        assert len(problems(moved)) == 3

    def test_pools_of_another_length(self, base: Path) -> None:
        directory = make_epoch(base)
        (directory / "1.pool").unlink()
        other = base / "other"
        other.mkdir()
        _native.create_ring(other, stream_id=10000, epoch=7, nslots=8, pools=[(1, 1024)])
        (other / "1.pool").rename(directory / "1.pool")

        assert f"superblock field nslots is 8, expected {NSLOTS}" in problems(directory)

    def test_missing_parts(self, base: Path) -> None:
        directory = make_epoch(base)
        for pool in directory.glob("*.pool"):
            pool.unlink()
        assert problems(directory) == ["has no payload pool"]
        (directory / "header.ring").unlink()
        assert problems(directory) == ["has no header.ring"]

    def test_strangers_and_open_modes_are_warnings(self, base: Path) -> None:
        directory = make_epoch(base)
        (directory / "notes.txt").touch()
        (directory / "1.pool").chmod(0o666)
        flaws = verify_epoch(read_epoch(directory))

        assert {flaw.severity for flaw in flaws} == {"warning"}
        assert len(flaws) == 2

    def test_many_wrong_slots_are_told_once(self, base: Path) -> None:
        directory = base / "tensorpool-ada" / "default" / "1" / "1"
        directory.mkdir(parents=True)
        _native.create_ring(directory, stream_id=1, epoch=1, nslots=64, pools=[(1, 1024)])
        poke(directory / "header.ring", 64, struct.pack("<Q", 1) * (64 * 32))
        found = problems(directory)

        assert len(found) == 21
        assert found[-1] == "further slots are wrong too"

    def test_random_damage_never_crashes(self, base: Path) -> None:
        seed = int.from_bytes(os.urandom(4), "little")
        print(f"seed {seed}")
        chance = random.Random(seed)
        directory = make_epoch(base, frames=NSLOTS)
        originals = {name: (directory / name).read_bytes() for name in ("header.ring", "1.pool")}
        noticed = 0
        for _ in range(300):
            name = chance.choice(list(originals))
            data = bytearray(originals[name])
            for _ in range(chance.randint(1, 4)):
                data[chance.randrange(64 + 256 if name == "header.ring" else 64)] = chance.randrange(256)
            (directory / name).write_bytes(data[: chance.choice([len(data), chance.randrange(len(data))])])
            folder = read_epoch(directory)
            noticed += bool(verify_epoch(folder))
            if folder.ring is not None and folder.ring.superblock is not None:
                view_ring(folder.ring)
            (directory / name).write_bytes(originals[name])

        assert noticed > 100
        assert problems(directory) == []
