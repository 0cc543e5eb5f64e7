"""A recorder that is switched by commands: what it is while it changes."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import tensor_pool as tp
from tensor_pool.pipeline.record import commanded
from tensor_pool.pipeline.record.commanded import CommandedRecorder
from tensor_pool.pipeline.record.options import StreamProgress
from tensor_pool.testing import wait_until


class SlowToSeal:
    """Stands for a recorder whose disk takes its time at the end."""

    sealed = threading.Event()

    def __init__(self, *_: object) -> None:
        self.is_running = True
        self.progress = {"camera": StreamProgress(frames=3)}

    def close(self) -> None:
        self.is_running = False
        assert self.sealed.wait(30)


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(commanded, "Recorder", SlowToSeal)
    SlowToSeal.sealed.clear()
    with tp.connect(embedded=True) as pool, CommandedRecorder(pool, ["camera"], tmp_path) as recorder:
        yield recorder
        SlowToSeal.sealed.set()


def test_it_goes_on_while_it_seals(recorder: CommandedRecorder) -> None:
    with tp.ControlClient(aeron_dir=recorder._pool.aeron_dir) as control:
        control.send("recorder", "record.enable", value=False)
        wait_until(lambda: not recorder.is_active)
        assert recorder.is_running, "it may be told to go on"
        SlowToSeal.sealed.set()
        wait_until(lambda: recorder._recorder is None)
        assert recorder.is_running
        control.send("recorder", "record.enable", value=True)
        wait_until(lambda: recorder.is_active)
        assert recorder.progress["camera"].frames == 6, "all times together"


def test_one_that_ended_by_itself_has_ended(recorder: CommandedRecorder) -> None:
    assert recorder.is_running
    recorder._recorder.is_running = False
    assert not recorder.is_running
