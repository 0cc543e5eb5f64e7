"""``tpool replay`` and ``tpool export`` as people type them."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tensor_pool.ops.cli.exit_codes import NO_DRIVER, OK, PROBLEMS, USAGE
from tensor_pool.testing import Cluster
from written_recordings import damage_frame, numbered


@pytest.fixture(scope="module")
def host() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def replay(tpool: Callable, host: Cluster, tmp_path: Path) -> Callable:
    settings = [f"--set={key}={value}" for key, value in host.settings.items()]
    return lambda *arguments: tpool("replay", str(tmp_path / "recording"), *arguments, *settings)


def test_a_replay_says_what_it_did(replay: Callable, tmp_path: Path) -> None:
    numbered(tmp_path / "recording", "a", count=5)
    numbered(tmp_path / "recording", "b", count=5)
    outcome = replay("--rename", "a=other", "--prefix", "again/", "--format", "jsonl")
    assert outcome.code == OK, outcome.err
    rows = [json.loads(line) for line in outcome.out.splitlines()]
    assert [(row["stream"], row["published_as"], row["frames"], row["nbytes"]) for row in rows] == [
        ("a", "other", 5, 60),
        ("b", "again/b", 5, 60),
    ]
    assert rows[0]["seconds"] >= 0.04


def test_a_damaged_frame_is_named_and_not_the_end(replay: Callable, tmp_path: Path) -> None:
    numbered(tmp_path / "recording", count=5)
    damage_frame(tmp_path / "recording", np.full((2, 3), 3, "uint16"))
    outcome = replay("--format", "json")
    assert outcome.code == PROBLEMS
    (row,) = json.loads(outcome.out)
    assert (row["frames"], row["damaged"]) == (4, 1)
    assert "damaged: camera-1: frame 3 of epoch 7" in outcome.err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--stream", "camera-2"], PROBLEMS, "there is no stream camera-2"),
        (["--from", "soon"], USAGE, "'soon' is no moment"),
        (["--from", "5"], PROBLEMS, "no frame to replay"),
        (["--rename", "camera-1"], USAGE, "OLD=NEW"),
        (["--speed", "-1"], USAGE, "--speed"),
    ],
)
def test_what_can_not_be_replayed_is_said(
    replay: Callable, tmp_path: Path, arguments: list[str], code: int, said: str
) -> None:
    numbered(tmp_path / "recording", count=3)
    outcome = replay(*arguments)
    assert (outcome.code, outcome.out) == (code, "")
    assert said in outcome.err


def test_no_recording_and_no_driver(tpool: Callable, replay: Callable, tmp_path: Path) -> None:
    outcome = replay()
    assert outcome.code == PROBLEMS
    assert "there is no recording in" in outcome.err
    numbered(tmp_path / "recording", count=3)
    outcome = tpool("replay", str(tmp_path / "recording"), "--aeron-dir", str(tmp_path / "nothing"))
    assert outcome.code == NO_DRIVER


def test_a_loop_tells_how_far_it_is_and_ends_at_ctrl_c(host: Cluster, tmp_path: Path) -> None:
    numbered(tmp_path / "recording", count=5)
    with host.connect() as pool:
        inp = pool.consumer("loop/camera-1")
        player = host.start(
            *("replay", str(tmp_path / "recording"), "--loop", "--prefix", "loop/"),
            *("--wait-consumers", "1", "--format", "jsonl"),
        )
        for n in range(130):  # more than a second
            frame = inp.poll(timeout=20)
            assert frame is not None, f"frame {n}; {player.errors()}"
        os.kill(player.pid, signal.SIGINT)
        row = json.loads(player.read_line())
        assert player.wait() == OK
    assert row["frames"] >= 130
    assert " of 0.0 s in round " in player.errors()


def test_an_export_says_what_it_did(tpool: Callable, tmp_path: Path) -> None:
    numbered(tmp_path / "recording")
    for file_format in ("parquet", "arrow", "npy", "zarr"):
        out = tmp_path / file_format
        outcome = tpool(
            *("export", file_format, str(tmp_path / "recording"), str(out)),
            *("--from", "0.05", "--to", "0.1", "--format", "jsonl"),
        )
        assert outcome.code == OK, outcome.err
        row = json.loads(outcome.out)
        assert (row["stream"], row["frames"], row["missing"], row["damaged"]) == ("camera-1", 6, 0, 0)
        assert (out / row["file"]).exists()


def test_an_export_with_a_damaged_frame(tpool: Callable, tmp_path: Path) -> None:
    numbered(tmp_path / "recording")
    damage_frame(tmp_path / "recording", np.full((2, 3), 3, "uint16"))
    outcome = tpool("export", "npy", str(tmp_path / "recording"), str(tmp_path / "out"))
    assert outcome.code == PROBLEMS
    assert "damaged: camera-1: frame 3 of epoch 7" in outcome.err
    outcome = tpool("export", "npy", str(tmp_path / "recording"), str(tmp_path / "out"))
    assert outcome.code == USAGE
    assert "--overwrite" in outcome.err
    assert tpool("export", "hdf5", str(tmp_path / "recording"), str(tmp_path / "x")).code == USAGE
