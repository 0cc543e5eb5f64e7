"""Numbers for programs, lines for people."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensor_pool import _native
from tensor_pool.pool.stats import ConsumerStats, FallbackStats, ProducerStats


def test_a_consumer_at_its_start() -> None:
    stats = ConsumerStats(state="unmapped")

    assert str(stats).splitlines() == [
        "delivered  0 frames",
        "lost       0 frames",
        "stream     unmapped, no frame yet",
    ]
    assert stats.drops == 0


def test_a_consumer_that_went_through_a_lot() -> None:
    stats = ConsumerStats(
        delivered=1,
        validated=1,
        drops_gap=1_234,
        drops_late=3,
        drops_by_reason={"overwritten": 3, "bad_dtype": 1},
        thinned=7,
        resyncs=1,
        descriptors_missed=5,
        duplicates=2,
        announces_ignored={"stale": 4},
        remaps=1,
        reconnects=2,
        epoch=1_700_000_000_000_000,
        last_seq=5_000,
    )

    assert str(stats).splitlines() == [
        "delivered  1 frame: 1 validated",
        "lost       1,238 frames: 1,234 gap, 1 bad dtype, 3 overwritten",
        "skipped    7 thinned out, 1 resync",
        "hints      5 missed descriptors, 2 duplicates",
        "ignored    4 stale",
        "stream     mapped, epoch 1700000000000000, last frame 5,000",
        "returned   1 remap, 2 reconnects",
    ]
    assert stats.drops == 1_238, "what is late is not counted twice"


def test_a_producer() -> None:
    assert str(ProducerStats()).splitlines() == ["published  0 frames, 0 bytes", "stream     no frame yet"]
    stats = ProducerStats(
        frames=1,
        bytes=1536,
        too_large=2,
        claims_aborted=1,
        consumers=1,
        progress_sent=9,
        lease_losses=1,
        last_seq=0,
    )
    assert str(stats).splitlines() == [
        "published  1 frame, 1.5 KiB",
        "refused    2 too large, 1 aborted",
        "progress   9 messages",
        "consumers  1",
        "stream     last frame 0",
        "leases     1 lost",
    ]


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (1023, "1,023 bytes"),
        (1024, "1.0 KiB"),
        (5 << 20, "5.0 MiB"),
        (3 << 30, "3.0 GiB"),
        (2 << 50, "2,048.0 TiB"),
    ],
)
def test_sizes(size: int, text: str) -> None:
    assert text in str(ProducerStats(bytes=size))


@pytest.mark.parametrize("stats", [ConsumerStats(), ProducerStats()])
def test_they_are_a_moment_that_does_not_change(stats: ConsumerStats | ProducerStats) -> None:
    with pytest.raises(AttributeError):
        stats.epoch = 3  # type: ignore[misc]
    assert stats.as_dict()["last_seq"] is None
    assert msgspec.json.decode(msgspec.json.encode(stats), type=type(stats)) == stats


def test_each_consumer_has_counts_of_its_own() -> None:
    assert ConsumerStats().drops_by_reason is not ConsumerStats().drops_by_reason


counts = st.integers(0, 2**63)


@given(st.dictionaries(st.sampled_from(_native.DROP_REASONS), counts), counts, counts)
def test_every_reason_is_named(reasons: dict[str, int], gap: int, delivered: int) -> None:
    stats = ConsumerStats(drops_by_reason=reasons, drops_gap=gap, delivered=delivered)
    text = str(stats)

    assert all(f"{count:,} {name.replace('_', ' ')}" in text for name, count in reasons.items() if count)
    assert stats.drops == gap + sum(reasons.values())


def test_a_consumer_without_shared_memory() -> None:
    fallback = FallbackStats(
        uri="aeron:udp?endpoint=a:1",
        frames=7,
        frames_lost={"timed_out": 1, "conflict": 2},
        chunks_unused={"malformed": 3, "late": 1},
        error="Aeron says no",
    )
    stats = ConsumerStats(state="fallback", fallback=fallback, drops_gap=3)

    assert str(stats).splitlines()[-1] == (
        "fallback   7 frames put together, 1 timed out, 2 conflict, 4 unused chunks, Aeron says no"
    )
    assert stats.drops == 3, "frames that were not whole are gaps"
    assert msgspec.json.decode(msgspec.json.encode(stats.as_dict()))["fallback"]["frames"] == 7
    assert type(stats.as_dict()["fallback"]) is dict
