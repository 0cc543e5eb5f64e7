"""The section `bridge`: ids that would meet, ranges that overlap and mappings in a circle are refused."""

from __future__ import annotations

from typing import Any

import pytest

from bridge_configs import (
    CONTROL_B,
    CONTROL_C,
    HOST_B,
    HOST_C,
    METADATA,
    ONE,
    bridge,
    config_of,
    refusal,
    refusal_beside,
)
from tensor_pool.bridging.config import BridgeMapping, check_bridge
from tensor_pool.bridging.config_rules import check_found_destination
from tensor_pool.errors import ConfigError


class TestSources:
    @pytest.mark.req("BRG-2.3-2", "BRG-2.3-4")
    def test_may_stand_once_on_a_payload_stream(self) -> None:
        message = refusal(ONE, BridgeMapping(10_000, 50_001))
        assert "mappings 10000->50000 and 10000->50001 have the source 10000 both" in message
        assert "stream 3000 for payload" in message

    def test_may_go_to_two_hosts(self) -> None:
        to_b = BridgeMapping(10_000, 50_000, payload_channel=HOST_B, control_channel=CONTROL_B)
        to_c = BridgeMapping(10_000, 50_000, payload_channel=HOST_C, control_channel=CONTROL_C)
        assert len(bridge(to_b, to_c, role="sender").resolved_mappings) == 2

    @pytest.mark.req("BRG-2.3-4")
    def test_of_two_hosts_need_control_apart(self) -> None:
        from_b = BridgeMapping(10_000, 50_000, payload_channel=HOST_B)
        from_c = BridgeMapping(10_000, 50_001, payload_channel=HOST_C)
        assert "stream 3001 for control" in refusal(from_b, from_c, role="receiver")
        bridge(from_b, BridgeMapping(10_001, 50_001, payload_channel=HOST_C), role="receiver")
        bridge(from_b, from_c, role="sender")


