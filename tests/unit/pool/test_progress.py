"""How often progress is told, and what is believed of it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensor_pool.errors import FrameError
from tensor_pool.pool.progress import ProgressHints, ProgressPolicy, ProgressThrottle, ProgressTracker
from tensor_pool.wire.messages import ConsumerHello, FrameProgress, FrameProgressState, Mode

STREAM, EPOCH = 10_000, 5
US = 1_000
KIB = 1 << 10
STARTED, PROGRESS, COMPLETE = (
    FrameProgressState.STARTED,
    FrameProgressState.PROGRESS,
    FrameProgressState.COMPLETE,
)


def hello(*, wants: bool = True, **hints: Any) -> ConsumerHello:
    return ConsumerHello(
        STREAM,
        9,
        supports_shm=True,
        supports_progress=wants,
        mode=Mode.STREAM,
        **{f"progress_{name}": value for name, value in hints.items()},
    )


class TestPolicy:
    @pytest.mark.req("WIRE-10.2.2-23")
    def test_nobody_wants_progress(self) -> None:
        assert ProgressPolicy().aggregate([]) is None
        assert ProgressPolicy().aggregate([hello(wants=False, interval_us=1)]) is None

    @pytest.mark.req("WIRE-10.1.2-3", "WIRE-10.1.2-4", "WIRE-10.1.2-5")
    def test_defaults(self) -> None:
        assert ProgressPolicy().aggregate([hello()]) == ProgressHints(250 * US, 65_536, 0)

    @pytest.mark.req("WIRE-10.1.2-6")
    def test_the_smallest_wish_above_the_floor(self) -> None:
        policy = ProgressPolicy(interval_floor_us=400, bytes_floor=1_000)
        hints = policy.aggregate(
            [
                hello(interval_us=500, bytes_delta=9_000, major_delta_units=8),
                hello(interval_us=300, bytes_delta=5_000, major_delta_units=4),
                hello(wants=False, interval_us=1, bytes_delta=1, major_delta_units=1),
            ]
        )

        assert hints == ProgressHints(400 * US, 5_000, 4)
        assert policy.aggregate([hello(interval_us=0, bytes_delta=0)]) == ProgressHints(400 * US, 1_000, 0)

    def test_only_wishes_count_where_there_are_any(self) -> None:
        policy = ProgressPolicy(interval_floor_us=0)

        assert policy.aggregate([hello(), hello(interval_us=1_000)]) == ProgressHints(1_000 * US, 65_536, 0)


@pytest.fixture
def throttle() -> ProgressThrottle:
    throttle = ProgressThrottle(STREAM, max_rate_hz=4_000)
    throttle.hints = ProgressHints(250 * US, 64 * KIB)
    return throttle


def start(
    throttle: ProgressThrottle, seq: int = 1, *, length: int = 1 << 20, now: int = 0, **more: Any
) -> Any:
    return throttle.start(epoch=EPOCH, seq=seq, values_len_bytes=length, now_ns=now, **more)


class TestThrottle:
    @pytest.mark.req("WIRE-10.2.2-1", "WIRE-10.2.2-3", "WIRE-10.2.2-16", "WIRE-10.2.2-19")
    def test_the_life_of_a_frame(self, throttle: ProgressThrottle) -> None:
        messages = [start(throttle, 42)]
        messages += [throttle.advance(n * 128 * KIB, n * 1_000 * US) for n in range(1, 8)]
        messages += [throttle.complete()]

        assert [message.state for message in messages] == [STARTED, *[PROGRESS] * 7, COMPLETE]
        assert [m.payload_bytes_filled // KIB for m in messages] == [0, *range(128, 1_000, 128), 1024]
        assert {(m.stream_id, m.epoch, m.seq) for m in messages} == {(STREAM, EPOCH, 42)}
        assert throttle.complete() is None

    @pytest.mark.req("WIRE-10.2.2-2", "WIRE-10.2.2-20", "WIRE-10.1.2-3", "WIRE-10.1.2-4")
    def test_byte_by_byte_it_keeps_both_limits(self, throttle: ProgressThrottle) -> None:
        start(throttle)
        sent = [
            (now, message.payload_bytes_filled)
            for step in range(1, 1025)
            if (message := throttle.advance(step * KIB, now := step * 10 * US)) is not None
        ]

        times, filled = zip(*sent, strict=True)
        assert all(later - now >= 250 * US for now, later in itertools.pairwise(times))
        assert all(more - less >= 64 * KIB for less, more in itertools.pairwise(filled))
        assert len(sent) == 16

    @pytest.mark.req("WIRE-10.2.2-21", "WIRE-10.2.2-22")
    def test_what_was_held_back_is_told_later_and_it_is_the_latest(self, throttle: ProgressThrottle) -> None:
        start(throttle)
        assert throttle.advance(100 * KIB, 10 * US) is None
        assert throttle.advance(200 * KIB, 20 * US) is None
        assert throttle.tick(249 * US) is None

        message = throttle.tick(250 * US)

        assert message is not None
        assert message.payload_bytes_filled == 200 * KIB
        assert throttle.tick(10_000 * US) is None, "nothing new"

    def test_the_last_step_may_be_small(self, throttle: ProgressThrottle) -> None:
        start(throttle, length=65 * KIB)
        assert throttle.advance(64 * KIB, 250 * US) is not None
        assert throttle.advance(65 * KIB - 1, 500 * US) is None

        message = throttle.advance(65 * KIB, 750 * US)

        assert message is not None
        assert message.payload_bytes_filled == 65 * KIB

    def test_rows_count_too(self, throttle: ProgressThrottle) -> None:
        throttle.hints = ProgressHints(0, 1, major_delta_units=10)
        start(throttle, major_stride_bytes=100)

        told = [throttle.advance(rows * 100, rows * 1_000 * US) for rows in range(1, 31)]
        assert [n for n, message in enumerate(told, 1) if message is not None] == [10, 20, 30]

    @pytest.mark.req("WIRE-10.2.2-21")
    def test_a_stream_has_a_rate_of_its_own(self) -> None:
        throttle = ProgressThrottle(STREAM, max_rate_hz=1_000, burst=4)
        throttle.hints = ProgressHints(0, 1)
        sent = []
        for n in range(10_000):  # for one second, in frames of 100 updates
            if n % 100 == 0:
                start(throttle, n, length=100, now=n * 100 * US)
            sent.append(throttle.advance(n % 100 + 1, n * 100 * US))
        told = [message for message in sent if message is not None]

        assert 990 <= len(told) <= 1_004
        assert throttle.complete() is not None, "the end is told whatever was told before"

    @pytest.mark.req("WIRE-10.2.2-23", "WIRE-10.2.2-13")
    def test_nothing_is_told_when_nobody_listens(self, throttle: ProgressThrottle) -> None:
        throttle.hints = None
        assert start(throttle) is None
        assert throttle.advance(1 << 20, 10**9) is None
        assert throttle.complete() is None

    def test_who_comes_in_the_middle_waits_for_the_next_frame(self, throttle: ProgressThrottle) -> None:
        hints, throttle.hints = throttle.hints, None
        start(throttle)
        throttle.hints = hints

        assert throttle.advance(1 << 20, 10**9) is None, "STARTED would be missing"
        assert start(throttle, 2) is not None

    def test_who_leaves_in_the_middle_still_ends_the_frame(self, throttle: ProgressThrottle) -> None:
        start(throttle)
        throttle.hints = None

        assert throttle.advance(1 << 20, 10**9) is None
        message = throttle.complete()
        assert message is not None
        assert message.state is COMPLETE

    def test_nothing_is_told_of_a_frame_that_was_given_up(self, throttle: ProgressThrottle) -> None:
        start(throttle)
        throttle.abort()

        assert throttle.advance(1 << 20, 10**9) is None
        assert throttle.complete() is None

    @pytest.mark.req("WIRE-10.2.2-8", "WIRE-10.2.2-9")
    @pytest.mark.parametrize("filled", [-1, 99, (1 << 20) + 1])
    def test_progress_that_would_lie_is_refused(self, throttle: ProgressThrottle, filled: int) -> None:
        start(throttle)
        throttle.advance(100, 0)
        with pytest.raises(FrameError, match="progress of frame 1 from 100 to"):
            throttle.advance(filled, 0)

    @given(st.lists(st.tuples(st.integers(0, 100_000), st.integers(0, 400 * US)), max_size=100))
    def test_consumers_believe_all_of_it(self, steps: list[tuple[int, int]]) -> None:
        throttle, tracker = ProgressThrottle(STREAM), ProgressTracker(STREAM)
        throttle.hints = ProgressHints(250 * US, 64 * KIB)
        tracker.set_epoch(EPOCH)
        length = sum(step for step, _ in steps)
        messages = [start(throttle, length=length)]
        now = filled = 0
        for step, passed in steps:
            now, filled = now + passed, filled + step
            messages.append(throttle.advance(filled, now))
        messages.append(throttle.complete())
        for message in messages:
            if message is not None:
                assert tracker.on_progress(message, values_len_bytes=length) is not None
        assert tracker.counts.regressions == tracker.counts.overruns == 0


def told(seq: int, filled: int, state: FrameProgressState = PROGRESS, **changes: int) -> FrameProgress:
    place = {"stream_id": STREAM, "epoch": EPOCH} | changes
    return FrameProgress(place["stream_id"], place["epoch"], seq, filled, state)


@pytest.fixture
def tracker() -> ProgressTracker:
    tracker = ProgressTracker(STREAM)
    tracker.set_epoch(EPOCH)
    return tracker


class TestTracker:
    def test_it_follows_a_frame(self, tracker: ProgressTracker) -> None:
        for state, filled in [(STARTED, 0), (PROGRESS, 10), (PROGRESS, 20), (COMPLETE, 20)]:
            frame = tracker.on_progress(told(1, filled, state), values_len_bytes=20)
            assert frame is not None
            assert (frame.state, frame.payload_bytes_filled) == (state, filled)
            assert tracker.get(1) is frame

    def test_what_is_said_again_is_nothing_new(self, tracker: ProgressTracker) -> None:
        for state in (STARTED, COMPLETE):
            assert tracker.on_progress(told(1, 0, state)) is not None
            assert tracker.on_progress(told(1, 0, state)) is None
        assert tracker.counts.regressions == 0

    @pytest.mark.req("WIRE-10.2.2-10")
    def test_bytes_that_go_back_drop_the_frame(self, tracker: ProgressTracker) -> None:
        tracker.on_progress(told(1, 100))

        assert tracker.on_progress(told(1, 50)) is None
        assert tracker.get(1) is None
        assert tracker.on_progress(told(1, 200)) is None, "nothing more is believed of it"
        assert (tracker.counts.regressions, tracker.counts.late) == (1, 1)
        assert tracker.on_progress(told(2, 10)) is not None

    @pytest.mark.req("WIRE-10.2.2-17")
    @pytest.mark.parametrize(
        ("first", "second"), [(COMPLETE, PROGRESS), (COMPLETE, STARTED), (PROGRESS, STARTED)]
    )
    def test_a_state_that_goes_back_drops_the_frame(
        self, tracker: ProgressTracker, first: FrameProgressState, second: FrameProgressState
    ) -> None:
        tracker.on_progress(told(1, 100, first))

        assert tracker.on_progress(told(1, 100, second)) is None
        assert tracker.get(1) is None

    @pytest.mark.parametrize("before", [True, False])
    def test_no_frame_holds_more_than_it_can(self, tracker: ProgressTracker, before: bool) -> None:
        if before:
            tracker.on_progress(told(1, 10), values_len_bytes=100)

        assert tracker.on_progress(told(1, 101), values_len_bytes=100) is None
        assert tracker.get(1) is None
        assert tracker.counts.overruns == 1

    def test_what_does_not_concern_us(self, tracker: ProgressTracker) -> None:
        assert tracker.on_progress(told(1, 1, stream_id=STREAM + 1)) is None
        assert tracker.on_progress(told(1, 1, epoch=EPOCH + 1)) is None
        assert tracker.on_progress(told(1, 1, FrameProgressState.UNKNOWN)) is None
        assert (tracker.counts.other_epochs, tracker.counts.unknown_states, len(tracker)) == (1, 1, 0)

    def test_an_epoch_forgets_the_one_before(self, tracker: ProgressTracker) -> None:
        tracker.on_progress(told(100, 1))
        tracker.finish(99)
        tracker.set_epoch(EPOCH + 1)

        assert tracker.get(100) is None
        assert tracker.on_progress(told(0, 1, epoch=EPOCH + 1)) is not None
        tracker.set_epoch(None)
        assert tracker.on_progress(told(0, 2, epoch=EPOCH + 1)) is None

    def test_frames_that_were_taken_are_over(self, tracker: ProgressTracker) -> None:
        for seq in (1, 2, 3):
            tracker.on_progress(told(seq, 1))
        tracker.finish(2)

        assert (tracker.get(1), tracker.get(2)) == (None, None)
        assert tracker.get(3) is not None
        assert tracker.on_progress(told(2, 9)) is None
        assert tracker.counts.late == 1

    def test_what_is_followed_is_bounded(self, tracker: ProgressTracker) -> None:
        for seq in range(10_000):
            tracker.on_progress(told(seq, 1))
        assert len(tracker) == 64
        assert tracker.get(9_999) is not None

    def test_bogus_numbers_push_nothing_out_for_good(self, tracker: ProgressTracker) -> None:
        for seq in range(2**63, 2**63 + 1_000):
            tracker.on_progress(told(seq, 1))

        assert tracker.on_progress(told(1, 1)) is not None
        assert tracker.get(1) is not None
