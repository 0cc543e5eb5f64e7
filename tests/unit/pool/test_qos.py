"""What producers and consumers tell each other, and what they make of it."""

from __future__ import annotations

import random

import pytest

from tensor_pool import wire
from tensor_pool.pool.qos import (
    ConsumerWatch,
    IdCollision,
    qos_consumer,
    qos_producer,
    random_consumer_id,
)
from tensor_pool.wire.messages import ConsumerHello, Mode, QosConsumer

STREAM = 10_000
SECOND = 1_000_000_000
EPOCH = 5


def report(
    consumer_id: int = 9, *, seen: int = 40, epoch: int = EPOCH, stream_id: int = STREAM
) -> QosConsumer:
    return QosConsumer(stream_id, consumer_id, epoch, seen, drops_gap=2, drops_late=1, mode=Mode.STREAM)


def hello(consumer_id: int = 9, *, mode: Mode = Mode.STREAM, stream_id: int = STREAM) -> ConsumerHello:
    return ConsumerHello(stream_id, consumer_id, supports_shm=True, supports_progress=False, mode=mode)


@pytest.fixture
def watch() -> ConsumerWatch:
    return ConsumerWatch(STREAM, stale_after_ns=4 * SECOND)


class TestReports:
    @pytest.mark.req("WIRE-10.4.2-1")
    @pytest.mark.parametrize(("next_seq", "current"), [(50, 49), (1, 0), (0, 0)])
    def test_a_producer_reports_its_last_frame(self, next_seq: int, current: int) -> None:
        message = qos_producer(
            stream_id=STREAM, producer_id=7, epoch=EPOCH, next_seq=next_seq, watermark=None
        )

        assert (message.stream_id, message.producer_id, message.epoch) == (STREAM, 7, EPOCH)
        assert (message.current_seq, message.watermark) == (current, None)

    @pytest.mark.parametrize(("watermark", "sent"), [(None, None), (0, 0), (3, 3), (2**40, 2**32 - 2)])
    def test_a_watermark_fits_its_field(self, watermark: int | None, sent: int | None) -> None:
        message = qos_producer(stream_id=1, producer_id=7, epoch=5, next_seq=2**41, watermark=watermark)

        assert wire.decode(wire.encode(message)).watermark == sent

    @pytest.mark.req("WIRE-10.4.1-4")
    def test_a_consumer_reports_what_it_has_seen(self) -> None:
        message = qos_consumer(
            stream_id=STREAM,
            consumer_id=9,
            epoch=3,
            next_seq=42,
            drops_gap=7,
            drops_late=3,
            mode=Mode.RATE_LIMITED,
        )

        assert message == QosConsumer(STREAM, 9, 3, 41, 7, 3, Mode.RATE_LIMITED)

    def test_counts_of_rings_that_lied_fit_their_fields(self) -> None:
        counted = {"drops_gap": 3 * 2**63, "drops_late": 2**70}
        message = qos_consumer(
            stream_id=STREAM, consumer_id=9, epoch=3, next_seq=42, mode=Mode.STREAM, **counted
        )

        assert wire.decode(wire.encode(message)) == message

    def test_a_consumer_that_saw_nothing_is_behind_by_nothing_it_could_have_seen(
        self, watch: ConsumerWatch
    ) -> None:
        message = qos_consumer(
            stream_id=STREAM,
            consumer_id=9,
            epoch=EPOCH,
            next_seq=1_000,
            drops_gap=0,
            drops_late=0,
            mode=Mode.STREAM,
        )
        watch.on_qos(message, 0, next_seq=1_000)

        assert watch.watermark(epoch=EPOCH) == 0


