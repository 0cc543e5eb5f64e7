"""The section `bridge`: defaults of the text, channels, and what is forwarded."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from bridge_configs import (
    CONTROL,
    CONTROL_B,
    GROUP,
    HOST_B,
    METADATA,
    NAMED,
    ONE,
    bridge,
    config_of,
    refusal,
    refusal_beside,
)
from tensor_pool.bridging.config import BridgeMapping, BridgeSection, check_bridge
from tensor_pool.config import StreamsSection, check_file, load_config
from tensor_pool.config.keys import find_key
from tensor_pool.config.toml_text import config_toml
from tensor_pool.errors import ConfigError

FILE = f"""
[bridge]
instance_id = "b1"
payload_channel = "{GROUP}"
control_channel = "{CONTROL}"
metadata_channel = "{METADATA}"
mtu_bytes = "8k"
dest_stream_id_range = "50000-50009"
forward_metadata = true
[[bridge.mappings]]
source_stream_id = 10000
dest_stream_id = 10500
profile = "camera"
[[bridge.mappings]]
source_stream_id = 10001
role = "sender"
name = "left eye"
max_rate_hz = 2.5
"""


class TestWithoutABridge:
    def test_a_configuration_is_as_good_as_before(self) -> None:
        config = load_config(environ={}, search=False)
        assert config[BridgeSection] == BridgeSection()
        assert not BridgeSection().is_configured
        assert BridgeSection().resolved_mappings == ()

    def test_what_is_shown_can_be_read_back(self, tmp_path: Path) -> None:
        path = tmp_path / "a.toml"
        path.write_text(config_toml(load_config(environ={}, search=False)))
        assert check_file(path) == []
        assert load_config(path, environ={})[BridgeSection] == BridgeSection()

    def test_it_can_not_be_started(self) -> None:
        with pytest.raises(ConfigError, match=r"bridge\.instance_id, .*, bridge\.mappings are required"):
            check_bridge(load_config(environ={}, search=False))


class TestRequiredKeys:
    @pytest.mark.parametrize(
        "name",
        [
            pytest.param("instance_id", marks=pytest.mark.req("BRG-10-2")),
            pytest.param("payload_channel", marks=pytest.mark.req("BRG-10-3")),
            pytest.param("control_channel", marks=pytest.mark.req("BRG-10-5")),
        ],
    )
    def test_are_named_when_they_are_missing(self, name: str) -> None:
        assert refusal(**{name: ""}) == f"bridge.{name} is required"
        assert bridge().is_configured

    @pytest.mark.req("BRG-10-7")
    def test_so_are_mappings(self) -> None:
        assert refusal(mappings=()) == "bridge.mappings is required"

    @pytest.mark.req("BRG-10-2", "BRG-10-3", "BRG-10-5", "BRG-10-7")
    def test_a_file_that_begins_a_bridge_is_told_what_is_left(self, tmp_path: Path) -> None:
        path = tmp_path / "a.toml"
        path.write_text("[bridge]\nmtu_bytes = 1408")
        (problem,) = check_file(path)
        for name in ("instance_id", "payload_channel", "control_channel", "mappings"):
            assert f"bridge.{name}" in problem.what
        assert str(path) in problem.where

    @pytest.mark.req("BRG-10-4", "BRG-10-6")
    def test_stream_ids_have_the_decided_defaults_and_can_not_be_none(self) -> None:
        section = bridge()
        assert (section.payload_stream_id, section.control_stream_id) == (3000, 3001)
        for name in ("payload_stream_id", "control_stream_id"):
            with pytest.raises(ConfigError, match=f"bridge.{name} can't be 0"):
                config_of(**{name: 0})

    @pytest.mark.req("BRG-10-1")
    def test_nothing_of_the_driver_is_needed(self) -> None:
        config = config_of(forward_metadata=False)
        assert not any(
            config.is_set(entry.key.path) for entry in config.entries() if entry.key.section == "driver"
        )
        check_bridge(config)


class TestDefaults:
    @pytest.mark.req(
        "BRG-10-10", "BRG-10-12", "BRG-10-15", "BRG-10-16", "BRG-10-17", "BRG-10-18", "BRG-5.3a-2"
    )
    def test_are_those_of_the_text_and_the_decisions(self) -> None:
        section = bridge()
        assert section.max_chunk_bytes == 65_535
        assert section.dest_ids is None
        assert section.metadata_channel == ""
        assert section.metadata_stream_id == 3002
        assert section.source_metadata_id(StreamsSection()) == 1300
        assert (section.forward_qos, section.forward_progress) == (False, False)
        assert section.assembly_timeout_ms == 250
        assert section.assembly_timeout_ns == 250_000_000
        assert (section.role, section.wire_stream_id, section.dialect) == ("both", "source", "ours")
        assert (section.on_conflict, section.checksums) == ("fail", False)
        assert (section.max_inflight_frames, section.max_inflight_bytes) == (16, 256 << 20)

    @pytest.mark.req("BRG-10-16")
    def test_metadata_ids_can_be_set(self) -> None:
        section = bridge(metadata_stream_id=4002, source_metadata_stream_id=1333, metadata_channel=METADATA)
        (mapping,) = section.resolved_mappings
        assert mapping.metadata is not None
        assert mapping.metadata.stream_id == 4002
        assert section.source_metadata_id(StreamsSection()) == 1333

    @pytest.mark.req("BRG-10-19")
    def test_of_a_mapping(self, tmp_path: Path) -> None:
        path = tmp_path / "a.toml"
        path.write_text(FILE)
        section = load_config(path, environ={})[BridgeSection]
        first, second = section.resolved_mappings
        assert section.mappings[0] == BridgeMapping(10_000, 10_500, "camera")
        assert first.metadata_stream_id == 10_500
        assert (first.mapping.source_control_stream_id, first.mapping.dest_control_stream_id) == (0, 0)
        assert (first.role, first.sends, first.receives) == ("both", True, True)
        assert (second.role, second.sends, second.receives) == ("sender", True, False)
        assert (second.mapping.name, second.mapping.max_rate_hz) == ("left eye", 2.5)
        assert second.mapping.max_bytes_per_s == 0

    def test_what_a_file_says_is_written_and_read_again(self, tmp_path: Path) -> None:
        (tmp_path / "a.toml").write_text(FILE)
        before = load_config(tmp_path / "a.toml", environ={})
        (tmp_path / "b.toml").write_text(config_toml(before))
        assert load_config(tmp_path / "b.toml", environ={})[BridgeSection] == before[BridgeSection]

    def test_one_key_can_be_replaced_in_a_whole_bridge(self) -> None:
        section = config_of().replace({"bridge.role": "sender"})[BridgeSection]
        assert (section.role, section.mappings) == ("sender", (ONE,))

    def test_everything_can_be_set_from_the_environment(self) -> None:
        environ = {
            f"TENSOR_POOL__BRIDGE__{name.upper()}": text
            for name, text in {
                **NAMED,
                "forward_metadata": "auto",
                "dest_stream_id_range": "60000-60001",
                "mappings": "[{source_stream_id = 10000}]",
            }.items()
        }
        section = load_config(environ=environ, search=False)[BridgeSection]
        assert section.dest_ids == (60_000, 60_001)
        assert section.mappings == (BridgeMapping(10_000),)
        assert section.forward_metadata == "auto"


class TestBadTables:
    @pytest.mark.parametrize(
        ("mapping", "words"),
        [
            ("dest_stream_id = 5", "missing required field `source_stream_id`"),
            ("source_stream_id = 0", ">= 1"),
            ("source_stream_id = 4294967295", "<= 4294967294"),
            ("source_stream_id = 1\ndest_stream_id = 4294967296", "<= 4294967294"),
            ("source_stream_id = 1\ndest_control_stream_id = 2147483648", "<= 2147483647"),
            ("source_stream_id = 1\ndest_id = 5", "unknown field `dest_id`"),
            ("source_stream_id = 1\nrole = 'spy'", "Invalid enum value 'spy'"),
            ("source_stream_id = 1\nmax_rate_hz = -1", ">= 0"),
            ("source_stream_id = 1\nname = ' x'", "not allowed"),
        ],
    )
    def test_mistakes_are_located(self, tmp_path: Path, mapping: str, words: str) -> None:
        path = tmp_path / "a.toml"
        path.write_text(f"[[bridge.mappings]]\n{mapping}")
        (problem,) = check_file(path)
        assert words in problem.what
        assert problem.key == "bridge.mappings"
        assert str(path) in problem.where

    @pytest.mark.parametrize("name", ["source_stream_id", "dest_stream_id", "metadata_stream_id"])
    def test_ids_that_a_program_gets_wrong_are_refused_too(self, name: str) -> None:
        wrong = BridgeMapping(**{"source_stream_id": 10_000, "dest_stream_id": 50_000, name: 2**32})
        assert f"{name} 4294967296 is not within" in refusal(wrong)
        bridge(BridgeMapping(**{"source_stream_id": 10_000, "dest_stream_id": 50_000, name: 2**32 - 2}))

    @pytest.mark.parametrize(
        ("value", "ids"),
        [
            ("50000-50009", (50_000, 50_009)),
            ((50_000, 50_009), (50_000, 50_009)),
            ([50_000, 50_009], (50_000, 50_009)),
            ("[50000, 50009]", (50_000, 50_009)),
            ("50000", (50_000, 50_000)),
            ("", None),
        ],
    )
    @pytest.mark.req("BRG-10-12")
    def test_a_range_is_text_or_a_list(self, value: object, ids: tuple[int, int] | None) -> None:
        assert config_of(BridgeMapping(1, 2), dest_stream_id_range=value)[BridgeSection].dest_ids == ids

    @pytest.mark.parametrize("value", ["9-5", "0-5", "a", [5], [9, 5], [5, 2**31], [1, 2, 3], 5, True])
    def test_other_ranges_are_refused(self, value: object) -> None:
        with pytest.raises(ConfigError, match=r"bridge\.dest_stream_id_range can't be"):
            config_of(BridgeMapping(1, 2), dest_stream_id_range=value)


class TestChannels:
    @pytest.mark.req("BRG-3-1")
    @pytest.mark.parametrize("name", ["payload_channel", "control_channel", "metadata_channel"])
    def test_must_leave_the_host(self, name: str) -> None:
        words = f"{name}: aeron:ipc stays on this host"
        assert words in refusal(**{name: "aeron:ipc"})
        assert f"mapping 10000->50000: {words}" in refusal(
            BridgeMapping(10_000, 50_000, **{name: "aeron:ipc"})
        )
        with pytest.raises(ConfigError, match=f"bridge.{name} can't be 'aeron:ipc'"):
            config_of(**{name: "aeron:ipc"})
        bridge(**{name: "aeron:udp?endpoint=127.0.0.1:4009"})

    @pytest.mark.parametrize("channel", ["junk", "aeron:udp", "aeron:udp?endpoint=a"])
    def test_must_be_channels(self, channel: str) -> None:
        assert "mapping 10000->50000: control_channel: " in refusal(
            BridgeMapping(10_000, 50_000, control_channel=channel)
        )

    def test_may_be_multicast_groups(self) -> None:
        (mapping,) = bridge().resolved_mappings
        assert mapping.payload == (f"{GROUP}|mtu=1408", 3000)
        assert mapping.control == (f"{CONTROL}|mtu=1408", 3001)

    def test_of_a_mapping_come_first(self) -> None:
        there = BridgeMapping(
            10_000, 50_000, role="sender", payload_channel=HOST_B, control_channel=CONTROL_B
        )
        back = BridgeMapping(10_001, 50_001, role="receiver")
        first, second = bridge(there, back, metadata_channel=METADATA).resolved_mappings
        assert first.payload.channel == f"{HOST_B}|mtu=1408"
        assert first.control.channel == f"{CONTROL_B}|mtu=1408"
        assert second.payload.channel == f"{GROUP}|mtu=1408"
        assert first.metadata == second.metadata == (f"{METADATA}|mtu=1408", 3002)

    @pytest.mark.req("BRG-2.3-4")
    @pytest.mark.parametrize(
        ("keys", "words"),
        [
            (
                {"control_channel": GROUP, "control_stream_id": 3000},
                "payload of mapping 10000->50000 and control",
            ),
            ({"metadata_channel": GROUP, "metadata_stream_id": 3000}, "and metadata of mapping 10000->50000"),
            (
                {"metadata_channel": CONTROL, "metadata_stream_id": 3001},
                "control of mapping 10000->50000 and meta",
            ),
            (  # other parameters don't make another stream
                {"control_channel": f"{GROUP}|mtu=8k", "control_stream_id": 3000},
                "and control of mapping 10000->50000",
            ),
        ],
    )
    def test_with_equal_ids_serve_one_purpose(self, keys: dict[str, Any], words: str) -> None:
        message = refusal(**keys)
        assert words in message
        assert f"stream {keys.get('control_stream_id', keys.get('metadata_stream_id'))}" in message

    @pytest.mark.req("BRG-2.3-4")
    def test_may_be_one_channel_with_ids_apart(self) -> None:
        (mapping,) = bridge(control_channel=GROUP, metadata_channel=GROUP).resolved_mappings
        assert mapping.metadata is not None
        places = {mapping.payload.place, mapping.control.place, mapping.metadata.place}
        assert len(places) == 3

    def test_carry_nothing_of_the_pool(self) -> None:
        mine = {"streams__control_channel": f"{CONTROL}|term-length=64k"}
        message = refusal_beside(**mine, streams__control_stream_id=3001)
        assert "control goes over" in message
        assert "stream 3001, which is streams.control_stream_id" in message
        check_bridge(config_of(**mine, streams__control_stream_id=3005))


class TestForwarding:
    @pytest.mark.req("BRG-7.1-8", "BRG-10-14", "BRG-10-15")
    def test_metadata_goes_along_where_there_is_a_channel(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.WARNING, "tensor_pool.bridging.config"):
            config = config_of(metadata_channel=METADATA)
            check_bridge(config)
            assert caplog.messages == []
            assert config[BridgeSection].resolved_mappings[0].forwards_metadata
            config = config_of()
            check_bridge(config)
        assert not config[BridgeSection].resolved_mappings[0].forwards_metadata
        (record,) = caplog.records
        assert record.levelname == "WARNING"
        assert "no metadata goes along with 10000->50000" in record.getMessage()

    @pytest.mark.req("BRG-7.1-8")
    def test_metadata_that_was_asked_for_needs_a_channel(self) -> None:
        message = refusal(forward_metadata=True)
        assert message == "forward_metadata is true, and mapping 10000->50000 has no metadata_channel"
        own = BridgeMapping(10_000, 50_000, metadata_channel=METADATA)
        assert bridge(own, forward_metadata=True).resolved_mappings[0].forwards_metadata
        assert "mapping 10001->50001 has no metadata_channel" in refusal(
            own, BridgeMapping(10_001, 50_001), forward_metadata=True
        )

    def test_metadata_can_stay_at_home_without_a_word(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.WARNING, "tensor_pool.bridging.config"):
            config = config_of(metadata_channel=METADATA, forward_metadata=False)
            check_bridge(config)
        assert config[BridgeSection].resolved_mappings[0].metadata is None
        assert caplog.messages == []

    @pytest.mark.parametrize(
        "name",
        [
            pytest.param("forward_progress", marks=pytest.mark.req("BRG-9-12", "BRG-9-14")),
            "forward_qos",
        ],
    )
    @pytest.mark.parametrize(("source", "dest"), [(0, 1000), (1000, 0), (0, 0)])
    def test_qos_and_progress_need_both_control_streams(self, name: str, source: int, dest: int) -> None:
        half = BridgeMapping(10_000, 50_000, source_control_stream_id=source, dest_control_stream_id=dest)
        assert refusal(half, **{name: True}) == (
            f"{name} is true, and mapping 10000->50000 has source_control_stream_id {source} and "
            f"dest_control_stream_id {dest}"
        )
        bridge(half)
        whole = BridgeMapping(10_000, 50_000, source_control_stream_id=1000, dest_control_stream_id=1000)
        (mapping,) = bridge(whole, **{name: True}).resolved_mappings
        assert (mapping.forwards_qos, mapping.forwards_progress) == (
            name == "forward_qos",
            name == "forward_progress",
        )

    @pytest.mark.parametrize(("text", "value"), [("auto", "auto"), ("true", True), (" false ", False)])
    def test_the_switch_has_three_positions(self, text: str, value: object) -> None:
        key = find_key("bridge.forward_metadata")
        assert key is not None
        assert key.read_text(text) == value
        assert (key.default, key.show(key.default)) == ("auto", "auto")

    @pytest.mark.parametrize("text", ["maybe", "1", "[]", "true\nx = 1"])
    def test_and_no_others(self, text: str) -> None:
        key = find_key("bridge.forward_metadata")
        assert key is not None
        with pytest.raises(ValueError):  # noqa: PT011
            key.read_text(text)
