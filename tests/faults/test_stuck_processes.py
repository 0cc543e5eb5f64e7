"""One stuck process never blinds the others: pitfall 36, decisions M16 and D18."""

from __future__ import annotations

import pytest

from pool_hosts import LAYOUTS
from tensor_pool.testing import Cluster, measure_stuck_consumers

SHORT_TERMS = {"aeron.term_length": "64k"}
"""A subscriber that reads nothing holds such a stream up after a third of a second at 1 kHz."""

_NOISE_MS = 1_000.0
"""What a busy machine may add; without our measures the others would hear nothing for ten seconds."""


@pytest.mark.quiet
@pytest.mark.parametrize("layout", ["separate", pytest.param("one-stream", marks=pytest.mark.slow)])
def test_six_of_eight_lose_nothing(layout: str) -> None:
    """One is stopped, one is killed; newcomers attach meanwhile. `make faults` is strict about the times."""
    with Cluster({**SHORT_TERMS, **LAYOUTS[layout]}) as host:
        report = measure_stuck_consumers(host, seconds=2.0, newcomers=10)
    print(report)
    assert report.lost == 0
    assert report.frames > 1_000
    assert report.descriptors_missed > 0, "nothing was held up: this shows nothing"
    assert report.stuck_silence_ms < report.calm_silence_ms + _NOISE_MS
    assert report.attach_p95_ms < _NOISE_MS


@pytest.mark.slow
@pytest.mark.parametrize("layout", list(LAYOUTS))
@pytest.mark.parametrize("terms", ["64k", "4m"])
def test_with_the_times_that_are_promised(layout: str, terms: str) -> None:
    """For a machine that does nothing else."""
    with Cluster({"aeron.term_length": terms, **LAYOUTS[layout]}) as host:
        report = measure_stuck_consumers(host, seconds=15.0, newcomers=20)
    print(report)
    assert report.lost == 0
    assert report.stuck_silence_ms <= report.calm_silence_ms + 20
    assert report.attach_p95_ms < 200