class TestWatch:
    def test_nobody_is_known(self, watch: ConsumerWatch) -> None:
        assert watch.watermark(epoch=EPOCH) is None
        watch.on_hello(hello(), 0)
        assert watch.watermark(epoch=EPOCH) is None, "a hello says nothing about frames"
        assert watch.consumers[9].last_seq_seen is None

    def test_the_slowest_counts(self, watch: ConsumerWatch) -> None:
        watch.on_qos(report(1, seen=98), 0, next_seq=100)
        watch.on_qos(report(2, seen=40), 0, next_seq=100)
        watch.on_qos(report(3, seen=99), 0, next_seq=100)

        assert watch.watermark(epoch=EPOCH) == 59
        assert watch.consumers[2].behind(EPOCH) == 59

    def test_what_is_published_after_a_report_is_not_held_against_the_consumer(
        self, watch: ConsumerWatch
    ) -> None:
        watch.on_qos(report(1, seen=99), 0, next_seq=100)
        watch.on_qos(report(2, seen=1_090), 1, next_seq=1_100)

        assert watch.watermark(epoch=EPOCH) == 9

    def test_without_a_ring_nobody_is_behind(self, watch: ConsumerWatch) -> None:
        watch.on_qos(report(1, seen=99), 0, next_seq=None)

        assert watch.watermark(epoch=EPOCH) is None

    def test_a_report_may_be_newer_than_what_it_is_compared_with(self, watch: ConsumerWatch) -> None:
        watch.on_qos(report(seen=120), 0, next_seq=100)

        assert watch.watermark(epoch=EPOCH) == 0

    def test_another_epoch_says_nothing(self, watch: ConsumerWatch) -> None:
        watch.on_qos(report(epoch=EPOCH - 1), 0, next_seq=100)

        assert watch.watermark(epoch=EPOCH) is None

    def test_some_peers_say_that_they_saw_nothing(self, watch: ConsumerWatch) -> None:
        watch.on_qos(report(seen=2**64 - 1), 0, next_seq=100)

        assert watch.watermark(epoch=EPOCH) is None

    def test_what_is_known_of_a_consumer(self, watch: ConsumerWatch) -> None:
        watch.on_hello(hello(), 0)
        watch.on_qos(report(), SECOND, next_seq=100)
        watch.on_hello(hello(mode=Mode.RATE_LIMITED), 2 * SECOND)

        known = watch.consumers[9]
        assert (known.last_seq_seen, known.drops_gap, known.drops_late) == (40, 2, 1)
        assert (known.mode, known.age_ns(5 * SECOND)) == (Mode.RATE_LIMITED, 3 * SECOND)

    def test_silent_consumers_are_forgotten(self, watch: ConsumerWatch) -> None:
        watch.on_qos(report(1), 0, next_seq=100)
        watch.on_qos(report(2), SECOND, next_seq=100)

        assert watch.expire(4 * SECOND) == []
        assert watch.expire(4 * SECOND + 1) == [1]
        watch.forget(2)
        assert watch.expire(100 * SECOND) == []
        assert not watch.consumers

    def test_other_streams_change_nothing(self, watch: ConsumerWatch) -> None:
        watch.on_qos(report(stream_id=STREAM + 1), 0, next_seq=100)
        watch.on_hello(hello(stream_id=STREAM + 1), 0)

        assert not watch.consumers

    def test_what_is_kept_is_bounded(self) -> None:
        watch = ConsumerWatch(STREAM, stale_after_ns=SECOND, max_consumers=3)
        for consumer_id in range(1_000):
            watch.on_qos(report(consumer_id), 0, next_seq=100)
        watch.on_qos(report(1, seen=41), 1, next_seq=100)

        assert (len(watch.consumers), watch.ignored) == (3, 997)
        assert watch.consumers[1].last_seq_seen == 41


class TestCollision:
    @pytest.mark.req("WIRE-10.1.2-15")
    def test_a_report_of_our_id_that_we_did_not_send(self) -> None:
        ours = IdCollision(STREAM, consumer_id=9)
        ours.on_session(77)

        new_id = ours.on_qos(report(), session_id=78)

        assert new_id not in (None, 0, 9)
        assert ours.consumer_id == new_id
        assert ours.on_qos(report(), session_id=78) is None, "the other one may keep it"
        assert ours.collisions == 1

    def test_our_own_reports_are_ours_even_after_a_reconnect(self) -> None:
        ours = IdCollision(STREAM, consumer_id=9)
        for session_id in (77, 78, 78):
            ours.on_session(session_id)

        assert ours.on_qos(report(), session_id=77) is None
        assert ours.on_qos(report(), session_id=78) is None
        assert ours.consumer_id == 9

    def test_other_ids_and_streams_are_no_collision(self) -> None:
        ours = IdCollision(STREAM, consumer_id=9)

        assert ours.on_qos(report(10), session_id=1) is None
        assert ours.on_qos(report(stream_id=STREAM + 1), session_id=1) is None

    def test_a_new_id_is_none_that_was_given_up(self) -> None:
        numbers = iter([9, 0, 2**32 - 1, 10, 9, 10, 11])
        ours = IdCollision(STREAM, consumer_id=9, randbits=lambda _: next(numbers))

        assert ours.on_qos(report(9), session_id=1) == 10
        assert ours.on_qos(report(10), session_id=1) == 11

    @pytest.mark.req("WIRE-10.1.2-14")
    def test_ids_are_random(self) -> None:
        ids = {random_consumer_id() for _ in range(100)}

        assert len(ids) == 100
        assert max(ids) - min(ids) > 2**24, "not numbered from a start"
        assert random_consumer_id(randbits=random.Random(4).getrandbits) == random_consumer_id(
            randbits=random.Random(4).getrandbits
        )
