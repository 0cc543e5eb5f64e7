"""The parts of the commands about one stream that need no stream."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from tensor_pool.errors import TensorPoolError
from tensor_pool.ops.bench.plan import BenchMode, BenchPlan, PeerReport, measure_memcpy
from tensor_pool.ops.bench.run import pool_peer, result
from tensor_pool.ops.cli.bench import _print_for_people
from tensor_pool.ops.cli.stream import absence, live, snap
from tensor_pool.ops.cli.stream.absence import Absence
from tensor_pool.ops.cli.stream.drops import drop_rows
from tensor_pool.ops.cli.stream.info import _shown
from tensor_pool.ops.cli.stream.live import Length, Observed, follow, run_gauge
from tensor_pool.ops.cli.stream.rates import BandwidthGauge, DelayGauge, IntervalGauge, _clock_of
from tensor_pool.ops.frame_clock import FrameClock
from tensor_pool.pool.metadata import MetadataView
from tensor_pool.pool.qos_board import QosBoard
from tensor_pool.pool.stats import ConsumerStats
from tensor_pool.wire.messages import Mode, QosConsumer

MS = 1_000_000


def frame(seq: int, *, epoch: int = 5, timestamp_ns: int = 0, nbytes: int = 100) -> Any:
    return SimpleNamespace(epoch=epoch, seq=seq, timestamp_ns=timestamp_ns, nbytes=nbytes)


class FakeConsumer:
    """Gives the frames of a list, and then none."""

    def __init__(self, *seqs: int, mapped: bool = True) -> None:
        self.frames = [frame(seq) for seq in seqs]
        self.skipped = 0
        self.mapped = mapped
        self.metadata = MetadataView(20001)

    def latest(self) -> None:
        self.skipped += 1

    def poll(self, timeout: float | None = None) -> Any:
        if self.frames:
            return self.frames.pop(0)
        time.sleep(timeout or 0.0)
        return None


def absence_of(consumer: FakeConsumer) -> Absence:
    return Absence(lambda: consumer.mapped, "depth", patience_s=None)


def observed(consumer: Any, label: str = "depth") -> Observed:
    return Observed(consumer, label, lambda: consumer.mapped, "/dev/shm/lab")


class TestGauges:
    def test_a_window_begins_where_the_last_one_ended(self) -> None:
        gauge = IntervalGauge(by_timestamp=False)
        for seq in range(3):
            gauge.take(frame(seq), seq * 10 * MS)
        assert gauge.window().frames == 3
        gauge.take(frame(3), 30 * MS)
        window = gauge.window()
        assert (window.frames, window.rate_hz) == (1, 100.0)
        assert gauge.total().frames == 4
        assert gauge.window().frames == 0

    def test_intervals_by_time_stamp(self) -> None:
        gauge = IntervalGauge(by_timestamp=True)
        for seq in range(3):
            gauge.take(frame(seq, timestamp_ns=seq * 5 * MS), 0)
        assert gauge.total().rate_hz == 200.0

    def test_lines_say_only_what_is_known(self) -> None:
        gauge = IntervalGauge(by_timestamp=False)
        gauge.take(frame(0), 0)
        assert gauge.line(gauge.total()) == "one frame"
        gauge.take(frame(4), 40 * MS)
        assert gauge.line(gauge.total()) == "100.00 Hz   missed 3"
        gauge.take(frame(5), 50 * MS)
        assert gauge.line(gauge.total()).endswith("max 10.000  jitter 0.000   missed 3")
        bandwidth = BandwidthGauge()
        bandwidth.take(frame(0), 0)
        assert bandwidth.line(bandwidth.total()) == "one frame of 100 bytes"
        bandwidth.take(frame(2), 20 * MS)
        assert bandwidth.line(bandwidth.total()).startswith("0.010 MB/s   100.00 Hz")
        assert bandwidth.window().missed == 1

    def test_a_frame_of_the_future_has_another_clock(self) -> None:
        gauge = DelayGauge(FrameClock(domain="monotonic", error_ns=5), stream="camera-1")
        with pytest.raises(TensorPoolError, match=r"frame 3 of camera-1 is \d+\.\d+ s in the future"):
            gauge.take(frame(3, timestamp_ns=2**62), 0)
        gauge.take(frame(4, timestamp_ns=0), 0)
        assert gauge.total().frames == 1
        assert "frames" not in gauge.line(gauge.total()), "the line before it says how many"


class TestFollowing:
    def test_it_ends_with_the_count_and_begins_with_what_comes(self) -> None:
        consumer, taken = FakeConsumer(1, 2, 3, 4), []
        here = absence_of(consumer)
        follow(
            consumer, lambda found, _: taken.append(found.seq), lambda: None, Length(count=3), absence=here
        )
        assert (taken, consumer.skipped) == ([1, 2, 3], 1)

    def test_it_ends_in_time_and_shows_every_window(self) -> None:
        shown = []
        consumer, length = FakeConsumer(), Length(seconds=0.35, window_s=0.1)
        follow(consumer, lambda *_: None, lambda: shown.append(1), length, absence=absence_of(consumer))
        assert 1 <= len(shown) <= 3

    def test_no_frame_is_a_problem(self, capsys: pytest.CaptureFixture[str]) -> None:
        gauge = IntervalGauge(by_timestamp=False)
        assert run_gauge(observed(FakeConsumer()), gauge, Length(seconds=0.05), "json") == 1
        captured = capsys.readouterr()
        assert '"frames": 0' in captured.out
        assert captured.err.startswith("error: no frame of depth came within ")

    def test_a_rate_is_that_of_frames_and_not_of_pauses(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for pause_s, said in ((0.02, " s, while they came: "), (1.0, " s: ")):
            monkeypatch.setattr(live, "_PAUSE_S", pause_s)
            gauge, consumer = IntervalGauge(by_timestamp=False), FakeConsumer(1, 2, 3)
            assert run_gauge(observed(consumer), gauge, Length(seconds=0.1), "table") == 0
            assert f"in all, 3 frames in 0.1{said}" in capsys.readouterr().out

    def test_a_producer_that_ended_is_said(self, capsys: pytest.CaptureFixture[str]) -> None:
        gauge, stream = (
            IntervalGauge(by_timestamp=False),
            observed(FakeConsumer(mapped=False), "depth (20001)"),
        )
        assert run_gauge(stream, gauge, Length(seconds=0.05), "table") == 1
        assert capsys.readouterr().err.splitlines() == [
            "error: nobody produces depth (20001) now",
            "   at: /dev/shm/lab",
            "  try: start its producer; with --seconds it is waited for that long",
        ]

    def test_a_producer_that_ends_meanwhile_is_said_once_and_ends_a_count(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(live, "PATIENCE_S", 0.5)
        monkeypatch.setattr(absence, "_NOTICED_S", 0.2)
        gauge, consumer = IntervalGauge(by_timestamp=False), FakeConsumer(1, 2, 3, mapped=False)
        assert run_gauge(observed(consumer), gauge, Length(count=9, window_s=0.05), "table") == 1
        captured = capsys.readouterr()
        assert captured.err.splitlines()[:2] == [
            "depth has no producer now; waiting for one",
            "error: nobody produces depth now",
        ]
        assert "in all, 3 frames in " in captured.out
        assert captured.out.count("no frame\n") <= 5, "only until it is said what is the matter"

    def test_a_time_is_measured_to_its_end_without_a_producer_too(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(live, "PATIENCE_S", 0.1)
        gauge, consumer = IntervalGauge(by_timestamp=False), FakeConsumer(1, 2, 3, mapped=False)
        length = Length(count=9, seconds=0.5)
        assert run_gauge(observed(consumer), gauge, length, "table") == 0
        assert "in all, 3 frames in 0.5 s" in capsys.readouterr().out

    def test_a_producer_that_comes_back_may_go_again(self, capsys: pytest.CaptureFixture[str]) -> None:
        stream = FakeConsumer()
        watched = Absence(lambda: stream.mapped, "depth", patience_s=10)
        for at_s, stream.mapped in ((0, False), (2, False), (4, True), (6, False), (14, False)):
            assert not watched.is_too_long(at_s)
        assert capsys.readouterr().err.count("depth has no producer now") == 2
        watched.frame_came(15)
        assert not watched.is_too_long(17)
        assert watched.is_too_long(27)

    @pytest.mark.parametrize("mapped", [True, False])
    def test_only_a_producer_can_fail_to_name_its_clock(
        self, capsys: pytest.CaptureFixture[str], mapped: bool
    ) -> None:
        assert _clock_of(FakeConsumer(mapped=mapped), "depth", patience_s=0).is_assumed
        assert bool(capsys.readouterr().err) == mapped


def test_drops_leave_out_what_the_observer_reports_of_itself() -> None:
    board = QosBoard()
    for consumer_id in (8, 9):
        board.on_consumer(QosConsumer(1, consumer_id, 5, 40, consumer_id, 1, Mode.STREAM), 0)
    stats = ConsumerStats(drops_gap=2, drops_late=1, drops_by_reason={"overwritten": 1}, epoch=5)
    consumer: Any = SimpleNamespace(stream_id=1, session=SimpleNamespace(consumer_id=9), stats=stats)
    reported, own = drop_rows(consumer, board, now_ns=2_000_000_000)

    assert (reported["consumer"], reported["drops_gap"], reported["heard_s_ago"]) == (8, 8, 2.0)
    assert (own["consumer"], own["drops_gap"], own["by_reason"]) == ("this command", 2, {"overwritten": 1})
    (left,) = drop_rows(consumer, board, now_ns=9_000_000_000)
    assert left["consumer"] == "this command", "who fell silent is forgotten"


class TestSaving:
    def test_names_sort(self) -> None:
        assert snap.numbered(Path("/a/b.png"), 3, 20_000) == Path("/a/b-00003.png")

    def test_a_file_is_replaced_as_a_whole(self, tmp_path: Path) -> None:
        place = tmp_path / "a.npy"
        place.write_bytes(b"old")
        snap._write_whole(place, b"new")
        assert place.read_bytes() == b"new"
        assert place.stat().st_mode & 0o777 == 0o666 & ~snap._umask()

    def test_a_failure_leaves_the_old_one_and_nothing_else(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        place = tmp_path / "a.npy"
        place.write_bytes(b"old")

        def fail(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(Path, "replace", fail)
        with pytest.raises(TensorPoolError, match="No space left on device"):
            snap._write_whole(place, b"new")
        assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("a.npy", b"old")]


@pytest.mark.parametrize(
    ("value", "shown"),
    [("12 ms", "12 ms"), ("\x1b[2Jgone", "'\\x1b[2Jgone'"), (["a\nb"], ["a\nb"]), (3.5, 3.5)],
)
def test_a_peers_text_can_not_clear_the_terminal(value: Any, shown: Any) -> None:
    assert _shown(value) == shown


class TestBench:
    PLAN = BenchPlan(mode=BenchMode.LATENCY, frame_bytes=1_000_000, slots=4)

    @pytest.mark.parametrize("frames", [0, 1])
    def test_too_few_frames_make_no_rate(self, frames: int) -> None:
        done = PeerReport(role="consumer", event="done", frames=frames)
        found = result(self.PLAN, done, done, memcpy_gb_per_s=10.0)
        assert (found.frames_per_s, found.gb_per_s, found.p50_us) == (0.0, 0.0, None)

    @pytest.mark.parametrize(
        ("published", "said"), [(100, ""), (134, ", 34 before the first or after the last")]
    )
    def test_all_frames_are_accounted_for(
        self, capsys: pytest.CaptureFixture[str], published: int, said: str
    ) -> None:
        sent = PeerReport(role="producer", event="done", frames=published)
        read = PeerReport(role="consumer", event="done", frames=97, missed=3, seconds=2.0)
        read = msgspec.structs.replace(read, **dict.fromkeys(("min_us", "p50_us", "p99_us", "p999_us"), 1.0))
        _print_for_people(result(self.PLAN, sent, read, memcpy_gb_per_s=10.0))
        assert f"{published} published, 97 received, 3 missed in 2.0 s{said}" in capsys.readouterr().out

    def test_memcpy_takes_no_more_memory_than_it_may(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("tensor_pool.ops.bench.plan._MOST_MEMCPY_BYTES", 1 << 16)
        assert measure_memcpy(1 << 40, 1 << 20, seconds=0.01) > 0

    def test_a_process_that_can_not_start_says_why(self) -> None:
        plan = BenchPlan(mode=BenchMode.LATENCY, config_file="/no/such/file.toml")
        with (
            pool_peer("producer", plan) as peer,
            pytest.raises(TensorPoolError, match="the producer failed: ") as told,
        ):
            peer.read()
        assert "/no/such/file.toml" in told.value.message