class TestDestinations:
    @pytest.mark.req("BRG-2.3-2")
    def test_may_stand_once(self) -> None:
        message = refusal(ONE, BridgeMapping(10_001, 50_000))
        assert message == "mappings 10000->50000 and 10001->50000 have the destination 50000 both"
        bridge(ONE, BridgeMapping(10_001, 50_001))

    @pytest.mark.req("BRG-2.3-2")
    def test_of_both_directions_are_apart(self) -> None:
        there = BridgeMapping(10_000, 50_000, role="sender", payload_channel=HOST_B)
        assert "destination 50000 both" in refusal(there, BridgeMapping(10_001, 50_000, role="receiver"))
        bridge(there, BridgeMapping(10_001, 50_001, role="receiver"))

    @pytest.mark.req("BRG-10-12")
    def test_0_needs_a_range(self) -> None:
        message = refusal(BridgeMapping(10_000))
        assert message == (
            "mapping 10000->any has no dest_stream_id and no name, and there is no dest_stream_id_range"
        )
        assert bridge(BridgeMapping(10_000, name="camera-1")).dest_ids is None
        assert bridge(BridgeMapping(10_000), dest_stream_id_range="60000-60010").dest_ids == (60_000, 60_010)
        bridge(BridgeMapping(10_000), role="sender")  # the receiver chooses

    def test_a_range_has_an_id_for_each(self) -> None:
        two = (BridgeMapping(10_000), BridgeMapping(10_001))
        assert refusal(*two, dest_stream_id_range="60000") == (
            "2 mappings want an id of dest_stream_id_range 60000-60000, which has 1"
        )
        bridge(*two, dest_stream_id_range="60000-60001")

    def test_found_later_are_filled_in(self) -> None:
        section = bridge(BridgeMapping(10_000), dest_stream_id_range="60000-60010")
        mapping = section.resolved_mappings[0].with_destination(60_003)
        assert (mapping.dest_stream_id, mapping.metadata_stream_id) == (60_003, 60_003)
        assert (mapping.source_stream_id, mapping.wire_stream_id) == (10_000, 10_000)
        own = bridge(BridgeMapping(10_000, 50_000, metadata_stream_id=77)).resolved_mappings[0]
        assert own.metadata_stream_id == own.with_destination(60_003).metadata_stream_id == 77

    def test_on_the_wire_are_known_at_the_start(self) -> None:
        (mapping,) = bridge(wire_stream_id="dest").resolved_mappings
        assert mapping.wire_stream_id == mapping.with_destination(60_000).wire_stream_id == 50_000
        message = refusal(BridgeMapping(10_000), wire_stream_id="dest", dest_stream_id_range="60000-60001")
        assert message == "wire_stream_id 'dest', and mapping 10000->any has no dest_stream_id"

    def test_can_move_only_into_a_range(self) -> None:
        assert "on_conflict 'move' without a dest_stream_id_range" in refusal(on_conflict="move")
        assert bridge(on_conflict="move", dest_stream_id_range="60000-60001").on_conflict == "move"

    @pytest.mark.parametrize("key", ["payload_stream_id", "control_stream_id", "metadata_stream_id"])
    def test_are_none_of_the_bridges_own_ids(self, key: str) -> None:
        message = refusal(**{key: 50_000})
        assert message == f"mapping 10000->50000: the destination 50000 is the bridge's {key}"

    @pytest.mark.parametrize(
        "key", ["control", "announce", "descriptor", "qos", "metadata", "service_status"]
    )
    def test_are_none_of_the_pools_own_ids(self, key: str) -> None:
        message = refusal_beside(**{f"streams__{key}_stream_id": 50_000})
        assert message == f"mapping 10000->50000: the destination 50000 is streams.{key}_stream_id"

    def test_here_are_no_ids_of_single_consumers(self) -> None:
        private = BridgeMapping(10_000, 31_005)
        assert refusal_beside(private) == (
            "mapping 10000->31005: the destination 31005 is in driver.descriptor_stream_id_range 31000-31999"
        )
        check_bridge(config_of(private, role="sender"))  # another host's driver has other ranges

    def test_have_profiles_that_exist_here(self) -> None:
        camera = BridgeMapping(10_000, 50_000, profile="camera")
        assert "mapping 10000->50000 has the profile 'camera', which is not defined" in refusal_beside(camera)
        check_bridge(config_of(camera, driver__profiles={"camera": {"nslots": 8}}))
        check_bridge(config_of(camera, role="sender"))

    def test_have_names_of_their_own(self) -> None:
        left, right = BridgeMapping(1, 2, name="eye"), BridgeMapping(3, 4, name="eye")
        assert refusal(left, right) == "mappings 1->2 and 3->4 are both called 'eye'"
        bridge(left, BridgeMapping(3, 4, name="ear"), BridgeMapping(5, 6), BridgeMapping(7, 8))

    def test_do_not_mix_their_metadata(self) -> None:
        mixed = (ONE, BridgeMapping(10_001, 50_001, metadata_stream_id=50_000))
        message = refusal(*mixed, metadata_channel=METADATA)
        assert "10000->50000 and 10001->50001 republish metadata of the stream 50000 both" in message
        bridge(*mixed)  # nothing is republished


