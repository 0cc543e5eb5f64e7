"""``tpool shm``: listing, inspecting, verifying and cleaning up real files."""

import io
import json
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tensor_pool import _native
from tensor_pool.driver.files import effective_user_name, safe_user_name


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return tmp_path / "shm"


def make_epoch(
    base: Path,
    stream_id: int,
    epoch: int,
    *,
    stale: bool = False,
    user: str = "ada",
    namespace: str = "default",
) -> Path:
    directory = base / f"tensorpool-{user}" / namespace / str(stream_id) / str(epoch)
    directory.mkdir(parents=True)
    address = _native.create_ring(directory, stream_id=stream_id, epoch=epoch, nslots=8, pools=[(1, 1024)])
    with _native.RingWriter(address, base_dirs=[directory]) as writer:
        for _ in range(3):
            writer.publish(np.zeros((2, 3), "uint16"))
    if stale:
        for file in directory.iterdir():
            with file.open("r+b") as opened:
                opened.seek(56)
                opened.write(struct.pack("<Q", 1))
    return directory


def places(base: Path) -> list[str]:
    return ["--set", f"shm.shm_base_dir={base}", "--aeron-dir", str(base / "no-aeron")]


class TestLs:
    def test_all_formats_have_the_same_rows(self, tpool: Callable, base: Path) -> None:
        make_epoch(base, 10000, 7, stale=True)
        directory = make_epoch(base, 10000, 8)
        as_json = json.loads(tpool("shm", "ls", "--format", "json", *places(base)).out)
        lines = tpool("shm", "ls", "--format", "jsonl", *places(base)).out.splitlines()
        table = tpool("shm", "ls", *places(base)).out.splitlines()

        assert [row["state"] for row in as_json] == ["stale", "live"]
        assert [json.loads(line)["epoch"] for line in lines] == [7, 8]
        assert table[0].startswith("USER  NAMESPACE  STREAM ID  EPOCH  STATE")
        assert len(table) == 3
        assert as_json[1]["path"] == str(directory)
        assert as_json[1]["leases"] is None, "nobody was asked"

    def test_nothing_is_an_empty_list(self, tpool: Callable, base: Path) -> None:
        assert tpool("shm", "ls", "--format", "json", *places(base)) == (0, "[]\n", "")


class TestInspect:
    def test_by_stream_it_is_the_newest_epoch(self, tpool: Callable, base: Path) -> None:
        make_epoch(base, 10000, 7)
        directory = make_epoch(base, 10000, 8)
        found = json.loads(tpool("shm", "inspect", "10000", "--format", "json", *places(base)).out)

        assert found["path"] == str(directory)
        assert found["superblock"]["region_type"] == "HEADER_RING"
        assert (found["slots"]["committed"], found["slots"]["newest_seq"]) == (3, 2)
        assert found["slots"]["strip"] == "==N....."
        assert found["pools"][0]["stride_bytes"] == 1024

    def test_by_directory_with_a_strip_for_people(self, tpool: Callable, base: Path) -> None:
        directory = make_epoch(base, 10000, 7)
        lines = tpool("shm", "inspect", str(directory), "--width", "8", *places(base)).out.splitlines()

        assert "==N....." in lines
        assert lines[-1].startswith("N newest, = committed")
        assert "newest_seq             2" in lines

    def test_an_unknown_stream_says_what_to_try(self, tpool: Callable, base: Path) -> None:
        outcome = tpool("shm", "inspect", "4", *places(base))

        assert outcome.code == 1
        assert outcome.err.splitlines() == [
            f"error: stream 4 has no epoch below {base}",
            "  try: `tpool shm ls` lists what there is",
        ]

    def test_the_same_id_elsewhere_is_another_stream(self, tpool: Callable, base: Path) -> None:
        user = safe_user_name(effective_user_name())
        ours = make_epoch(base, 20000, 7, user=user)
        make_epoch(base, 20000, 8, user=user, namespace="embedded-1")
        make_epoch(base, 20000, 9)
        found = json.loads(tpool("shm", "inspect", "20000", "--format", "json", *places(base)).out)

        assert found["path"] == str(ours)

    @pytest.mark.parametrize("command", ["inspect", "verify"])
    def test_what_several_others_have_must_be_told_apart(
        self, tpool: Callable, base: Path, command: str
    ) -> None:
        ada, bob = make_epoch(base, 20000, 7), make_epoch(base, 20000, 8, user="bob")
        outcome = tpool("shm", command, "20000", *places(base))

        assert outcome.code == 2
        assert f"2 other places have one: {ada}, {bob}" in outcome.err
        assert "try: give the path of the one that is meant" in outcome.err

    def test_a_name_is_no_place(self, tpool: Callable, base: Path) -> None:
        outcome = tpool("shm", "inspect", "depth", *places(base))

        assert outcome.code == 2
        assert outcome.err.startswith("error: 'depth' is neither a stream id nor the directory of an epoch\n")

    def test_what_can_not_be_read_says_why(self, tpool: Callable, base: Path) -> None:
        directory = make_epoch(base, 10000, 7)
        (directory / "header.ring").write_bytes(bytes(64))
        outcome = tpool("shm", "inspect", str(directory), *places(base))

        assert outcome.code == 1
        assert "holds no ring that can be read" in outcome.err
        assert "tpool shm verify" in outcome.err


