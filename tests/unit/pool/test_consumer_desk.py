"""Who gets a stream of its own, for how long, and what the others are told."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensor_pool import wire
from tensor_pool.errors import ChannelError, ConfigError
from tensor_pool.pool.consumer_desk import Assignment, ConsumerDesk, Decline
from tensor_pool.pool.private_streams import PrivateStream, PrivateStreams
from tensor_pool.wire.messages import ConsumerConfig, ConsumerHello, Mode, QosConsumer

STREAM = 10_000
INTERVAL = 1_000_000_000
UDP = "aeron:udp?endpoint=127.0.0.1:40456"


def make_desk(**changes: Any) -> ConsumerDesk:
    arguments: dict[str, Any] = {
        "descriptor_stream_ids": range(31_000, 31_004),
        "control_stream_ids": range(32_000, 32_004),
        "interval_ns": INTERVAL,
    }
    return ConsumerDesk(STREAM, **(arguments | changes))


@pytest.fixture
def desk() -> ConsumerDesk:
    return make_desk()


def hello(consumer_id: int = 7, **changes: Any) -> ConsumerHello:
    arguments: dict[str, Any] = {
        "stream_id": STREAM,
        "consumer_id": consumer_id,
        "supports_shm": True,
        "supports_progress": False,
        "mode": Mode.STREAM,
    }
    return ConsumerHello(**(arguments | changes))


def private(consumer_id: int = 7, stream_id: int = 31_002, **changes: Any) -> ConsumerHello:
    wish = {"descriptor_channel": "aeron:ipc", "descriptor_stream_id": stream_id}
    return hello(consumer_id, **(wish | changes))


def qos(consumer_id: int = 7, stream_id: int = STREAM) -> QosConsumer:
    return QosConsumer(stream_id, consumer_id, 1, 0, 0, 0, Mode.STREAM)


def answer(desk: ConsumerDesk, message: ConsumerHello, now_ns: int = 0) -> ConsumerConfig:
    config = desk.on_hello(message, now_ns)
    assert config is not None
    return wire.decode(wire.encode(config))  # what it becomes on the wire is what counts


def assert_declined(desk: ConsumerDesk, config: ConsumerConfig) -> None:
    assert (config.descriptor_channel, config.descriptor_stream_id) == ("", 0)
    assert (config.control_channel, config.control_stream_id) == ("", 0)
    assert desk.assignments[config.consumer_id] == Assignment(config.consumer_id, None, None, 0)


class TestSharedStream:
    @pytest.mark.req("WIRE-10.1.3-1")
    def test_a_plain_consumer_gets_no_stream_of_its_own(self, desk: ConsumerDesk) -> None:
        config = answer(desk, hello())

        assert_declined(desk, config)
        assert (config.stream_id, config.consumer_id, config.use_shm) == (STREAM, 7, True)
        assert not desk.declined, "nothing was asked for"

    def test_another_stream_is_not_answered(self, desk: ConsumerDesk) -> None:
        assert desk.on_hello(hello(stream_id=STREAM + 1), 0) is None
        assert desk.on_qos(qos(stream_id=STREAM + 1), 0) is None
        assert not desk.assignments

    @pytest.mark.req("WIRE-5-15")
    def test_a_rate_means_nothing_on_the_shared_stream(self, desk: ConsumerDesk) -> None:
        config = answer(desk, hello(mode=Mode.RATE_LIMITED, max_rate_hz=1))

        assert desk.assignments[7].max_rate_hz == 0
        assert config.mode is Mode.RATE_LIMITED, "it may still thin out by itself"


class TestPrivateStreams:
    @pytest.mark.req("WIRE-5-7")
    def test_a_descriptor_stream_is_given(self, desk: ConsumerDesk) -> None:
        config = answer(desk, private(max_rate_hz=30))

        assert (config.descriptor_channel, config.descriptor_stream_id) == ("aeron:ipc", 31_002)
        assert (config.control_channel, config.control_stream_id) == ("", 0)
        assert desk.assignments[7] == (7, ("aeron:ipc", 31_002), None, 30)

    @pytest.mark.req("WIRE-5-17")
    def test_a_control_stream_is_given(self, desk: ConsumerDesk) -> None:
        config = answer(desk, hello(control_channel="aeron:ipc", control_stream_id=32_001, max_rate_hz=5))

        assert (config.control_channel, config.control_stream_id) == ("aeron:ipc", 32_001)
        assert desk.assignments[7] == (7, None, ("aeron:ipc", 32_001), 0), "no cap without descriptors"

    @pytest.mark.req("WIRE-5-14")
    def test_without_a_rate_there_is_no_cap(self, desk: ConsumerDesk) -> None:
        answer(desk, private())

        assert desk.assignments[7].max_rate_hz == 0

    @pytest.mark.req("WIRE-11-5")
    def test_a_new_hello_changes_the_rate_and_keeps_the_stream(self, desk: ConsumerDesk) -> None:
        answer(desk, private(max_rate_hz=10, mode=Mode.RATE_LIMITED))
        before = desk.assignments[7].descriptor
        answer(desk, private(max_rate_hz=20, mode=Mode.RATE_LIMITED))

        assert desk.assignments[7] == (7, before, None, 20)

    def test_the_id_is_only_a_wish(self, desk: ConsumerDesk) -> None:
        elsewhere = answer(desk, private(1, stream_id=77))
        first = answer(desk, private(2, stream_id=31_003))
        taken = answer(desk, private(3, stream_id=31_003))

        given = [config.descriptor_stream_id for config in (elsewhere, first, taken)]
        assert len(set(given)) == 3
        assert all(stream_id in range(31_000, 31_004) for stream_id in given)

    def test_a_repeated_hello_changes_nothing(self, desk: ConsumerDesk) -> None:
        first = answer(desk, private())
        changes = desk.changes

        assert all(answer(desk, private(), n) == first for n in range(10))
        assert desk.changes == changes
        assert len(desk.assignments) == 1

    def test_a_wish_that_is_taken_back_frees_the_stream(self, desk: ConsumerDesk) -> None:
        answer(desk, private())
        changes = desk.changes
        assert_declined(desk, answer(desk, hello()))

        assert desk.changes == changes + 1
        assert answer(desk, private(8)).descriptor_stream_id == 31_002

    def test_no_id_is_left(self, desk: ConsumerDesk) -> None:
        for consumer_id in range(4):
            answer(desk, private(consumer_id))
        assert_declined(desk, answer(desk, private(9)))
        assert desk.declined == {Decline.NO_ID_LEFT: 1}

        desk.on_disconnect(2)

        assert answer(desk, private(9)).descriptor_stream_id > 0, "the next hello gets what was freed"

    def test_an_empty_range_gives_nothing(self) -> None:
        desk = make_desk(descriptor_stream_ids=range(0))

        assert_declined(desk, answer(desk, private()))
        assert desk.declined == {Decline.NO_ID_LEFT: 1}


class TestDeclined:
    @pytest.mark.req("WIRE-10.1.2-7", "WIRE-10.1.2-9", "WIRE-10.1.2-10", "WIRE-10.1.2-12", "WIRE-10.1.3-7")
    @pytest.mark.parametrize("purpose", ["descriptor", "control"])
    @pytest.mark.parametrize(("channel", "stream_id"), [("aeron:ipc", 0), ("", 31_001)])
    def test_half_a_request(self, desk: ConsumerDesk, purpose: str, channel: str, stream_id: int) -> None:
        wish = {f"{purpose}_channel": channel, f"{purpose}_stream_id": stream_id}

        assert_declined(desk, answer(desk, hello(**wish)))
        assert desk.declined == {Decline.HALF_A_REQUEST: 1}

    @pytest.mark.req("WIRE-5-21", "WIRE-5-22")
    @pytest.mark.parametrize(
        "channel",
        [
            "bogus:xyz",
            " ",
            "aeron:ipc?session-id=1",
            "aeron:ipc?tags=1",
            "aeron-spy:aeron:udp?endpoint=127.0.0.1:40456",
            UDP,
            "aeron:udp?endpoint=127.0.0.1:99999",
            "aeron:ipc?term-length=3",
            "aeron:ipc" + "|alias=x" * 1_000,
            "aeron:ipc\0",
        ],
    )
    def test_channels_that_nobody_allowed(self, desk: ConsumerDesk, channel: str) -> None:
        config = answer(desk, private(stream_id=77, descriptor_channel=channel))

        assert_declined(desk, config)
        assert desk.declined == {Decline.CHANNEL: 1}

    @pytest.mark.req("WIRE-5-22")
    def test_one_wish_may_be_declined_and_the_other_granted(self, desk: ConsumerDesk) -> None:
        config = answer(desk, private(control_channel=UDP, control_stream_id=32_000))

        assert config.descriptor_stream_id == 31_002
        assert (config.control_channel, config.control_stream_id) == ("", 0)

    def test_a_consumer_does_not_choose_our_memory(self, desk: ConsumerDesk) -> None:
        config = answer(desk, private(descriptor_channel="aeron:ipc?term-length=1g|alias=mine"))

        assert config.descriptor_channel == "aeron:ipc"

    def test_the_network_can_be_allowed(self) -> None:
        desk = make_desk(allowed_channels=[f"{UDP}|mtu=8k"])

        assert answer(desk, private(descriptor_channel=UDP)).descriptor_channel == f"{UDP}|mtu=8k"
        assert_declined(desk, answer(desk, private()))

    def test_a_wish_that_became_wrong_loses_the_stream(self, desk: ConsumerDesk) -> None:
        answer(desk, private())

        assert_declined(desk, answer(desk, private(descriptor_channel=UDP)))
        assert answer(desk, private(8)).descriptor_stream_id == 31_002

    def test_more_consumers_than_are_kept(self) -> None:
        desk = make_desk(max_consumers=3)
        for consumer_id in range(1_000):
            config = answer(desk, private(consumer_id))
            assert bool(config.descriptor_channel) == (consumer_id < 3)
        assert len(desk.assignments) == len(desk.hellos) == 3
        assert desk.declined[Decline.TOO_MANY_CONSUMERS] == 997
        assert answer(desk, private(1)).descriptor_channel, "those that are kept still get their answer"


class TestSharedMemory:
    def test_a_consumer_without_it_is_sent_elsewhere(self) -> None:
        desk = make_desk(fallback_uri=UDP)
        config = answer(desk, hello(supports_shm=False))

        assert (config.use_shm, config.payload_fallback_uri) == (False, UDP)
        assert answer(make_desk(), hello(supports_shm=False)).payload_fallback_uri == ""

    def test_the_fallback_is_known_to_all(self) -> None:
        config = answer(make_desk(fallback_uri=UDP), hello())

        assert (config.use_shm, config.payload_fallback_uri) == (True, UDP)

    def test_one_that_comes_back_still_has_none(self) -> None:
        desk = make_desk(fallback_uri=UDP)
        answer(desk, private(supports_shm=False))
        assert desk.expire(10 * INTERVAL)

        config = desk.on_qos(QosConsumer(STREAM, 7, 1, 0, 0, 0, Mode.STREAM), 11 * INTERVAL)

        assert (config.use_shm, config.payload_fallback_uri, config.descriptor_stream_id) == (False, UDP, 0)

    @pytest.mark.parametrize(("version", "readable"), [(0, True), (1, True), (2, False)])
    def test_a_consumer_of_another_layout_can_not_map(
        self, desk: ConsumerDesk, version: int, readable: bool
    ) -> None:
        assert answer(desk, hello(expected_layout_version=version)).use_shm == readable


class TestSilence:
    @pytest.mark.req("WIRE-5-12")
    def test_a_silent_consumer_is_gone_after_three_to_five_intervals(self, desk: ConsumerDesk) -> None:
        answer(desk, private())

        assert desk.expire(int(2.9 * INTERVAL)) == []
        assert desk.expire(4 * INTERVAL) == []
        assert desk.expire(5 * INTERVAL) == [(7, ("aeron:ipc", 31_002), None, 0)]
        assert not desk.assignments
        assert not desk.hellos
        assert desk.expire(6 * INTERVAL) == []

    @pytest.mark.req("WIRE-5-11")
    @pytest.mark.parametrize("by_qos", [True, False])
    def test_hello_or_qos_alone_keeps_it(self, desk: ConsumerDesk, by_qos: bool) -> None:
        answer(desk, private())
        for n in range(1, 21):
            if by_qos:
                assert desk.on_qos(qos(), n * INTERVAL) is None
            else:
                answer(desk, private(), n * INTERVAL)
            assert desk.expire(n * INTERVAL) == []

    def test_a_consumer_says_goodbye(self, desk: ConsumerDesk) -> None:
        answer(desk, private())

        assert desk.on_disconnect(7) == (7, ("aeron:ipc", 31_002), None, 0)
        assert desk.on_disconnect(7) is None
        assert desk.expire(10 * INTERVAL) == []

    def test_one_that_comes_back_is_told_that_its_stream_is_gone(self, desk: ConsumerDesk) -> None:
        answer(desk, private(mode=Mode.RATE_LIMITED))
        desk.expire(5 * INTERVAL)

        config = desk.on_qos(qos(), 6 * INTERVAL)

        assert config is not None
        assert (config.descriptor_channel, config.descriptor_stream_id) == ("", 0)
        assert config.mode is Mode.RATE_LIMITED
        assert desk.on_qos(qos(), 7 * INTERVAL) is None, "once is enough"
        assert answer(desk, private(), 8 * INTERVAL).descriptor_stream_id == 31_002

    def test_strangers_and_plain_consumers_are_not_told(self, desk: ConsumerDesk) -> None:
        answer(desk, hello())
        desk.expire(5 * INTERVAL)

        assert desk.on_qos(qos(7), 6 * INTERVAL) is None
        assert desk.on_qos(qos(8), 6 * INTERVAL) is None

    def test_what_is_remembered_of_the_gone_is_bounded(self) -> None:
        desk = make_desk(descriptor_stream_ids=range(1, 2_000), max_private=1_000)
        for consumer_id in range(1_000):
            answer(desk, private(consumer_id))
        assert len(desk.expire(5 * INTERVAL)) == 1_000
        assert len(desk._gone) == 256


class TestPrivateStreamIds:
    @pytest.mark.parametrize("ids", [range(2), range(-1, 3), range(2**31 - 1, 2**31 + 1)])
    def test_ids_that_no_stream_can_have(self, ids: range) -> None:
        with pytest.raises(ConfigError, match="no Aeron stream can have"):
            PrivateStreams(ids, allowed_channels=["aeron:ipc"])

    def test_an_allowed_channel_that_is_none(self) -> None:
        with pytest.raises(ChannelError):
            PrivateStreams(range(1, 2), allowed_channels=["ipc"])

    @given(st.lists(st.tuples(st.integers(0, 9), st.booleans(), st.integers(0, 12)), max_size=60))
    def test_no_id_is_ever_given_out_twice(self, steps: list[tuple[int, bool, int]]) -> None:
        streams = PrivateStreams(range(1, 6), allowed_channels=["aeron:ipc"])
        held: dict[int, PrivateStream] = {}
        for consumer, take, wish in steps:
            if take and consumer not in held:
                given_out = streams.assign("aeron:ipc", wish=wish, seed=consumer)
                assert (given_out is None) == (len(held) == 5)
                if given_out is not None:
                    assert given_out.stream_id not in {stream.stream_id for stream in held.values()}
                    held[consumer] = given_out
            elif not take and consumer in held:
                streams.release(held.pop(consumer))
            assert len(streams) == len(held)


def test_private_streams_have_a_limit_of_their_own() -> None:
    """Each costs a publication: a flood of hellos must not make thousands of them."""
    desk = make_desk(descriptor_stream_ids=range(1, 2_000), max_private=3)
    given = [answer(desk, private(consumer_id)).descriptor_stream_id for consumer_id in range(10)]
    assert sum(stream_id > 0 for stream_id in given) == 3
    assert desk.declined[Decline.NO_ID_LEFT] == 7
