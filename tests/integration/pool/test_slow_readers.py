"""Readers that are too slow for their ring, and readers that only keep frames for too long."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import numpy as np
import pytest

import tensor_pool as tp
from tensor_pool.testing import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SLOTS = 8
FRAME = np.zeros(4, "uint32")


@pytest.fixture(scope="module")
def pool() -> Iterator[tp.Pool]:
    with tp.connect(embedded=True, settings={"client.hello_interval_ms": 50}) as pool:
        yield pool


def publish(out: tp.Producer, count: int) -> None:
    for _ in range(count):
        out.publish(FRAME)


def in_a_block(frame: tp.Frame, work: Callable[[], None]) -> None:
    with contextlib.suppress(tp.FrameOverwrittenError), frame:
        work()


def copied(frame: tp.Frame, work: Callable[[], None]) -> None:
    work()
    with contextlib.suppress(tp.FrameOverwrittenError):
        frame.copy()


def asked_about(frame: tp.Frame, work: Callable[[], None]) -> None:
    work()
    frame.still_valid()


def never_asked_about(_frame: tp.Frame, work: Callable[[], None]) -> None:
    work()


@pytest.mark.parametrize("own_stream", [False, True], ids=["shared", "own"])
@pytest.mark.parametrize("use", [in_a_block, copied, asked_about, never_asked_about])
def test_who_needs_nearly_a_whole_ring_for_a_frame_gets_nearly_all_that_it_takes(
    pool: tp.Pool, use: Callable[[tp.Frame, Callable[[], None]], None], *, own_stream: bool
) -> None:
    """While it works on one, all others are overwritten: only the newest lasts as long."""
    name = f"{use.__name__}-{own_stream}"
    with (
        pool.producer(name, dtype="uint32", shape=(4,), slots=SLOTS) as out,
        pool.consumer(name, own_stream=own_stream, max_outstanding_seq_gap=0) as inp,
    ):
        if own_stream:
            wait_until(lambda: out._session.private_sinks and inp.session.streams.private)
        publish(out, SLOTS)
        for _ in range(40):
            frame = inp.poll(timeout=5.0)
            assert frame is not None
            use(frame, lambda: publish(out, SLOTS - 1))
        inp.poll()  # what was never asked about is judged now
        # A few are lost until it is near enough, and one when it tries whether it still must be.
        assert inp.stats.validated >= 33
        assert inp.stats.validated + inp.stats.overwritten == inp.stats.delivered - 1


def test_who_keeps_up_loses_nothing_by_frames_that_it_kept_too_long(pool: tp.Pool) -> None:
    kept: list[tp.Frame] = []
    lost = 0
    with (
        pool.producer("kept", dtype="uint32", shape=(4,), slots=64) as out,
        pool.consumer("kept", max_outstanding_seq_gap=0) as inp,
    ):
        for _ in range(20):
            publish(out, 24)
            while (frame := inp.poll()) is not None:
                kept.append(frame)
                if len(kept) > 100:
                    with pytest.raises(tp.FrameOverwrittenError):
                        kept.pop(0).copy()
                    lost += 1
        assert lost > 300
        assert (inp.stats.delivered, inp.stats.drops_gap) == (480, 0)


def test_a_frame_that_was_whole_once_is_no_drop_later(pool: tp.Pool) -> None:
    with (
        pool.producer("twice", dtype="uint32", shape=(4,), slots=SLOTS) as out,
        pool.consumer("twice", max_outstanding_seq_gap=0) as inp,
    ):
        publish(out, 1)
        frame = inp.poll(timeout=5.0)
        assert frame is not None
        frame.copy()
        publish(out, SLOTS)
        with pytest.raises(tp.FrameOverwrittenError):
            frame.copy()
        assert (inp.stats.validated, inp.stats.overwritten, inp.stats.drops_late) == (1, 0, 0)
