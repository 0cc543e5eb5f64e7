"""The attachment state machine: every answer, loss and silence, without a driver."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from tensor_pool.errors import AttachRefusedError
from tensor_pool.pool.sessions.attachment import Attachment, AttachmentState
from tensor_pool.pool.sessions.lease import Granted, Lost, Refused, StreamWish
from tensor_pool.wire.messages import (
    ClockDomain,
    LeaseRevokeReason,
    NewerShmAttachRequest,
    NewerShmAttachResponse,
    PayloadPool,
    PublishMode,
    ResolveStream,
    ResponseCode,
    Role,
    ShmAttachRequest,
    ShmAttachResponse,
    ShmDetachRequest,
    ShmDriverShutdown,
    ShmLeaseRevoked,
    ShmPoolAnnounce,
    ShutdownReason,
    StreamResolved,
)

S = 1_000_000_000
POOLS = (PayloadPool(1, 8, 4096, "shm:file?path=/dev/shm/t/1.pool"),)


class FakeIds:
    def __init__(self) -> None:
        self._correlation = itertools.count(100)
        self._client = itertools.count(7)

    def correlation_id(self) -> int:
        return next(self._correlation)

    def client_id(self) -> int:
        return next(self._client)


def attachment(role: Role = Role.PRODUCER, dialect: str = "auto", **wish: object) -> Attachment:
    wish = wish or {"name": "camera-1"}
    return Attachment(
        StreamWish(role=role, **wish),
        ids=FakeIds(),
        dialect=dialect,
        keepalive_interval_ns=S,
        freshness_ns=3 * S,
    )


def response(request, **changes):
    fields = {
        "correlation_id": request.correlation_id,
        "code": ResponseCode.OK,
        "lease_id": 9,
        "lease_expiry_timestamp_ns": 99,
        "stream_id": request.stream_id,
        "epoch": 5,
        "layout_version": 1,
        "header_nslots": 8,
        "header_slot_bytes": 256,
        "max_dims": 8,
        "payload_pools": POOLS,
        "header_region_uri": "shm:file?path=/dev/shm/t/header.ring",
    }
    return ShmAttachResponse(**(fields | changes))


def announce(epoch: int = 5, producer_id: int = 7, stream_id: int = 20_000) -> ShmPoolAnnounce:
    return ShmPoolAnnounce(
        stream_id=stream_id,
        producer_id=producer_id,
        epoch=epoch,
        announce_timestamp_ns=1,
        announce_clock_domain=ClockDomain.MONOTONIC,
        layout_version=1,
        header_nslots=8,
        header_slot_bytes=256,
        payload_pools=POOLS,
        header_region_uri="shm:file?path=/dev/shm/t/header.ring",
    )


def resolved(request: ResolveStream, **changes) -> StreamResolved:
    fields = {
        "correlation_id": request.correlation_id,
        "client_id": request.client_id,
        "code": ResponseCode.OK,
        "stream_id": 20_000,
        "epoch": 4,
        "producer_attached": True,
    }
    return StreamResolved(**(fields | changes))


def only(messages):
    assert len(messages) == 1, messages
    return messages[0]


def attached(role: Role = Role.PRODUCER, now: int = 0) -> Attachment:
    a = attachment(role)
    a.on_resolved(resolved(only(a.step(now)[0])), now)
    event = only(a.on_attach_response(response(only(a.step(now)[0])), now))
    assert isinstance(event, Granted)
    return a


@pytest.mark.req("DRV-4.2-1", "DRV-2.3-1", "DRV-4.1-3")
def test_a_named_stream_is_resolved_then_attached():
    a = attachment(shape=(2, 3), name="camera-1")
    ask = only(a.step(0)[0])
    assert isinstance(ask, ResolveStream)
    assert (ask.name, ask.role, ask.ndims, ask.dims[:3]) == ("camera-1", Role.PRODUCER, 2, (2, 3, 0))
    assert a.on_resolved(resolved(ask), 0) == []
    request = only(a.step(0)[0])
    assert isinstance(request, ShmAttachRequest)
    assert (request.stream_id, request.client_id) == (20_000, ask.client_id)
    assert request.publish_mode is PublishMode.EXISTING_OR_CREATE
    lease = only(a.on_attach_response(response(request), 10)).lease
    assert (lease.lease_id, lease.epoch, lease.client_id, lease.granted_ns) == (9, 5, ask.client_id, 10)
    assert lease.address.header_uri == "shm:file?path=/dev/shm/t/header.ring"
    assert lease.keepalive().lease_id == 9


def test_answers_to_others_change_nothing():
    a = attachment()
    ask = only(a.step(0)[0])
    assert a.on_resolved(resolved(ask, correlation_id=1), 0) == []
    assert a.on_resolved(resolved(ask, client_id=ask.client_id + 1), 0) == []
    assert a.state is AttachmentState.RESOLVING
    a.on_resolved(resolved(ask), 0)
    request = only(a.step(0)[0])
    assert a.on_attach_response(response(request, correlation_id=1), 0) == []
    assert a.state is AttachmentState.ATTACHING
    # An answer that comes twice is an answer once.
    assert only(a.on_attach_response(response(request), 0))
    assert a.on_attach_response(response(request), 0) == []


def test_silence_is_asked_again_with_the_same_ids():
    a = attachment()
    first = only(a.step(0)[0])
    assert a.step(S // 4 - 1) == ([], [])
    assert only(a.step(S // 4)[0]) == first


def test_a_driver_that_knows_no_names_gets_the_id():
    a = attachment(stream_id=10_000)
    for quarter in range(4):
        assert isinstance(only(a.step(quarter * S // 4)[0]), ResolveStream)
    request = only(a.step(S)[0])
    assert isinstance(request, ShmAttachRequest)
    assert request.stream_id == 10_000


@pytest.mark.parametrize(
    ("dialect", "expected"), [("auto", "SSSSNNNNSS"), ("seed", 10 * "S"), ("newer", 10 * "N")]
)
def test_both_dialects_take_turns(dialect, expected):
    a = attachment(dialect=dialect)
    a.on_resolved(resolved(only(a.step(0)[0])), 0)
    requests = [only(a.step(n * S)[0]) for n in range(10)]
    kinds = {ShmAttachRequest: "S", NewerShmAttachRequest: "N"}
    assert "".join(kinds[type(request)] for request in requests) == expected
    # Repeated with the same id at first, so that the driver can tell (decision L11), then with another (D18).
    ids = [request.correlation_id for request in requests]
    assert ids[0] == ids[3] != ids[4] == ids[7] != ids[8]


def test_a_slow_driver_may_answer_the_first_of_several_requests():
    a = attachment()
    a.on_resolved(resolved(only(a.step(0)[0])), 0)
    first, *_, last = [only(a.step(n * S)[0]) for n in range(5)]
    assert first.correlation_id != last.correlation_id
    refusal = ShmAttachResponse(first.correlation_id, ResponseCode.REJECTED, error_message="not yet")
    assert a.on_attach_response(refusal, 5 * S) == [], "the last request counts"
    assert isinstance(only(a.on_attach_response(response(first), 5 * S)), Granted)
    held = ShmAttachResponse(last.correlation_id, ResponseCode.REJECTED, error_message="holds lease 9")
    assert a.on_attach_response(held, 5 * S) == []
    assert a.lease is not None


def test_an_answer_to_an_earlier_wish_is_no_lease():
    a = attachment()
    a.on_resolved(resolved(only(a.step(0)[0])), 0)
    before = only(a.step(0)[0])
    a.on_attach_response(response(before, epoch=None), 0)
    a.on_resolved(resolved(only(a.step(S)[0])), S)
    only(a.step(S)[0])
    assert a.on_attach_response(response(before), S) == []


def test_an_answer_in_the_newer_dialect():
    a = attachment(dialect="newer")
    a.on_resolved(resolved(only(a.step(0)[0])), 0)
    ours = msgspec.structs.asdict(response(only(a.step(0)[0])))
    del ours["max_dims"]
    assert isinstance(only(a.on_attach_response(NewerShmAttachResponse(**ours, node_id=3), 0)), Granted)


@pytest.mark.req("DRV-4.2-17", "DRV-4.2-18", "DRV-4.2-19", "DSC-7-4")
@pytest.mark.parametrize(
    "lacking",
    [
        {"lease_id": None},
        {"epoch": None},
        {"stream_id": None},
        {"layout_version": None},
        {"header_nslots": None},
        {"header_slot_bytes": None},
        {"max_dims": None},
        {"header_region_uri": ""},
        {"payload_pools": ()},
        {"payload_pools": (PayloadPool(1, 16, 4096, "shm:file?path=/dev/shm/t/1.pool"),)},
        {"layout_version": 2},
        {"header_slot_bytes": 128},
    ],
)
def test_an_answer_that_lacks_something_is_no_lease(lacking):
    a = attachment()
    a.on_resolved(resolved(only(a.step(0)[0])), 0)
    request = only(a.step(0)[0])
    assert a.on_attach_response(response(request, **lacking), 0) == []
    assert a.lease is None
    assert a.last_refusal
    again = only(a.step(S)[0])
    assert again.client_id != request.client_id


def test_an_answer_for_another_stream_is_no_lease():
    a = attachment(stream_id=10_000)
    a.on_resolved(resolved(only(a.step(0)[0]), stream_id=10_000), 0)
    request = only(a.step(0)[0])
    assert a.on_attach_response(response(request, stream_id=10_001), 0) == []
    assert a.lease is None


@pytest.mark.parametrize("code", [code for code in ResponseCode if code is not ResponseCode.OK])
def test_a_refused_producer_is_told_why(code):
    a = attachment()
    a.on_resolved(resolved(only(a.step(0)[0])), 0)
    request = only(a.step(0)[0])
    event = only(a.on_attach_response(ShmAttachResponse(request.correlation_id, code, error_message="no"), 0))
    assert isinstance(event, Refused)
    assert isinstance(event.error, AttachRefusedError)
    assert "'camera-1'" in event.error.message
    assert code.name in event.error.message
    assert event.error.hint
    assert a.step(10 * S) == ([], [])


def test_a_consumer_waits_for_a_stream_that_nobody_produces():
    a = attachment(Role.CONSUMER)
    a.on_resolved(resolved(only(a.step(0)[0]), epoch=None, producer_attached=False), 0)
    assert a.state is AttachmentState.WAITING
    assert a.waited_for_stream
    assert a.on_announce(announce(producer_id=0), 1) == []
    assert a.state is AttachmentState.WAITING
    a.on_announce(announce(producer_id=3), 2)
    request = only(a.step(2)[0])
    assert request.publish_mode is PublishMode.REQUIRE_EXISTING
    assert only(a.on_attach_response(response(request), 3))


def test_a_waiting_consumer_asks_again_if_announces_get_lost():
    a = attachment(Role.CONSUMER)
    a.on_resolved(resolved(only(a.step(0)[0]), epoch=None, producer_attached=False), 0)
    assert a.step(S - 1) == ([], [])
    ask = only(a.step(S)[0])
    assert isinstance(ask, ResolveStream)
    a.on_resolved(resolved(ask), S)
    assert isinstance(only(a.step(S)[0]), ShmAttachRequest)


def test_a_refused_consumer_of_a_stream_that_is_there_is_told_why():
    a = attachment(Role.CONSUMER)
    a.on_resolved(resolved(only(a.step(0)[0])), 0)
    request = only(a.step(0)[0])
    refusal = ShmAttachResponse(request.correlation_id, ResponseCode.REJECTED, error_message="limit")
    assert isinstance(only(a.on_attach_response(refusal, 0)), Refused)


def test_a_consumer_whose_driver_died_while_it_attached_asks_the_next_one_anew():
    """The one that knew the stream never answers; to the next one the producer is not back yet."""
    a = attachment(Role.CONSUMER)
    a.on_resolved(resolved(only(a.step(0)[0])), 0)
    a.step(0)
    request = only(a.step(S)[0])
    assert isinstance(request, ShmAttachRequest)
    refusal = ShmAttachResponse(request.correlation_id, ResponseCode.REJECTED, error_message="none")
    assert a.on_attach_response(refusal, S) == []
    ask = only(a.step(2 * S)[0])
    assert isinstance(ask, ResolveStream)
    a.on_resolved(resolved(ask), 2 * S)
    request = only(a.step(2 * S)[0])
    refusal = ShmAttachResponse(request.correlation_id, ResponseCode.REJECTED, error_message="limit")
    assert isinstance(only(a.on_attach_response(refusal, 2 * S)), Refused), "it is there, and has no room"


@pytest.mark.req("DRV-4.9-8", "DRV-4.7-7", "DRV-4.8-3")
@pytest.mark.parametrize("reason", list(LeaseRevokeReason))
def test_a_revoked_lease_is_lost_and_asked_for_anew(reason):
    a = attached()
    lease = a.lease
    notice = ShmLeaseRevoked(50, 9, 20_000, lease.client_id, Role.PRODUCER, reason, "because")
    event = only(a.on_revoked(notice, 60))
    assert isinstance(event, Lost)
    assert reason.name.lower() in event.reason
    assert "because" in event.reason
    assert a.lease is None
    ask = only(a.step(S)[0])
    assert isinstance(ask, ResolveStream)
    assert ask.client_id != lease.client_id


@pytest.mark.parametrize(
    "other", [{"lease_id": 8}, {"client_id": 999}, {"stream_id": 1}, {"role": Role.CONSUMER}]
)
def test_a_revoked_lease_of_others_changes_nothing(other):
    a = attached()
    fields = {"lease_id": 9, "client_id": a.lease.client_id, "stream_id": 20_000, "role": Role.PRODUCER}
    notice = ShmLeaseRevoked(timestamp_ns=50, reason=LeaseRevokeReason.REVOKED, **(fields | other))
    assert a.on_revoked(notice, 60) == []
    assert a.lease is not None


@pytest.mark.req("DRV-4.12-5", "DRV-4.12-7")
def test_a_shutdown_ends_the_lease_unless_it_is_an_old_one():
    a = attached(now=100)
    assert a.on_shutdown(ShmDriverShutdown(99, ShutdownReason.NORMAL), 200) == []
    assert isinstance(only(a.on_shutdown(ShmDriverShutdown(150, ShutdownReason.NORMAL), 200)), Lost)
    assert isinstance(only(a.step(S)[0]), ResolveStream)


@pytest.mark.req("DRV-4.12-8", "DRV-10-1", "DRV-10-3", "DSC-7-6")
def test_a_silent_driver_is_a_dead_one():
    a = attached()
    a.on_announce(announce(), S)
    assert a.step(4 * S, last_keepalive_ns=4 * S) == ([], [])
    _, events = a.step(4 * S + 1, last_keepalive_ns=4 * S)
    assert "announced nothing for 3.0 s" in only(events).reason
    assert isinstance(only(a.step(5 * S)[0]), ResolveStream)


def test_keepalives_that_can_not_be_sent_end_the_lease():
    a = attached()
    a.on_announce(announce(), 4 * S)
    assert a.step(4 * S, last_keepalive_ns=S) == ([], [])
    _, events = a.step(4 * S + 1, last_keepalive_ns=S)
    assert "keepalive" in only(events).reason


@pytest.mark.parametrize(
    ("expiry_ns", "period_ns"),
    [
        (None, S),
        (5 * S + 9 * S, S),
        (5 * S + 300_000_000, 100_000_000),
        (5 * S + 1, 10_000_000),
        (5 * S, S),
        (99, S),
        (2**64 - 2, S),
    ],
)
def test_keepalives_come_often_enough_for_short_leases(expiry_ns, period_ns):
    """Never less often than configured, and not without pause whatever the driver says."""
    a = attachment()
    a.on_resolved(resolved(only(a.step(5 * S)[0])), 5 * S)
    answer = response(only(a.step(5 * S)[0]), lease_expiry_timestamp_ns=expiry_ns)
    a.on_attach_response(answer, 5 * S)
    assert a.lease.keepalive_period_ns(S) == period_ns


def test_a_producer_stops_when_somebody_else_has_the_stream():
    a = attached()
    assert a.on_announce(announce(epoch=4, producer_id=1), 1) == []
    assert a.on_announce(announce(epoch=5, producer_id=0), 1) == []
    assert a.on_announce(announce(epoch=5, producer_id=a.lease.client_id), 1) == []
    assert "producer 12" in only(a.on_announce(announce(epoch=5, producer_id=12), 1)).reason
    a = attached()
    assert "epoch 6" in only(a.on_announce(announce(epoch=6, producer_id=a.lease.client_id), 1)).reason
    consumer = attached(Role.CONSUMER)
    assert consumer.on_announce(announce(epoch=6, producer_id=12), 1) == []


def test_after_a_loss_refusals_are_waited_out_with_growing_pauses():
    a = attached()
    a.lose("for a reason", 0)
    now, pauses = 0, []
    for _ in range(6):
        before = now
        while not (messages := a.step(now)[0]):
            now += S // 100
        pauses.append(now - before)
        refusal = resolved(only(messages), code=ResponseCode.REJECTED, error_message="taken", stream_id=None)
        assert a.on_resolved(refusal, now) == []
    assert pauses == sorted(pauses)
    assert pauses[-1] <= S
    assert a.last_refusal == "REJECTED: taken"


@pytest.mark.req("DRV-4.9-1")
def test_detach_gives_the_lease_back_once():
    a = attached()
    lease = a.lease
    request = only(a.detach())
    assert isinstance(request, ShmDetachRequest)
    assert (request.lease_id, request.client_id) == (lease.lease_id, lease.client_id)
    assert a.detach() == []
    assert a.step(100 * S) == ([], [])
