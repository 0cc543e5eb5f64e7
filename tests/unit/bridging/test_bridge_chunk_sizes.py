"""The section `bridge`: chunks fit into the MTU, and frames into the chunks."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from bridge_configs import GROUP, HOST_B, ONE, bridge, config_of, refusal
from tensor_pool.bridging.config import BridgeMapping, BridgeSection, check_bridge
from tensor_pool.errors import ConfigError
from tensor_pool.wire import encode
from tensor_pool.wire.messages import BridgeFrameChunk, NewerBridgeFrameChunk


def chunk_message(section: BridgeSection, *, is_first: bool, length: int) -> bytes:
    """A chunk as it is sent, the first with its slot header."""
    header = bytes(256) if is_first else b""
    if section.dialect == "ours":
        return encode(BridgeFrameChunk(1, 2, 3, 0, 1, 0, length, length, is_first, header, bytes(length)))
    return encode(
        NewerBridgeFrameChunk(1, 2, 3, 4, 0, 1, 0, length, length, 5, is_first, header, bytes(length))
    )


class TestChunks:
    @pytest.mark.req("BRG-10-8", "BRG-10-9", "BRG-5.2-12", "BRG-5.2-13", "BRG-5.2-14")
    @pytest.mark.parametrize(
        ("keys", "mtu", "slices"),
        [
            ({}, 1408, (1063, 1280)),
            ({"chunk_bytes": 1000}, 1408, (1000, 1000)),
            ({"chunk_bytes": 1100}, 1408, (1063, 1100)),
            ({"chunk_bytes": 5000}, 1408, (1063, 1280)),
            ({"chunk_bytes": 1}, 1408, (1, 1)),
            ({"mtu_bytes": 8192}, 8192, (7847, 8064)),
            ({"payload_channel": f"{GROUP}|mtu=8k"}, 8192, (7847, 8064)),
            ({"payload_channel": f"{GROUP}|mtu=8k", "mtu_bytes": 1408}, 1408, (1063, 1280)),
            ({"max_chunk_bytes": 1024}, 1408, (1024, 1024)),
            ({"mtu_bytes": 65_504}, 65_504, (65_159, 65_376)),
            ({"dialect": "newer"}, 1408, (1051, 1280)),
            ({"mtu_bytes": 352}, 352, (7, 224)),
        ],
    )
    def test_fit_into_the_mtu(self, keys: dict[str, Any], mtu: int, slices: tuple[int, int]) -> None:
        section = bridge(**keys)
        (mapping,) = section.resolved_mappings
        assert section.slice_bytes(ONE) == mapping.slices == slices
        assert section.mtu_of(section.payload_channel) == mapping.mtu_bytes == mtu
        for is_first, length in zip((True, False), mapping.slices, strict=True):
            assert len(chunk_message(section, is_first=is_first, length=length)) <= mtu - 32

    def test_are_cut_for_the_channel_of_their_mapping(self) -> None:
        section = bridge(ONE, BridgeMapping(10_001, 50_001, payload_channel=f"{HOST_B}|mtu=8k"))
        assert [section.slice_bytes(mapping).later for mapping in section.mappings] == [1280, 8064]

    @pytest.mark.req("BRG-10-8")
    def test_channels_name_the_mtu_that_was_configured(self) -> None:
        (mapping,) = bridge(mtu_bytes=8192).resolved_mappings
        assert mapping.payload.channel == f"{GROUP}|mtu=8192"

    @pytest.mark.parametrize(("dialect", "needs", "least"), [("ours", 345, 352), ("newer", 357, 384)])
    def test_an_mtu_below_chunk_0_is_refused(self, dialect: str, needs: int, least: int) -> None:
        with pytest.raises(ConfigError) as caught:
            bridge(mtu_bytes=least - 32, dialect=dialect)
        assert (
            caught.value.message
            == f"an MTU of {least - 32} bytes is too small: chunk 0 needs {needs} beside its payload"
        )
        assert str(least) in str(caught.value.hint)
        assert bridge(mtu_bytes=least, dialect=dialect).slice_bytes(ONE).first == least - needs

    def test_an_mtu_above_that_of_the_channel_is_refused(self) -> None:
        assert "mtu_bytes 8192 is larger than the 1408 of aeron:udp" in refusal(
            mtu_bytes=8192, payload_channel=f"{GROUP}|mtu=1408"
        )

    @pytest.mark.parametrize("mtu", [1500, 65_536, -32])
    def test_an_mtu_that_aeron_refuses_is_refused(self, mtu: int) -> None:
        with pytest.raises(ConfigError, match=rf"bridge\.mtu_bytes can't be {mtu}"):
            config_of(mtu_bytes=mtu)
        with pytest.raises(ConfigError):
            bridge(mtu_bytes=mtu)

    @pytest.mark.req("BRG-10-10")
    def test_the_hard_cap_can_not_be_lifted(self) -> None:
        for wrong in (0, 65_536):
            with pytest.raises(ConfigError, match=f"max_chunk_bytes can't be {wrong}"):
                config_of(max_chunk_bytes=wrong)

    def test_checksums_need_room(self) -> None:
        assert "checksums with the dialect 'ours'" in refusal(checksums=True)
        assert bridge(checksums=True, dialect="newer").checksums


class TestPayload:
    @pytest.mark.req("BRG-10-11")
    @pytest.mark.parametrize(
        ("keys", "most"),
        [
            ({}, 1063 + 65_534 * 1280),
            ({"chunk_bytes": 10}, 655_350),
            ({"mtu_bytes": 65_504}, 1 << 30),
            ({"max_payload_bytes": 1 << 20}, 1 << 20),
            ({"max_payload_bytes": 83_884_583}, 83_884_583),
        ],
    )
    def test_is_what_the_chunks_carry(self, keys: dict[str, Any], most: int) -> None:
        section = bridge(**keys)
        assert section.max_payload(ONE) == section.resolved_mappings[0].max_payload_bytes == most

    @pytest.mark.req("BRG-10-11")
    def test_more_is_refused_with_the_numbers(self) -> None:
        message = refusal(max_payload_bytes=83_884_584)
        assert "max_payload_bytes 83884584 is more than 83884583" in message
        assert "65535 chunks of 1280 bytes" in message
        message = refusal(max_payload_bytes=(1 << 30) + 1, mtu_bytes=65_504, max_inflight_bytes=2 << 30)
        assert "1073741825 is more than 1073741824" in message

    def test_the_cap_is_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.INFO, "tensor_pool.bridging.config"):
            check_bridge(config_of(mtu_bytes=65_504, forward_metadata=False))
            assert caplog.messages == []
            check_bridge(config_of(forward_metadata=False))
        assert [record.levelname for record in caplog.records] == ["INFO"]
        assert "more than 83884583 bytes" in caplog.text

    def test_must_fit_into_what_may_be_in_flight(self) -> None:
        keys = {"max_payload_bytes": 2 << 20, "max_inflight_bytes": 1 << 20}
        message = refusal(**keys)
        assert "max_payload_bytes 2097152 is more than max_inflight_bytes 1048576" in message
        assert "never" not in message, "one frame is always put together"
        bridge(**keys, role="sender")
        bridge(max_payload_bytes=2 << 20, max_inflight_bytes=2 << 20)
