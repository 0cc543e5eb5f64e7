"""Directories and files of epochs: where they are, who may open them, and that none is ever half made."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from tensor_pool import _native
from tensor_pool.config import ShmSection
from tensor_pool.driver import files as files_module
from tensor_pool.driver.files import EpochFiles, FoundEpoch, namespace_directory, safe_user_name
from tensor_pool.errors import ConfigError, RegionError
from tensor_pool.pool.sizing import Geometry

SMALL = Geometry(8, (64, 4096))


def make(
    base: Path, *, group: str = "", user: str | None = None, instance_id: str = "", **shm: Any
) -> EpochFiles:
    section = ShmSection(shm_base_dir=str(base), **shm)
    files = EpochFiles(section, group=group, user=user, instance_id=instance_id)
    files.prepare()
    return files


class TestLayout:
    @pytest.mark.req("WIRE-15.21a.3-1", "WIRE-15.21a.3-5", "WIRE-15.21a.2-1", "DRV-14-1", "DRV-3-2")
    def test_user_namespace_stream_and_epoch(self, base: Path) -> None:
        files = make(base, user="ada", namespace="lab")
        epoch = files.create(10_000, 77, SMALL, allocate=True)
        directory = base / "tensorpool-ada" / "lab" / "10000" / "77"
        assert sorted(path.name for path in directory.iterdir()) == ["1.pool", "2.pool", "header.ring"]
        assert epoch.address.header_uri == f"shm:file?path={directory}/header.ring"
        assert [(p, u) for p, _, u in epoch.address.pools] == [
            (n, f"shm:file?path={directory}/{n}.pool") for n in (1, 2)
        ]

    @pytest.mark.req("WIRE-15.21a.3-2")
    def test_the_user_is_the_effective_one(self, base: Path) -> None:
        name = files_module.effective_user_name()
        assert make(base).directory.parent.name == f"tensorpool-{safe_user_name(name)}"

    @pytest.mark.req("WIRE-15.21a.3-3")
    @pytest.mark.parametrize(
        "user", ["../../etc", "..", ".", "", "a/b", "a\0b", "-x", "a|b?c", "ü", "x" * 300]
    )
    def test_no_user_leads_elsewhere(self, base: Path, user: str) -> None:
        directory = make(base, user=user).directory
        assert directory.parent.parent == base
        assert directory.is_dir()
        assert directory.resolve() == directory
        _native.format_region_uri(str(directory))  # and every URI can name it

    @pytest.mark.req("WIRE-15.21a.3-4")
    def test_the_namespace_is_configured(self, base: Path) -> None:
        assert make(base, namespace="lab1").directory.name == "lab1"

    @pytest.mark.req("DRV-14-2")
    def test_the_instance_is_part_of_it(self, base: Path) -> None:
        first, second = make(base, instance_id="a"), make(base, instance_id="b")
        assert (first.directory.name, second.directory.name) == ("default-a", "default-b")

    @pytest.mark.req("WIRE-15.21a.3-6")
    def test_names_stay_the_same(self, base: Path) -> None:
        files = make(base)
        names = []
        for number in (1, 2):
            files.create(10_000, number, SMALL, allocate=False)
            names.append(sorted(path.name for path in (files.directory / "10000" / str(number)).iterdir()))
        assert names[0] == names[1]

    @pytest.mark.req("DRV-9-2")
    def test_the_base_directory_is_made_canonical(self, base: Path) -> None:
        real = base / "real"
        real.mkdir()
        (base / "link").symlink_to(real)
        directory = namespace_directory(ShmSection(shm_base_dir=str(base / "link")), user="ada")
        assert directory == real / "tensorpool-ada" / "default"


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


class TestModes:
    @pytest.mark.req("WIRE-15.21a.6-1", "WIRE-15.10-2")
    @pytest.mark.parametrize(
        ("permissions", "directory_mode", "file_mode"), [("private", 0o700, 0o600), ("group", 0o2770, 0o660)]
    )
    def test_of_directories_and_files(
        self, base: Path, permissions: str, directory_mode: int, file_mode: int
    ) -> None:
        before = os.umask(0)
        try:
            files = make(base, permissions=permissions)
            files.create(10_000, 1, SMALL, allocate=True)
        finally:
            os.umask(before)
        for path in (
            files.directory.parent,
            files.directory,
            files.directory / "10000",
            files.directory / "10000/1",
        ):
            assert stat.S_IMODE(path.stat().st_mode) == directory_mode
        for path in (files.directory / "10000" / "1").iterdir():
            assert stat.S_IMODE(path.stat().st_mode) == file_mode

    @pytest.mark.skipif(os.geteuid() != 0, reason="giving files to another group needs root")
    def test_a_group_of_the_configuration(self, base: Path) -> None:
        files = make(base, permissions="group", group="12345")
        files.create(10_000, 1, SMALL, allocate=True)
        directory = files.directory / "10000" / "1"
        assert {path.stat().st_gid for path in (directory, *directory.iterdir())} == {12345}

    def test_a_private_driver_locks_nobody_out_of_another(self, base: Path) -> None:
        """All drivers of a user share a directory; one that is embedded must not close it to a group."""
        shared = make(base, permissions="group", instance_id="shared")
        private = make(base, permissions="private", instance_id="private")
        private.take()
        assert mode_of(shared.directory.parent) == 0o2750, "the group gets through, and can't write"
        assert mode_of(shared.directory) == 0o2770
        assert mode_of(private.directory) == 0o700

    def test_rights_of_a_namespace_change_when_it_is_ones_own(self, base: Path) -> None:
        """A second driver learns only afterwards that there is a first."""
        first = make(base, permissions="group")
        second = make(base, permissions="private")
        assert mode_of(first.directory) & 0o070 == 0o050, "readers of the first are still there"
        second.take()
        assert mode_of(first.directory) == 0o700

    @pytest.mark.skipif(os.geteuid() != 0, reason="giving directories to other groups needs root")
    def test_two_groups_get_to_their_own(self, base: Path) -> None:
        first = make(base, permissions="group", group="12345", instance_id="a")
        second = make(base, permissions="group", group="54321", instance_id="b")
        assert mode_of(first.directory.parent) & 0o001, "neither group is locked out"
        assert first.directory.parent.stat().st_gid == 12345
        assert (mode_of(first.directory), first.directory.stat().st_gid) == (0o2770, 12345)
        assert (mode_of(second.directory), second.directory.stat().st_gid) == (0o2770, 54321)

    def test_rights_that_nobody_gives_are_taken_away(self, base: Path) -> None:
        user = base / "tensorpool-ada"
        user.mkdir()
        user.chmod(0o777)
        make(base, user="ada")
        assert mode_of(user) & 0o022 == 0

    def test_a_group_that_does_not_exist(self, base: Path) -> None:
        with pytest.raises(ConfigError, match="no group 'no-such-group'"):
            make(base, group="no-such-group")

    def test_a_group_that_may_not_be_given(self, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_args: object) -> None:
            raise PermissionError(1, "Operation not permitted")

        monkeypatch.setattr(os, "fchown", refuse)
        with pytest.raises(
            ConfigError, match=r"can't be given to group 12345: Operation not permitted"
        ) as caught:
            make(base, permissions="group", group="12345")
        assert "member of" in (caught.value.hint or "")


class TestAttacks:
    @pytest.mark.req("DRV-9-1", "DRV-9-2")
    @pytest.mark.parametrize(
        "at", ["tensorpool-ada", "tensorpool-ada/default", "tensorpool-ada/default/10000"]
    )
    def test_links_in_the_way_are_refused(self, base: Path, at: str) -> None:
        elsewhere = base / "elsewhere"
        elsewhere.mkdir()
        link = base / at
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(elsewhere)
        with pytest.raises(RegionError, match="is not a directory"):
            make(base, user="ada").create(10_000, 1, SMALL, allocate=True)
        assert list(elsewhere.iterdir()) == []

    @pytest.mark.skipif(os.geteuid() != 0, reason="giving a directory away needs root")
    @pytest.mark.req("DRV-9-1")
    def test_a_directory_of_somebody_else(self, base: Path) -> None:
        theirs = base / "tensorpool-ada"
        theirs.mkdir()
        os.chown(theirs, 12345, -1)
        with pytest.raises(RegionError, match="belongs to user 12345"):
            make(base, user="ada")

    @pytest.mark.req("DRV-9-3")
    def test_a_fifo_where_an_epoch_goes(self, base: Path) -> None:
        files = make(base)
        (files.directory / "10000").mkdir()
        os.mkfifo(files.directory / "10000" / "1")
        with pytest.raises(RegionError):
            files.create(10_000, 1, SMALL, allocate=True)
        assert [path.name for path in (files.directory / "10000").iterdir()] == ["1"]

    def test_there_is_no_base_directory(self, base: Path) -> None:
        with pytest.raises(
            RegionError, match=r"there is no directory .*\n   at: shm.shm_base_dir .*SHM_BASE_DIR"
        ):
            make(base / "missing")


class TestCreate:
    @pytest.mark.req("WIRE-15.14-5")
    def test_everything_is_synced_before_it_has_its_name(
        self, base: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        files = make(base)
        steps: list[str] = []
        create, rename, sync = _native.create_ring, Path.rename, os.fsync
        monkeypatch.setattr(
            files_module._native, "create_ring", lambda *a, **k: (steps.append("create"), create(*a, **k))[1]
        )
        monkeypatch.setattr(Path, "rename", lambda s, t: (steps.append("rename"), rename(s, t))[1])
        monkeypatch.setattr(os, "fsync", lambda fd: (steps.append("sync"), sync(fd))[1])
        files.create(10_000, 1, SMALL, allocate=True)
        assert steps == ["create", "sync", "rename", "sync"]

    def test_nothing_is_left_of_what_fails(self, base: Path) -> None:
        files = make(base)
        with pytest.raises(RegionError):
            files.create(10_000, 1, Geometry(3, (64,)), allocate=True)
        assert list(files.directory.iterdir()) == []

    def test_other_epochs_stay_when_one_fails(self, base: Path) -> None:
        files = make(base)
        files.create(10_000, 1, SMALL, allocate=False)
        with pytest.raises(RegionError):
            files.create(10_000, 2, Geometry(3, (64,)), allocate=True)
        assert files.scan() == [FoundEpoch(10_000, 1)]

    def test_the_same_epoch_twice_is_refused(self, base: Path) -> None:
        files = make(base)
        files.create(10_000, 1, SMALL, allocate=False)
        with pytest.raises(RegionError):
            files.create(10_000, 1, SMALL, allocate=False)
        assert files.scan() == [FoundEpoch(10_000, 1)]

    def test_huge_pages_are_looked_for(self, base: Path) -> None:
        files = make(base)
        assert files.has_hugepages is False
        assert list(files.directory.iterdir()) == []


class TestScan:
    def test_finds_epochs_and_clears_away_the_rest(self, base: Path) -> None:
        files = make(base)
        files.create(10_000, 5, SMALL, allocate=False)
        files.create(10_001, 6, SMALL, allocate=False)
        stream = files.directory / "10000"
        (stream / ".7.making").mkdir()
        (stream / ".7.making" / "header.ring").write_bytes(bytes(64))  # allocated, no superblock yet
        (stream / ".4.going").mkdir()
        (stream / "junk").write_text("x")
        (files.directory / "30000").mkdir()
        (files.directory / "notes").mkdir()  # not ours to judge
        assert files.scan() == [FoundEpoch(10_000, 5), FoundEpoch(10_001, 6)]
        assert [path.name for path in stream.iterdir()] == ["5"]
        assert sorted(path.name for path in files.directory.iterdir()) == ["10000", "10001", "notes"]

    def test_does_not_follow_links(self, base: Path) -> None:
        files = make(base)
        precious = base / "precious"
        precious.mkdir()
        (precious / "data").write_text("x")
        (files.directory / "10000").mkdir()
        (files.directory / "10000" / "5").symlink_to(precious)
        (files.directory / "10001").symlink_to(precious)
        assert files.scan() == []
        assert (precious / "data").read_text() == "x"


class TestRemove:
    def test_an_epoch_and_then_its_stream(self, base: Path) -> None:
        files = make(base)
        for number in (1, 2):
            files.create(10_000, number, SMALL, allocate=False)
        files.remove(FoundEpoch(10_000, 1))
        assert files.scan() == [FoundEpoch(10_000, 2)]
        files.remove(FoundEpoch(10_000, 2))
        assert list(files.directory.iterdir()) == []
        files.remove(FoundEpoch(10_000, 2))  # gone already

    def test_streams_that_hold_nothing(self, base: Path) -> None:
        files = make(base)
        files.create(10_000, 1, SMALL, allocate=False)
        (files.directory / "10001").mkdir()
        (files.directory / "notes").mkdir()  # not ours to judge
        (files.directory / "10002").symlink_to(files.directory / "notes")
        files.remove_empty()
        assert sorted(path.name for path in files.directory.iterdir()) == ["10000", "10002", "notes"]

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root may give directories away")
    def test_an_empty_directory_of_somebody_else_stays(self, base: Path) -> None:
        files = make(base)
        (files.directory / "10001").mkdir()
        os.chown(files.directory / "10001", 65534, 65534)
        files.remove_empty()
        assert [path.name for path in files.directory.iterdir()] == ["10001"]

    def test_mapped_ones_stay_readable(self, base: Path) -> None:
        files = make(base)
        epoch = files.create(10_000, 1, SMALL, allocate=True)
        with _native.RingWriter(epoch.address, base_dirs=files.base_dirs) as writer:
            reader = _native.RingReader(epoch.address, base_dirs=files.base_dirs)
            files.remove(FoundEpoch(10_000, 1))
            writer.publish(b"still here")
            frame = reader.poll()
            assert frame is not None
            assert bytes(frame.array) == b"still here"


class TestActivity:
    def test_of_the_superblock(self, base: Path) -> None:
        files = make(base)
        epoch = files.create(10_000, 1, SMALL, allocate=True)
        found = FoundEpoch(10_000, 1)
        before = files.activity(found)
        with _native.RingWriter(epoch.address, base_dirs=files.base_dirs) as writer:
            writer.refresh_activity()
        assert before is not None
        assert (files.activity(found) or 0) > before

    def test_none_where_there_is_nothing_to_read(self, base: Path) -> None:
        files = make(base)
        assert files.activity(FoundEpoch(10_000, 1)) is None
        directory = files.directory / "10000" / "1"
        directory.mkdir(parents=True)
        os.mkfifo(directory / "header.ring")
        assert files.activity(FoundEpoch(10_000, 1)) is None
