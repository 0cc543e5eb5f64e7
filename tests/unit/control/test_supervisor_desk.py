"""What consumers are told: answers to hellos, remedies, and nothing where somebody else is the authority."""

from __future__ import annotations

import pytest

from supervised import FALLBACK, SECOND, STREAM, Scene, announce, hello, report, setting
from tensor_pool.control.supervisor.desk import SupervisorDesk
from tensor_pool.control.supervisor.judging import Remedy
from tensor_pool.wire.messages import ConsumerConfig, Mode


class TestHellos:
    def test_are_answered_as_a_producer_would(self) -> None:
        scene = Scene()
        scene.second()
        wish = hello(
            consumer_id=8, descriptor_stream_id=31_007, descriptor_channel="aeron:ipc", max_rate_hz=5
        )
        assert scene.say(wish) == [
            ConsumerConfig(
                STREAM,
                8,
                use_shm=True,
                mode=Mode.STREAM,
                descriptor_stream_id=31_007,
                descriptor_channel="aeron:ipc",
                payload_fallback_uri=FALLBACK,
            )
        ]

    def test_of_streams_that_are_not_announced_are_not(self) -> None:
        assert Scene().say(hello()) == []

    @pytest.mark.parametrize("changes", [{"stream_id": 0}, {"stream_id": 2**32 - 1}])
    def test_of_impossible_streams_are_not(self, changes: dict[str, int]) -> None:
        scene = Scene()
        scene.second()
        assert scene.say(hello(**changes)) == []

    def test_where_somebody_else_is_the_authority_it_is_silent(self) -> None:
        scene = Scene(setting(is_authority=False))
        scene.seconds(60, drops=50)
        assert scene.sent == []
        assert scene.moves == [("none", "rate_limited", "not_authority")]

    def test_who_was_thought_gone_and_lost_its_stream_is_told(self) -> None:
        scene = Scene()
        scene.second()
        wish = hello(consumer_id=8, descriptor_stream_id=31_007, descriptor_channel="aeron:ipc")
        scene.say(wish)
        scene.now_ns += 5 * SECOND
        scene.look()
        (config,) = scene.say(report(consumer_id=8))
        assert (config.descriptor_channel, config.descriptor_stream_id) == ("", 0)


class TestRemedies:
    @pytest.mark.req("WIRE-10.1.3-4", "WIRE-10.1.3-5", "WIRE-10.5-2", "WIRE-15.4-2")
    def test_one_after_the_other_and_back(self) -> None:
        scene = Scene()
        scene.seconds(2)
        told = []
        for _ in range(3):
            scene.sent.clear()
            while not list(scene.moves[len(told) :]):
                scene.second(drops=50)
            told.append(scene.sent[-1])
        assert [config.mode for config in told] == [Mode.RATE_LIMITED] * 3
        assert [config.use_shm for config in told] == [True, True, False]
        assert [bool(config.descriptor_channel) for config in told] == [False, True, False]
        assert [config.descriptor_stream_id in range(31_000, 32_000) for config in told][1]
        assert told[2].payload_fallback_uri == FALLBACK
        scene.seconds(100)
        assert scene.moves == [
            ("none", "rate_limited", "told"),
            ("rate_limited", "own_stream", "told"),
            ("own_stream", "fallback", "told"),
            ("fallback", "own_stream", "told"),
            ("own_stream", "rate_limited", "told"),
            ("rate_limited", "none", "told"),
        ]
        assert (scene.sent[-1].mode, scene.sent[-1].use_shm) == (Mode.STREAM, True)

    def test_are_repeated_with_every_hello(self) -> None:
        scene = Scene()
        scene.seconds(8, drops=50)
        (config,) = scene.say(hello())
        assert config.mode is Mode.RATE_LIMITED
        assert scene.overseer.board.consumers[STREAM, 7].told == config

    def test_others_are_left_alone(self) -> None:
        scene = Scene()
        for _ in range(20):
            scene.second(drops=50)
            scene.say(hello(consumer_id=8), report(consumer_id=8, last_seq_seen=scene.seq))
        assert {config.mode for config in scene.sent if config.consumer_id == 8} == {Mode.STREAM}

    def test_are_not_for_one_hiccup(self) -> None:
        scene = Scene()
        scene.seconds(5)
        scene.second(drops=500)
        scene.seconds(30)
        assert scene.moves == []

    def test_are_for_bursts(self) -> None:
        scene = Scene()
        for _ in range(10):
            scene.second(drops=250)
            scene.second()
        assert scene.moves[0] == ("none", "rate_limited", "told")

    def test_say_what_was_seen(self) -> None:
        scene = Scene()
        scene.seconds(8, drops=50, lag=30)
        (entry,) = scene.overseer.journal.entries()
        assert (entry.stream_id, entry.consumer_id) == (STREAM, 7)
        assert entry.seen == "slow: lag 30 of 1000 slots, drops 50.0/s"

    def test_are_told_to_whoever_listens(self) -> None:
        scene, heard = Scene(), []
        scene.overseer.journal.on_decision = heard.append
        scene.seconds(8, drops=50)
        assert heard == scene.overseer.journal.entries()


