"""What a producer opens because it overhears what consumers are told."""

from __future__ import annotations

import pytest

from tensor_pool.pool.told_assignments import ToldAssignments
from tensor_pool.wire.messages import ConsumerConfig, ConsumerHello, Mode

STREAM = 10_000
SILENCE = 4_000


@pytest.fixture
def told() -> ToldAssignments:
    return ToldAssignments(
        STREAM,
        descriptor_stream_ids=range(31_000, 31_010),
        control_stream_ids=range(32_000, 32_010),
        silence_ns=SILENCE,
        limited_rate_hz=10,
        max_private=3,
    )


def config(consumer_id: int = 7, stream_id: int = 31_005, **changes: object) -> ConsumerConfig:
    values = {
        "stream_id": STREAM,
        "consumer_id": consumer_id,
        "use_shm": True,
        "mode": Mode.RATE_LIMITED,
        "descriptor_stream_id": stream_id,
        "descriptor_channel": "aeron:ipc",
    }
    return ConsumerConfig(**{**values, **changes})


def wish(mode: Mode, max_rate_hz: int) -> ConsumerHello:
    return ConsumerHello(STREAM, 7, True, False, mode, max_rate_hz)


def test_a_stream_is_opened_and_closed_as_told(told: ToldAssignments) -> None:
    told.on_config(config(control_channel="aeron:ipc?term-length=1g", control_stream_id=32_001), None, 0)
    assert told.assignments[7].descriptor == ("aeron:ipc", 31_005)
    assert told.assignments[7].control == ("aeron:ipc", 32_001), "the channel as we would open it"
    told.on_config(config(descriptor_stream_id=0, descriptor_channel=""), None, 1)
    assert told.assignments == {}
    assert told.changes == 2


def test_the_same_again_changes_nothing(told: ToldAssignments) -> None:
    for now_ns in range(5):
        told.on_config(config(), None, now_ns)
    assert told.changes == 1


@pytest.mark.req("WIRE-11-5")
@pytest.mark.parametrize(
    ("mode", "hello", "rate_hz"),
    [
        (Mode.STREAM, None, 0),
        (Mode.STREAM, wish(Mode.STREAM, 30), 0),
        (Mode.RATE_LIMITED, None, 10),
        (Mode.RATE_LIMITED, wish(Mode.STREAM, 0), 10),
        (Mode.RATE_LIMITED, wish(Mode.STREAM, 30), 30),
        (Mode.RATE_LIMITED, wish(Mode.RATE_LIMITED, 30), 30),
        (Mode.RATE_LIMITED, wish(Mode.RATE_LIMITED, 0), 0),
    ],
)
def test_the_rate_is_the_consumers_own_if_it_named_one(
    told: ToldAssignments, mode: Mode, hello: ConsumerHello | None, rate_hz: int
) -> None:
    told.on_config(config(mode=mode), hello, 0)
    assert told.assignments[7].max_rate_hz == rate_hz


@pytest.mark.parametrize(
    "wrong",
    [
        {"stream_id": STREAM + 1},
        {"descriptor_stream_id": 1000},
        {"descriptor_stream_id": 0},
        {"descriptor_channel": "aeron:udp?endpoint=10.0.0.1:4000"},
        {"descriptor_channel": "nonsense"},
        {"descriptor_channel": ""},
    ],
)
def test_nothing_is_opened_that_nobody_could_ask_for(told: ToldAssignments, wrong: dict[str, object]) -> None:
    values = {"stream_id": STREAM, "descriptor_stream_id": 31_005, **wrong}
    told.on_config(
        ConsumerConfig(
            consumer_id=7,
            use_shm=True,
            mode=Mode.STREAM,
            **{"descriptor_channel": "aeron:ipc", **values},
        ),
        None,
        0,
    )
    assert told.assignments == {}


def test_no_two_share_a_stream_and_there_are_only_so_many(told: ToldAssignments) -> None:
    told.on_config(config(7), None, 0)
    told.on_config(config(8), None, 0)
    assert set(told.assignments) == {7}
    for consumer_id in range(20, 30):
        told.on_config(config(consumer_id, 31_000 + consumer_id % 10), None, 0)
    assert len(told.assignments) == 3


@pytest.mark.req("WIRE-5-9", "WIRE-5-10")
def test_who_falls_silent_or_leaves_has_none(told: ToldAssignments) -> None:
    told.on_config(config(7), None, 0)
    told.on_config(config(8, 31_006), None, 0)
    told.on_life(7, SILENCE - 1)
    told.on_life(99, SILENCE - 1)
    told.expire(SILENCE)
    assert set(told.assignments) == {7}
    told.on_disconnect(7)
    told.on_disconnect(7)
    told.expire(10 * SILENCE)
    assert (told.assignments, told.changes) == ({}, 4)