class TestVerify:
    def test_good_epochs(self, tpool: Callable, base: Path) -> None:
        make_epoch(base, 10000, 7)

        assert tpool("shm", "verify", *places(base)) == (0, "1 epoch, 0 flaws\n", "")
        assert tpool("shm", "verify", "10000", "--format", "json", *places(base)).out == "[]\n"

    def test_a_flaw_is_exit_code_1(self, tpool: Callable, base: Path) -> None:
        directory = make_epoch(base, 10000, 7)
        (directory / "1.pool").unlink()
        outcome = tpool("shm", "verify", *places(base), "--format", "jsonl")

        assert outcome.code == 1
        assert json.loads(outcome.out)["what"] == "has no payload pool"

    @pytest.mark.parametrize(
        ("content", "what"),
        [
            (bytes(64), "must begin with the number 0x544f504c53484d31, and begins with 0x0"),
            (bytes(7), "must begin with a superblock of 64 bytes, and has only 7 bytes"),
        ],
    )
    def test_it_says_what_must_be_and_what_is(
        self, tpool: Callable, base: Path, content: bytes, what: str
    ) -> None:
        directory = make_epoch(base, 10000, 7)
        (directory / "header.ring").write_bytes(content)
        outcome = tpool("shm", "verify", str(directory), *places(base), "--format", "json")

        assert [flaw["what"] for flaw in json.loads(outcome.out)] == [what]


class TestGc:
    def test_a_dry_run_removes_nothing(self, tpool: Callable, base: Path) -> None:
        stale, live = make_epoch(base, 10000, 7, stale=True), make_epoch(base, 10000, 8)
        outcome = tpool("shm", "gc", "--dry-run", "--format", "json", *places(base))
        (row,) = json.loads(outcome.out)

        assert (outcome.code, row["action"], row["path"]) == (0, "would go", str(stale))
        assert stale.exists()
        assert live.exists()

    def test_only_stale_ones_go(self, tpool: Callable, base: Path) -> None:
        stale, live = make_epoch(base, 10000, 7, stale=True), make_epoch(base, 10000, 8)
        outcome = tpool("shm", "gc", "--yes", *places(base))

        assert outcome.code == 0
        assert "removed" in outcome.out
        assert not stale.exists()
        assert live.exists()
        assert tpool("shm", "gc", "--yes", *places(base)).out == "nothing to remove\n"

    def test_the_newest_one_of_a_living_process_stays(self, tpool: Callable, base: Path) -> None:
        directory = make_epoch(base, 10000, 7, stale=True)  # its pid is that of this test

        assert tpool("shm", "gc", "--yes", *places(base)).out == "nothing to remove\n"
        assert directory.exists()
        (row,) = json.loads(tpool("shm", "ls", "--format", "json", *places(base)).out)
        assert (row["state"], row["reason"]) == (
            "kept",
            "newest of its stream, and its process still exists",
        )

    def test_without_an_answer_nothing_goes(
        self, tpool: Callable, base: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stale, _ = make_epoch(base, 10000, 7, stale=True), make_epoch(base, 10000, 8)
        monkeypatch.setattr("click.termui.visible_prompt_func", lambda prompt="": "")
        outcome = tpool("shm", "gc", *places(base))

        assert outcome.code == 1
        assert str(stale) in outcome.err, "it says what it asks about"
        assert "kept" in outcome.out
        assert stale.exists()

    @pytest.mark.parametrize("answer", ["", "n\n"])
    def test_who_can_not_answer_is_told_how_to(
        self, tpool: Callable, base: Path, monkeypatch: pytest.MonkeyPatch, answer: str
    ) -> None:
        stale, _ = make_epoch(base, 10000, 7, stale=True), make_epoch(base, 10000, 8)
        monkeypatch.setattr("sys.stdin", io.StringIO(answer))
        outcome = tpool("shm", "gc", *places(base))

        assert outcome.code == 1
        assert (
            outcome.err.splitlines()[-1] == "nothing was done; give --yes where standard input is no terminal"
        )
        assert stale.exists()

    def test_what_can_not_go_is_exit_code_1_and_the_rest_goes(self, tpool: Callable, base: Path) -> None:
        odd, stale = make_epoch(base, 10000, 6, stale=True), make_epoch(base, 10000, 7, stale=True)
        make_epoch(base, 10000, 8)
        (odd / "notes.txt").touch()
        outcome = tpool("shm", "gc", "--yes", "--format", "json", *places(base))

        assert outcome.code == 1
        assert {row["epoch"]: row["action"] for row in json.loads(outcome.out)} == {
            6: "failed",
            7: "removed",
        }
        assert "notes.txt" in outcome.err
        assert odd.exists()
        assert not stale.exists()

    def test_patience_has_a_lower_limit(self, tpool: Callable, base: Path) -> None:
        assert tpool("shm", "gc", "--older-than", "0", *places(base)).code == 2
