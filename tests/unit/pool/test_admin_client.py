"""Asking a driver: repeats, pages, other people's answers, silence."""

import pytest

from scripted_driver import ScriptedDriver, lease, stream
from tensor_pool import wire
from tensor_pool.config import StreamsSection
from tensor_pool.errors import NoDriverError, NoMediaDriverError, TensorPoolError
from tensor_pool.pool.admin import AdminClient
from tensor_pool.runtime import FakeClock
from tensor_pool.transport.memory import MemoryBus
from tensor_pool.wire.messages import ListStreams, ResponseCode, RevokeLease, StreamsListed


class Place:
    """A driver and a client of it; the driver works, and time passes, while the client pauses."""

    def __init__(self, *, page: int = 1000, timeout_s: float = 2.0) -> None:
        self.bus = MemoryBus()
        self.clock = FakeClock()
        self.driver = ScriptedDriver(self.bus.client(), page=page)
        self.admin = AdminClient(
            self.bus.client(), StreamsSection(), timeout_s=timeout_s, clock=self.clock, pause=self.pause
        )
        self.pauses = 0

    def pause(self) -> None:
        self.pauses += 1
        self.driver.do_work()
        self.clock.advance(ms=10)


@pytest.fixture
def place() -> Place:
    return Place()


def test_status(place: Place) -> None:
    assert place.admin.status().pid == 4321


def test_no_streams(place: Place) -> None:
    assert place.admin.streams() == []
    assert len(place.driver.asked) == 1


def test_pages_are_put_together() -> None:
    place = Place(page=3)
    place.driver.streams = [stream(10000 + n, f"camera-{n}") for n in range(7)]
    found = place.admin.streams()

    assert found == place.driver.streams
    assert [r.offset for r in place.driver.asked if isinstance(r, ListStreams)] == [0, 3, 6]


def test_leases_of_one_stream() -> None:
    place = Place(page=2)
    place.driver.leases = [lease(n, stream_id=10000 + n % 2) for n in range(9)]

    assert place.admin.leases() == place.driver.leases
    assert [entry.lease_id for entry in place.admin.leases(10001)] == [1, 3, 5, 7]


def test_a_lost_request_is_repeated_with_the_same_correlation_id(place: Place) -> None:
    place.driver.ignore = 3
    place.admin.status()
    ids = {request.correlation_id for request in place.driver.asked}

    assert len(place.driver.asked) == 4
    assert len(ids) == 1


def test_each_question_has_its_own_correlation_id(place: Place) -> None:
    place.admin.status()
    place.admin.status()
    first, second = place.driver.asked

    assert first.correlation_id != second.correlation_id
    assert first.client_id == second.client_id != 0


def test_silence_is_no_driver_after_the_time_out() -> None:
    place = Place(timeout_s=1.0)
    place.driver.ignore = 1_000
    before = place.clock.monotonic_ns()
    with pytest.raises(NoDriverError) as raised:
        place.admin.status()

    assert (place.clock.monotonic_ns() - before) == 1_000_000_000
    assert len(place.driver.asked) == 10, "every 100 ms"
    assert "tpool up" in (raised.value.hint or "")


def test_answers_to_others_and_to_earlier_questions_are_not_ours(place: Place) -> None:
    """Another client's answers pass by on the shared stream [decision D13], and old ones too [L11]."""
    status_answer = place.driver.status_answer
    sent = []

    def mislead(request: object) -> None:
        place.driver.asked.append(request)
        for changes in (
            {"client_id": request.client_id ^ 1, "pid": 1},
            {"correlation_id": request.correlation_id - 1, "pid": 2},
            {"pid": 3},
        ):
            sent.append(changes["pid"])
            place.driver.answer(status_answer(request, **changes))

    place.driver._status = mislead
    place.driver.router = wire.Router()
    place.driver.router.on(wire.messages.GetDriverStatus, mislead)

    assert place.admin.status().pid == 3
    assert sent == [1, 2, 3]


def test_garbage_on_the_stream_is_counted_and_harms_nobody(place: Place) -> None:
    with place.bus.client() as noisy:
        publication = noisy.add_publication("aeron:ipc", 1000)
        publication.offer(b"")
        publication.offer(b"garbage of some length, longer than a header")
        publication.offer(wire.encode(place.driver.status_answer(wire.messages.GetDriverStatus(1, 2)))[:-3])

        assert place.admin.status().pid == 4321
    assert place.admin.counts.unknown + place.admin.counts.malformed == 3


def test_a_driver_that_claims_more_than_it_gives_does_not_go_on_for_ever(place: Place) -> None:
    def claim(request: ListStreams) -> None:
        place.driver.answer(
            StreamsListed(
                correlation_id=request.correlation_id,
                client_id=request.client_id,
                code=ResponseCode.OK,
                total_count=2**31,
                streams=(stream(1),) if request.offset < 2 else (),
            )
        )

    place.driver.router = wire.Router()
    place.driver.router.on(ListStreams, claim)

    assert len(place.admin.streams()) == 2


def test_revoke(place: Place) -> None:
    place.driver.leases = [lease(5)]
    place.admin.revoke(10000, 5, reason="service")
    (request,) = place.driver.asked

    assert isinstance(request, RevokeLease)
    assert (request.stream_id, request.lease_id, request.reason) == (10000, 5, "service")
    assert place.driver.leases == []


def test_a_refusal_says_why(place: Place) -> None:
    place.driver.token = "secret"
    with pytest.raises(TensorPoolError, match="REJECTED: the token is wrong"):
        place.admin.revoke(10000, 5, token="guess")


def test_back_pressure_only_delays(place: Place) -> None:
    place.bus.hold_back("aeron:ipc", 1000)
    pause = place.admin._pause

    def pause_and_release() -> None:
        pause()
        if place.pauses == 5:
            place.bus.hold_back("aeron:ipc", 1000, on=False)

    place.admin._pause = pause_and_release

    assert place.admin.status().pid == 4321


def test_the_death_of_the_media_driver_comes_out(place: Place) -> None:
    place.bus.kill()
    with pytest.raises(NoMediaDriverError):
        place.admin.status()


def test_closing_leaves_the_client_open(place: Place) -> None:
    client = place.bus.client()
    with AdminClient(client, StreamsSection()) as admin:
        admin.close()

    assert not client.closed