class TestRange:
    @pytest.mark.req("BRG-10-13", "BRG-4-7")
    @pytest.mark.parametrize(
        ("keys", "words"),
        [
            ({"payload_stream_id": 60_005}, "60005, bridge.payload_stream_id"),
            ({"control_stream_id": 60_005}, "60005, bridge.control_stream_id"),
            ({"metadata_stream_id": 60_005}, "60005, bridge.metadata_stream_id"),
            ({"source_metadata_stream_id": 60_005}, "60005, bridge.source_metadata_stream_id"),
        ],
    )
    def test_leaves_out_the_bridges_own_ids(self, keys: dict[str, int], words: str) -> None:
        assert refusal(dest_stream_id_range="60000-60010", **keys) == (
            f"dest_stream_id_range 60000-60010 contains {words}"
        )
        bridge(dest_stream_id_range="60006-60010", **keys)

    @pytest.mark.req("BRG-10-13", "BRG-4-7")
    @pytest.mark.parametrize(
        "key",
        [
            "source_stream_id",
            "dest_stream_id",
            "metadata_stream_id",
            "source_control_stream_id",
            "dest_control_stream_id",
        ],
    )
    def test_leaves_out_the_ids_of_mappings(self, key: str) -> None:
        mapping = BridgeMapping(**{"source_stream_id": 10_000, "dest_stream_id": 50_000, key: 60_005})
        assert refusal(mapping, dest_stream_id_range="60000-60010") == (
            f"dest_stream_id_range 60000-60010 contains 60005, {key} of mapping {mapping}"
        )
        bridge(mapping, dest_stream_id_range="60006-60010")

    def test_may_contain_ids_of_other_hosts(self) -> None:
        bridge(BridgeMapping(60_005), dest_stream_id_range="60000-60010", role="receiver")

    @pytest.mark.req("BRG-4-7", "BRG-10-13")
    @pytest.mark.parametrize(
        "key", ["control", "announce", "descriptor", "qos", "metadata", "service_control"]
    )
    def test_leaves_out_the_pools_own_ids(self, key: str) -> None:
        message = refusal_beside(dest_stream_id_range="60000-60010", **{f"streams__{key}_stream_id": 60_010})
        assert message == f"dest_stream_id_range 60000-60010 contains 60010, streams.{key}_stream_id"

    @pytest.mark.req("BRG-4-7")
    @pytest.mark.parametrize(
        ("ids", "words"),
        [
            (
                "29999-30000",
                "dest_stream_id_range 29999-30000 and driver.stream_id_range 20000-29999 overlap",
            ),
            ("31999-31999", "and driver.descriptor_stream_id_range 31000-31999 overlap"),
            ("32500-40000", "and driver.control_stream_id_range 32000-32999 overlap"),
        ],
    )
    def test_leaves_out_what_the_driver_gives_away(self, ids: str, words: str) -> None:
        assert words in refusal_beside(dest_stream_id_range=ids)
        check_bridge(config_of(BridgeMapping(10_000), dest_stream_id_range="50000-59999"))

    @pytest.mark.req("BRG-4-7")
    def test_leaves_out_static_streams(self) -> None:
        message = refusal_beside(dest_stream_id_range="60000-60010", driver__streams=[{"id": 60_001}])
        assert message == "dest_stream_id_range 60000-60010 contains 60001, a stream of driver.streams"
        check_bridge(config_of(dest_stream_id_range="60002-60010", driver__streams=[{"id": 60_001}]))


class TestLoops:
    @pytest.mark.req("BRG-2.3-3")
    def test_there_and_back_again(self) -> None:
        message = refusal(BridgeMapping(1000, 2000), BridgeMapping(2000, 1000))
        assert message in {
            "the mappings lead a stream back to itself: 1000 -> 2000 -> 1000",
            "the mappings lead a stream back to itself: 2000 -> 1000 -> 2000",
        }
        bridge(BridgeMapping(1000, 2000), BridgeMapping(2000, 2500))

    @pytest.mark.req("BRG-2.3-3")
    def test_over_two_hosts(self) -> None:
        there = BridgeMapping(1000, 2000, role="sender", payload_channel=HOST_B, control_channel=CONTROL_B)
        assert "back to itself" in refusal(there, BridgeMapping(2000, 1000, role="receiver"))
        bridge(there, BridgeMapping(2001, 1001, role="receiver"))

    @pytest.mark.req("BRG-2.3-3")
    def test_over_many_mappings(self) -> None:
        chain = [BridgeMapping(n, n + 1) for n in range(100, 130)]
        bridge(*chain)
        message = refusal(*chain, BridgeMapping(130, 115))
        assert "115 -> 116" in message
        assert "130 -> 115" in message
        assert "114" not in message

    @pytest.mark.req("BRG-2.3-3")
    def test_the_same_id_is_a_loop_only_on_one_host(self) -> None:
        same = BridgeMapping(1000, 1000)
        assert refusal(same) == "the mappings lead a stream back to itself: 1000 -> 1000"
        bridge(same, role="sender")
        bridge(same, role="receiver")

    @pytest.mark.req("BRG-2.3-3")
    def test_show_when_a_name_is_found(self) -> None:
        def find(stream_id: int, *mappings: BridgeMapping, **keys: Any) -> None:
            routes = bridge(*mappings, **keys).resolved_mappings
            check_found_destination(routes, routes[0].with_destination(stream_id))

        named = BridgeMapping(1000, name="a")
        with pytest.raises(ConfigError, match="'a' is stream 1000 of this host"):
            find(1000, named)
        find(1001, named)
        find(1000, named, role="receiver")
        there = BridgeMapping(2000, 1000, role="sender", payload_channel=HOST_B, control_channel=CONTROL_B)
        with pytest.raises(ConfigError, match="back to itself"):
            find(2000, named, there)
        find(2001, named, there)
