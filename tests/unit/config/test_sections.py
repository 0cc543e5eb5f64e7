"""The sections: defaults that the decisions fix, and what follows from them."""

import pytest

from tensor_pool.config import AeronSection, ShmSection, StreamsSection
from tensor_pool.errors import ConfigError


class TestAeron:
    def test_defaults_keep_one_stuck_process_from_silencing_the_others(self) -> None:
        section = AeronSection()

        assert section.untethered_window_limit_timeout_ms == 50
        assert section.untethered_linger_timeout_ms == 50
        assert section.untethered_resting_timeout_ms == 100
        assert section.timer_interval_ms == 20
        assert section.term_length == 4 * 1024 * 1024

    @pytest.mark.parametrize("name", ["window_limit", "linger", "resting"])
    def test_a_time_out_must_be_longer_than_the_timer_interval(self, name: str) -> None:
        with pytest.raises(ConfigError, match=f"untethered_{name}_timeout_ms of 20"):
            AeronSection(**{f"untethered_{name}_timeout_ms": 20})
        AeronSection(**{f"untethered_{name}_timeout_ms": 21})


class TestStreams:
    @pytest.mark.req("WIRE-15.11-1")
    def test_each_logical_stream_has_an_id_of_its_own_by_default(self) -> None:
        section = StreamsSection()

        assert section.control_stream_id == 1000
        assert section.announce_stream_id == 1001
        assert section.descriptor_stream_id == 1100
        assert section.qos_stream_id == 1200
        assert section.metadata_stream_id == 1300
        assert section.service_control_stream_id == 1400
        assert section.service_status_stream_id == 1401

    def test_one_channel_and_id_may_serve_everything(self) -> None:
        names = [name for name in StreamsSection.__struct_fields__ if name.endswith("_stream_id")]
        section = StreamsSection(**dict.fromkeys(names, 1000))

        assert {getattr(section, name) for name in names} == {1000}


class TestShm:
    @pytest.mark.parametrize(
        ("permissions", "file_mode", "directory_mode"), [("private", 0o600, 0o700), ("group", 0o660, 0o2770)]
    )
    def test_modes(self, permissions: str, file_mode: int, directory_mode: int) -> None:
        section = ShmSection(permissions=permissions)

        assert (section.file_mode, section.directory_mode) == (file_mode, directory_mode)

    def test_regions_are_accepted_below_the_base_directory_unless_told_otherwise(self) -> None:
        assert ShmSection(shm_base_dir="/a").base_dirs == ("/a",)
        assert ShmSection(shm_base_dir="/a", allowed_base_dirs=("/b", "/c")).base_dirs == ("/b", "/c")
