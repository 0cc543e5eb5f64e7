"""Told to be limited, and no longer: modes, rates, and what is left out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tensor_pool import _native
from tensor_pool.pool.sessions.consumer_options import ConsumerOptions
from tensor_pool.pool.sessions.pace import Pace
from tensor_pool.wire.messages import Mode

MS = 1_000_000
SLOTS = 16


class Ring:
    """A ring of 16 frames a tenth of a second."""

    def __init__(self, directory: Path) -> None:
        address = _native.create_ring(directory, stream_id=1, epoch=1, nslots=SLOTS, pools=[(1, 4096)])
        self.writer = _native.RingWriter(address, base_dirs=[directory])
        self.reader = _native.RingReader(address, base_dirs=[directory])
        self._published = 0

    def publish(self, count: int) -> None:
        for _ in range(count):
            self._published += 1
            self.writer.publish(np.zeros(4, "uint8"), timestamp_ns=self._published * 10 * MS)


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[Ring]:
    ring = Ring(tmp_path)
    yield ring
    ring.reader.close()
    ring.writer.close()


def take_all(pace: Pace, ring: Ring) -> list[int]:
    seqs = []
    while (frame := pace.take(ring.reader)) is not None:
        seqs.append(frame.seq)
    return seqs


@pytest.mark.req("WIRE-10.1.3-4")
def test_told_and_told_otherwise(ring: Ring) -> None:
    pace = Pace(ConsumerOptions(), limited_rate_hz=50)
    ring.publish(4)
    assert take_all(pace, ring) == [0, 1, 2, 3]
    assert pace.told(Mode.RATE_LIMITED)
    ring.publish(6)
    assert take_all(pace, ring) == [4, 6, 8]
    assert pace.told(Mode.STREAM)
    ring.publish(2)
    assert take_all(pace, ring) == [10, 11]
    assert (pace.thinned, ring.reader.gaps) == (3, 0)


def test_the_rate_is_ones_own_if_one_was_named(ring: Ring) -> None:
    pace = Pace(ConsumerOptions(max_rate_hz=25), limited_rate_hz=50)
    pace.told(Mode.RATE_LIMITED)
    ring.publish(7)
    assert take_all(pace, ring) == [0, 4]


@pytest.mark.parametrize(("rate_hz", "told"), [(0, 0), (25, 25), (25.0, 25), (0.5, 0), (1e9, 10**9)])
def test_hellos_tell_whole_rates_only(rate_hz: float, told: int) -> None:
    assert ConsumerOptions(mode=Mode.RATE_LIMITED, max_rate_hz=rate_hz).whole_rate_hz == told


def test_who_asked_for_it_stays_limited(ring: Ring) -> None:
    pace = Pace(ConsumerOptions(mode=Mode.RATE_LIMITED, max_rate_hz=50), limited_rate_hz=10)
    assert not pace.told(Mode.STREAM)
    assert not pace.told(Mode.RATE_LIMITED)
    ring.publish(4)
    assert take_all(pace, ring) == [0, 2]
    assert not pace.keeps_up


def test_what_a_limited_one_passes_over_is_not_lost(ring: Ring) -> None:
    pace = Pace(ConsumerOptions(), limited_rate_hz=50)
    pace.told(Mode.RATE_LIMITED)
    for _ in range(5):
        ring.publish(3 * SLOTS)
        assert take_all(pace, ring) == [ring.writer.next_seq - 1]
    assert pace.keeps_up
    assert (ring.reader.gaps, pace.thinned) == (0, 5 * (3 * SLOTS - 1))
