"""What producers and consumers say of themselves, and what follows from it."""

import pytest

from tensor_pool import wire
from tensor_pool.config import StreamsSection
from tensor_pool.ops.listening import Listener, qos_listener
from tensor_pool.pool.qos_board import QosBoard
from tensor_pool.runtime import FakeClock
from tensor_pool.transport.memory import MemoryBus
from tensor_pool.wire.messages import Mode, QosConsumer, QosProducer

S = 1_000_000_000
STREAM, EPOCH, READER = 10000, 5, 9


def produced(seq: int, *, epoch: int = EPOCH, stream_id: int = STREAM) -> QosProducer:
    return QosProducer(stream_id, 7, epoch=epoch, current_seq=seq)


def consumed(
    seq: int, *, gap: int = 0, late: int = 0, epoch: int = EPOCH, reader: int = READER
) -> QosConsumer:
    return QosConsumer(STREAM, reader, epoch, seq, gap, late, Mode.STREAM)


@pytest.fixture
def board() -> QosBoard:
    return QosBoard()


class TestRates:
    def test_between_two_reports(self, board: QosBoard) -> None:
        board.on_producer(produced(100), 0)
        assert board.producer(STREAM).rate_hz is None
        board.on_producer(produced(350), 500_000_000)
        assert board.producer(STREAM).rate_hz == 500.0

    def test_a_new_epoch_starts_over(self, board: QosBoard) -> None:
        board.on_producer(produced(100), 0)
        board.on_producer(produced(3, epoch=EPOCH + 1), S)
        assert board.producer(STREAM).rate_hz is None

    def test_two_reports_at_once_or_backwards_tell_nothing(self, board: QosBoard) -> None:
        for seq, now_ns in ((100, 0), (150, 0), (120, S)):
            board.on_producer(produced(seq), now_ns)
            assert board.producer(STREAM).rate_hz is None

    def test_reports_that_waited_for_their_listener_change_nothing(self, board: QosBoard) -> None:
        """A watcher that was stopped hears two seconds of reports within microseconds."""
        for seq, now_ns in ((0, 0), (200, S), (400, 3 * S), (600, 3 * S + 5_000)):
            board.on_producer(produced(seq), now_ns)
            board.on_consumer(consumed(seq, gap=seq // 10), now_ns)
        assert board.producer(STREAM).rate_hz == 100.0
        (reader,) = board.consumers(STREAM)
        assert reader.drops_per_s == 10.0
        board.on_producer(produced(800), 4 * S + 5_000)
        assert board.producer(STREAM).rate_hz == 200.0


class TestLag:
    def test_reports_of_different_moments_are_compared_at_one(self, board: QosBoard) -> None:
        """At 1 kHz, a consumer that reports 0.9 s after its producer has seen 900 frames more."""
        board.on_producer(produced(0), 0)
        board.on_producer(produced(1000), S)
        board.on_consumer(consumed(1895), S + 900_000_000)
        assert board.lag(STREAM, READER) == 5

    def test_it_is_never_negative(self, board: QosBoard) -> None:
        board.on_producer(produced(10), 0)
        board.on_consumer(consumed(20), 0)
        assert board.lag(STREAM, READER) == 0

    def test_the_drivers_rate_helps_while_the_producer_was_heard_once(self, board: QosBoard) -> None:
        board.on_producer(produced(1000), 0)
        board.on_consumer(consumed(1490), 500_000_000)
        assert board.lag(STREAM, READER) is None, "it depends on how far the producer has gone meanwhile"
        board.suppose_rate(STREAM, 1000.0)
        assert board.lag(STREAM, READER) == 10

    @pytest.mark.parametrize(
        "report",
        [None, consumed(2**64 - 1), consumed(3, epoch=EPOCH - 1)],
        ids=["silent", "unseen", "old epoch"],
    )
    def test_what_can_not_be_known_is_none(self, board: QosBoard, report: QosConsumer | None) -> None:
        board.on_producer(produced(10), 0)
        if report is not None:
            board.on_consumer(report, 0)
        assert board.lag(STREAM, READER) is None

    def test_nor_without_a_producer(self, board: QosBoard) -> None:
        board.on_consumer(consumed(3), 0)
        assert board.lag(STREAM, READER) is None


class TestDrops:
    def test_all_consumers_of_a_stream_together(self, board: QosBoard) -> None:
        assert board.drops_of(STREAM) is None
        board.on_consumer(consumed(3, gap=4, late=1), 0)
        board.on_consumer(consumed(3, gap=2, reader=8), 0)
        assert board.drops_of(STREAM) == 7
        assert [report.consumer_id for report in board.consumers(STREAM)] == [8, 9]

    def test_per_second(self, board: QosBoard) -> None:
        board.on_consumer(consumed(3, gap=4), 0)
        assert board.consumer(STREAM, READER).drops_per_s is None
        board.on_consumer(consumed(9, gap=6, late=1), 2 * S)
        assert board.consumer(STREAM, READER).drops_per_s == 1.5

    def test_a_counter_that_went_back_is_anothers(self, board: QosBoard) -> None:
        board.on_consumer(consumed(3, gap=4), 0)
        board.on_consumer(consumed(9, gap=1), S)
        assert board.consumer(STREAM, READER).drops_per_s is None


class TestBounds:
    def test_who_fell_silent_is_forgotten(self, board: QosBoard) -> None:
        board.on_producer(produced(1), 0)
        board.on_consumer(consumed(1), 3 * S)
        board.expire(4 * S + 1)
        assert board.producer(STREAM) is None
        assert board.consumer(STREAM, READER) is not None

    def test_there_is_no_room_for_everybody(self) -> None:
        board = QosBoard(max_entries=2)
        for number in range(5):
            board.on_producer(produced(1, stream_id=number), 0)
            board.on_consumer(consumed(1, reader=number), 0)
            board.suppose_rate(number, 1.0)
        assert board.ignored == 6
        board.on_producer(produced(2, stream_id=1), S)
        assert board.producer(1).rate_hz == 1.0, "who is known stays known"


class TestListening:
    def test_reports_reach_the_board_with_the_time_they_came(self) -> None:
        bus, clock = MemoryBus(), FakeClock(5 * S)
        listener, board = qos_listener(bus.client(), StreamsSection(), clock=clock)
        publication = bus.client().add_publication("aeron:ipc", 1200)
        for message in (produced(3), consumed(2)):
            publication.offer(wire.encode(message))
        publication.offer(b"nobody's message")

        assert listener.poll() == 3
        assert board.producer(STREAM).heard_ns == 5 * S
        assert board.consumer(STREAM, READER).last_seq_seen == 2
        listener.close()
        listener.close()

    def test_it_ends_in_time_or_as_soon_as_all_was_heard(self) -> None:
        bus, clock = MemoryBus(), FakeClock(0)
        listener = Listener(
            bus.client(), StreamsSection(), ["qos"], clock=clock, pause=lambda: clock.advance(ns=S // 10)
        )
        assert listener.listen(2.0) is False
        assert clock.monotonic_ns() == 2 * S
        assert listener.listen(2.0, until=lambda: clock.monotonic_ns() >= 3 * S) is True
        assert clock.monotonic_ns() == 3 * S