class TestLadder:
    def ladder(self, **changes: object) -> list[str]:
        keys = {key: changes.pop(key) for key in ("remedies", "fallback_uri") if key in changes}
        return [remedy.value for remedy in SupervisorDesk(setting(**keys)).ladder(hello(**changes))]

    def test_all(self) -> None:
        assert self.ladder() == ["none", "rate_limited", "own_stream", "fallback"]

    def test_what_a_consumer_has_already_is_no_step(self) -> None:
        assert self.ladder(mode=Mode.RATE_LIMITED) == ["none", "own_stream", "fallback"]
        own = {"descriptor_channel": "aeron:ipc", "descriptor_stream_id": 31_000}
        assert self.ladder(**own) == ["none", "rate_limited", "fallback"]
        assert self.ladder(supports_shm=False) == ["none", "rate_limited"]

    def test_what_is_not_configured_neither(self) -> None:
        assert self.ladder(fallback_uri="") == ["none", "rate_limited", "own_stream"]
        assert self.ladder(remedies=("fallback",)) == ["none", "fallback"]
        assert self.ladder(remedies=()) == ["none"]

    def test_the_order_is_always_the_same(self) -> None:
        assert self.ladder(remedies=("own_stream", "rate_limited")) == ["none", "rate_limited", "own_stream"]

    def test_a_step_does_not_include_what_is_not_allowed(self) -> None:
        desk = SupervisorDesk(setting(remedies=("own_stream",)))
        assert desk.answer(hello(), Remedy.OWN_STREAM, 0).mode is Mode.STREAM


class TestDryRun:
    def test_decides_once_and_tells_nobody(self) -> None:
        scene = Scene(setting(dry_run=True))
        scene.seconds(60, drops=50)
        assert scene.moves == [("none", "rate_limited", "dry_run")]
        assert {(config.mode, config.use_shm) for config in scene.sent} == {(Mode.STREAM, True)}

    def test_switched_on_it_undoes_what_was_done(self) -> None:
        scene = Scene()
        scene.seconds(8, drops=50)
        (config,) = scene.overseer.set_dry_run(True, now_ns=scene.now_ns)
        assert (config.consumer_id, config.mode) == (7, Mode.STREAM)
        assert scene.overseer.set_dry_run(True, now_ns=scene.now_ns) == []
        scene.seconds(20, drops=50)
        assert scene.moves[-1] == ("none", "rate_limited", "dry_run")

    def test_switched_off_it_begins_anew(self) -> None:
        scene = Scene(setting(dry_run=True))
        scene.seconds(8, drops=50)
        assert scene.overseer.set_dry_run(False, now_ns=scene.now_ns) == []
        scene.seconds(7, drops=50)
        assert scene.moves == [("none", "rate_limited", "dry_run"), ("none", "rate_limited", "told")]


def test_a_stream_that_ends_takes_its_consumers_along() -> None:
    scene = Scene()
    scene.seconds(8, drops=50)
    scene.now_ns += 61 * SECOND
    scene.look()
    scene.say(announce(header_nslots=1_000))
    (config,) = scene.say(hello())
    assert config.mode is Mode.STREAM
