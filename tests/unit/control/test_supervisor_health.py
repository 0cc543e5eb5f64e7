"""The board: lag, drops, silence; and what hostile senders can do to it, which is little."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervised import SECOND, STREAM, Scene, announce, hello, report, setting
from tensor_pool.control.supervisor.samples import Samples
from tensor_pool.wire import Message
from tensor_pool.wire.messages import (
    ConsumerConfig,
    ConsumerHello,
    DataSourceAnnounce,
    DataSourceMeta,
    MetaAttribute,
    Mode,
    QosConsumer,
    QosProducer,
    Role,
    ShmLeaseRevoked,
)


@pytest.mark.req("WIRE-10.5-1")
def test_all_five_messages_are_in_what_it_knows() -> None:
    scene = Scene()
    scene.seconds(3, lag=20, drops=2)
    scene.say(
        DataSourceAnnounce(STREAM, 3, 5, 1, name="camera"),
        DataSourceMeta(STREAM, 9, 0, (MetaAttribute("exposure", "text/plain", b"5"),)),
    )
    stream, consumer = scene.stream, scene.consumer
    assert (stream.name, stream.meta_version, stream.attributes) == ("camera", 9, ("exposure",))
    assert (stream.state, stream.epoch, stream.rate_hz, stream.current_seq) == ("live", 5, 100.0, scene.seq)
    assert (consumer.lag, consumer.drops_per_s, consumer.rate_hz) == (20, 2.0, 100.0)
    assert (consumer.drops_late, consumer.mode, consumer.condition) == (6, "stream", "slow")


class TestSilence:
    def test_a_consumer_that_says_nothing_is_stale_and_then_forgotten(self) -> None:
        scene = Scene()
        scene.seconds(3)
        scene.seconds(4, consumers=False)
        assert scene.consumer.condition == "healthy"
        scene.second(consumers=False)
        assert (scene.consumer.condition, scene.consumer.silent_s) == ("stale", 5.0)
        scene.seconds(56, consumers=False)
        assert scene.overseer.view(scene.now_ns).consumers == ()
        assert [entry.kind for entry in scene.overseer.journal.entries()] == ["stale"]

    def test_one_that_comes_back_is_noted(self) -> None:
        scene = Scene()
        scene.seconds(3)
        scene.seconds(6, consumers=False)
        scene.second()
        assert [entry.kind for entry in scene.overseer.journal.entries()] == ["stale", "returned"]

    @pytest.mark.req("WIRE-15.14-2")
    def test_a_producer_that_says_nothing_is_dead_until_the_next_epoch(self) -> None:
        scene = Scene()
        scene.seconds(3)
        for _ in range(5):
            scene.now_ns += SECOND
            scene.say(announce(header_nslots=1_000))
            scene.look()
        assert (scene.stream.state, scene.stream.why) == ("dead", "its producer said nothing for 5.0 s")
        scene.say(announce(header_nslots=1_000, epoch=6))
        scene.look()
        assert (scene.stream.state, scene.stream.why) == ("waiting", "")
        assert [entry.kind for entry in scene.overseer.journal.entries()] == ["dead", "stale", "live"]

    @pytest.mark.req("WIRE-15.14-2", "WIRE-15.14-7")
    def test_so_is_one_whose_memory_nobody_keeps_alive(self) -> None:
        scene = Scene()
        activity = {"ns": scene.now_ns}
        scene.overseer._read_activity = lambda _: activity["ns"]
        scene.seconds(4)
        assert scene.stream.state == "live"
        scene.second()
        assert (scene.stream.state, scene.stream.why) == ("dead", "its memory was not kept alive for 5.0 s")
        activity["ns"] = scene.now_ns + 100 * SECOND  # a time stamp from the future lives no longer
        scene.second()
        assert scene.stream.state == "live"

    def test_nobody_announces_it(self) -> None:
        scene = Scene()
        scene.second()
        scene.now_ns += 5 * SECOND
        scene.look()
        assert scene.stream.state == "dead"
        scene.now_ns += 60 * SECOND
        scene.look()
        view = scene.overseer.view(scene.now_ns)
        assert (view.streams, view.consumers) == ((), ())

    def test_who_gives_its_lease_back_is_gone_at_once(self) -> None:
        scene = Scene()
        scene.second()
        revoked = ShmLeaseRevoked(0, 1, STREAM, 7, Role.CONSUMER, 1, "detached")
        scene.say(revoked)
        assert scene.overseer.view(scene.now_ns).consumers == ()


class TestStuck:
    def test_who_takes_nothing_is_not_moved(self) -> None:
        scene = Scene()
        scene.seconds(3)
        stopped_at = scene.seq
        scene.seconds(30, last_seq_seen=stopped_at)
        assert scene.consumer.condition == "stuck"
        assert scene.moves == []


class TestGaps:
    """Numbers that were never found: left out on purpose, or lost by who can't keep up."""

    def test_without_lag_are_nobodys_fault(self) -> None:
        scene = Scene()
        scene.seconds(30, gaps=80)
        assert (scene.consumer.condition, scene.consumer.drops_per_s) == ("healthy", 80.0)
        assert scene.moves == []

    def test_nor_within_what_lies_between_two_frames(self) -> None:
        """Every 200th number is a frame: who has all of them is up to 200 behind, or seems to be."""
        scene = Scene(slots=512)
        for _ in range(40):
            newest = (scene.seq + 100) // 200 * 200
            scene.second(last_seq_seen=newest, drops_gap=newest - newest // 200)
        assert (scene.consumer.condition, scene.moves) == ("healthy", [])

    def test_with_lag_are_losses(self) -> None:
        scene = Scene()
        scene.seconds(8, gaps=50, lag=130)
        assert scene.moves == [("none", "rate_limited", "told")]

    def test_of_one_that_skips_to_the_newest_frame_are_losses(self) -> None:
        """It is behind in some reports only, and never by much of the ring."""
        scene = Scene()
        for second in range(12):
            skips = second % 4 == 3
            scene.second(gaps=240 if skips else 0, lag=0 if skips else 70 * (second % 4))
        assert scene.moves[0] == ("none", "rate_limited", "told")

    @pytest.mark.parametrize("slots", [8, 64, 512, 4_096, 65_536])
    def test_of_a_slow_one_are_losses_in_every_ring(self, slots: int) -> None:
        """It takes 4 of 100 frames: lapped it goes on in the middle of the ring, or 256 behind at its end."""
        scene = Scene(slots=slots)
        position, gaps = float(scene.seq), 0.0
        for _ in range(30):
            position += 4
            if scene.seq - position > min(256, slots):
                reached = scene.seq - (slots // 2 if slots < 256 else 0)
                gaps, position = gaps + reached - position, reached
            scene.second(drops_gap=int(gaps), last_seq_seen=int(position))
        assert scene.moves[0] == ("none", "rate_limited", "told")

    def test_frames_that_it_was_late_for_always_count(self) -> None:
        scene = Scene()
        scene.seconds(8, gaps=80, drops=2)
        (entry,) = scene.overseer.journal.entries()
        assert entry.seen == "slow: lag 0 of 1000 slots, drops 82.0/s, 80.0/s of them don't count"

    def test_a_limited_consumer_of_a_stream_with_fewer_frames_is_well(self) -> None:
        scene = Scene()
        scene.seconds(7, drops=50)
        assert scene.consumer.remedy == "rate_limited"
        scene.seconds(60, gaps=80, mode=Mode.RATE_LIMITED)
        assert (scene.consumer.condition, scene.consumer.remedy) == ("healthy", "none")


class TestStrangeMessages:
    def test_another_session_does_not_speak_for_a_consumer_that_lives(self) -> None:
        scene = Scene()
        scene.seconds(2)
        scene.say(report(last_seq_seen=0, drops_gap=10**9), hello(supports_shm=False), session_id=66)
        assert scene.overseer.refused == {"another_session": 2}
        assert (scene.consumer.drops_gap, scene.consumer.condition) == (0, "healthy")
        scene.now_ns += 5 * SECOND
        scene.say(announce(header_nslots=1_000))
        scene.say(report(), session_id=66)
        assert scene.overseer.refused["another_session"] == 2, "the owner is silent: it may be its next life"

    def test_a_forged_epoch_blinds_nobody(self) -> None:
        scene = Scene()
        scene.seconds(2)
        scene.say(announce(header_nslots=1_000, epoch=2**63), session_id=66)
        scene.seconds(2)
        assert (scene.stream.epoch, scene.stream.state) == (5, "live")
        assert scene.overseer.refused == {"another_session": 1}

    def test_who_lied_first_is_believed_until_it_is_silent(self) -> None:
        scene = Scene()
        scene.say(announce(header_nslots=1_000, epoch=2**63), session_id=66)
        scene.seconds(4)
        assert scene.stream.epoch == 2**63
        scene.seconds(3)
        assert (scene.stream.epoch, scene.stream.state) == (5, "live")

    def test_nor_for_a_producer(self) -> None:
        scene = Scene()
        scene.seconds(2)
        scene.say(QosProducer(STREAM, 3, 5, 10**12), session_id=66)
        assert scene.stream.current_seq == scene.seq
        assert scene.overseer.refused == {"another_session": 1}

    @pytest.mark.parametrize(
        ("message", "reason"),
        [
            (announce(epoch=4), "old_epoch"),
            (announce(stream_id=1, header_slot_bytes=128), "unsound_announce"),
            (announce(stream_id=1, header_nslots=0), "unsound_announce"),
            (QosProducer(STREAM, 3, 4, 0), "old_epoch"),
            (QosProducer(STREAM, 3, 6, 0), "unannounced_epoch"),
            (QosProducer(9, 3, 5, 0), "unknown_stream"),
            (report(stream_id=9), "unknown_stream"),
            (report(epoch=4), "epoch_went_back"),
            (report(last_seq_seen=3), "seq_went_back"),
            (hello(stream_id=9), "unknown_stream"),
            (DataSourceAnnounce(9, 3, 5, 1, name="x"), "unknown_stream"),
            (DataSourceMeta(9, 1, 0), "unknown_stream"),
            (ConsumerConfig(STREAM, 7, True, Mode.STREAM), "another_authority"),
        ],
    )
    def test_is_counted(self, message: Message, reason: str) -> None:
        scene = Scene()
        scene.seconds(2)
        scene.say(message, session_id=2 if isinstance(message, QosProducer) else 1)
        assert scene.overseer.refused == {reason: 1}

    def test_a_new_epoch_starts_the_numbers_over(self) -> None:
        scene = Scene()
        scene.seconds(4, drops=50)
        scene.say(announce(header_nslots=1_000, epoch=6))
        scene.say(report(epoch=6, last_seq_seen=0, drops_gap=900))
        assert (scene.consumer.lag, scene.consumer.drops_per_s) == (None, None)
        assert scene.overseer.refused == {}

    def test_a_consumer_that_counts_anew_lost_nothing_less(self) -> None:
        scene = Scene()
        scene.seconds(4, drops=50)
        scene.second(drops_late=0)
        assert scene.consumer.drops_per_s is None


class TestFloods:
    def test_unknown_consumers_find_no_room_and_push_nobody_out(self) -> None:
        scene = Scene(setting(max_consumers=50))
        scene.seconds(3)
        for consumer_id in range(1_000, 3_000):
            scene.say(report(consumer_id=consumer_id), session_id=consumer_id)
        view = scene.overseer.view(scene.now_ns)
        assert len(view.consumers) == 50
        assert scene.overseer.refused == {"too_many_consumers": 2_000 - 49}
        assert scene.consumer.condition == "healthy"

    def test_the_forged_make_room_once_they_are_silent(self) -> None:
        scene = Scene(setting(max_consumers=50))
        scene.second()
        for consumer_id in range(1_000, 3_000):
            scene.say(report(consumer_id=consumer_id), session_id=consumer_id)
        scene.seconds(5)
        scene.say(hello(consumer_id=8), session_id=3)
        assert 8 in {each.consumer_id for each in scene.overseer.view(scene.now_ns).consumers}

    def test_streams(self) -> None:
        scene = Scene(setting(max_streams=5))
        scene.say(*(announce(stream_id=stream_id) for stream_id in range(1, 100)))
        assert len(scene.overseer.view(scene.now_ns).streams) == 5
        assert scene.overseer.refused == {"too_many_streams": 94}

    def test_strangers_without_room_are_answered_and_not_remembered(self) -> None:
        scene = Scene(setting(max_consumers=1))
        scene.second()
        (config,) = scene.say(
            hello(consumer_id=8, descriptor_stream_id=31_000, descriptor_channel="aeron:ipc")
        )
        assert (config.consumer_id, config.use_shm, config.descriptor_channel) == (8, True, "")

    def test_the_journal_keeps_decisions_whatever_else_happens(self) -> None:
        scene = Scene(setting(log_length=10))
        scene.seconds(7, drops=50)
        for consumer_id in range(1_000, 2_000):
            scene.say(report(consumer_id=consumer_id), session_id=consumer_id)
        scene.seconds(20)
        entries = scene.overseer.journal.entries()
        assert len(entries) <= 20
        assert [entry.after for entry in entries if entry.is_decision] == ["rate_limited"]


def message(random_: random.Random) -> Message:
    """Anything, often about the same few streams, consumers and epochs."""
    stream_id, consumer_id, epoch = (random_.choice((0, 1, 2, 2**32 - 1)) for _ in range(3))
    seq = random_.choice((0, 1, 10, 2**63, 2**64 - 1))
    mode = random_.choice(list(Mode))
    return random_.choice(
        (
            announce(stream_id=stream_id, epoch=epoch, header_nslots=random_.choice((0, 8))),
            QosProducer(stream_id, 3, epoch, seq),
            QosConsumer(stream_id, consumer_id, epoch, seq, random_.randrange(2**40), 0, mode),
            ConsumerHello(stream_id, consumer_id, random_.random() < 0.5, False, mode, seq % 2**32),
            hello(stream_id=stream_id, consumer_id=consumer_id, descriptor_stream_id=seq % 2**31),
            hello(stream_id=stream_id, descriptor_channel="aeron:ipc", descriptor_stream_id=31_000),
            ShmLeaseRevoked(0, 1, stream_id, consumer_id, Role.CONSUMER, 1, ""),
        )
    )


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32))
def test_nothing_that_comes_breaks_it_or_fills_it(seed: int) -> None:
    random_ = random.Random(seed)
    scene = Scene(
        setting(max_consumers=3, max_streams=2, log_length=5, slow_for_ms=2, window_ms=1, healthy_for_ms=1)
    )
    for _ in range(200):
        scene.say(message(random_), session_id=random_.randrange(3))
        if random_.random() < 0.2:
            scene.now_ns += random_.choice((1, SECOND // 10, 6 * SECOND, 100 * SECOND))
            scene.look()
        view = scene.overseer.view(scene.now_ns)
        assert len(view.consumers) <= 3
        assert len(view.streams) <= 2
        assert len(scene.overseer.journal.entries()) <= 10


class TestSamples:
    def test_bursts_are_a_rate(self) -> None:
        samples = Samples(window_ns=5 * SECOND, interval_ns=SECOND)
        for second in range(40):
            samples.add(second * SECOND, 250 * (second // 5), second)
            if second > 5:
                assert samples.drops_per_s == pytest.approx(50.0)

    @given(st.lists(st.integers(0, 3 * SECOND), min_size=2, max_size=400))
    def test_however_often_somebody_reports(self, gaps: list[int]) -> None:
        samples, now_ns = Samples(window_ns=5 * SECOND, interval_ns=SECOND), 0
        for gap in gaps:
            now_ns += gap
            samples.add(now_ns, 0, 0)
        assert len(samples._kept) <= 64
        assert samples.drops_per_s in (0.0, None)

    def test_the_most_lag_is_kept_however_often_somebody_reports(self) -> None:
        samples = Samples(window_ns=5 * SECOND, interval_ns=SECOND)
        for millisecond in range(1_000):
            samples.add(millisecond * SECOND // 1_000, 0, millisecond, lag=90 if millisecond == 500 else 1)
        assert samples.most_lag == 90
        samples.add(7 * SECOND, 0, 7_000, lag=2)
        samples.add(8 * SECOND, 0, 8_000)
        assert samples.most_lag <= 2, "what is older than a window is forgotten"

    def test_a_step_is_from_one_found_frame_to_the_next(self) -> None:
        samples = Samples(window_ns=5 * SECOND, interval_ns=SECOND)
        assert samples.step == 1.0
        for second in range(3):
            samples.add(second * SECOND, 90 * second, 100 * second, gaps=90 * second)
        assert samples.step == pytest.approx(10.0)

    def test_two_reports_heard_together_are_no_flood(self) -> None:
        samples = Samples(window_ns=5 * SECOND, interval_ns=SECOND)
        samples.add(0, 0, 0)
        samples.add(1_000, 10, 100)
        assert samples.drops_per_s == pytest.approx(20.0)
