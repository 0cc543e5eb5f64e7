"""The section `driver`: defaults of the specifications, and what contradicts itself is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensor_pool.config import Config, StreamsSection, check_file, load_config
from tensor_pool.config.keys import find_key
from tensor_pool.config.toml_text import config_toml
from tensor_pool.driver.config import DriverSection, IdRange, StaticStream, StreamProfile
from tensor_pool.errors import ConfigError
from tensor_pool.pool.sizing import Geometry

NESTED = """
[driver]
stream_id_range = "40000-40009"
[driver.profiles.camera]
nslots = 16
pools = ["64k", 1048576]
[driver.profiles."with space"]
hugepages = true
[[driver.streams]]
id = 10001
name = "left"
profile = "camera"
[[driver.streams]]
id = 10002
"""


def load(path: Path, text: str) -> Config:
    path.write_text(text)
    return load_config(path, environ={})


class TestDefaults:
    @pytest.mark.req("DRV-4.4-6", "DRV-4.4-7")
    def test_are_those_of_the_specification(self) -> None:
        section = DriverSection()
        assert (section.keepalive_interval_ms, section.expiry_grace_intervals) == (1_000, 3)
        assert section.lease_ns == 3_000_000_000
        assert section.announce_interval_ms == 1_000
        assert section.ranges == {
            "stream_id_range": (20_000, 29_999),
            "descriptor_stream_id_range": (31_000, 31_999),
            "control_stream_id_range": (32_000, 32_999),
        }
        assert section.hello_authority == "producer"

    def test_go_with_those_of_the_streams(self) -> None:
        DriverSection().check_beside(StreamsSection())

    def test_the_default_profile_keeps_within_256_mib(self) -> None:
        assert DriverSection().default_profile.geometry == Geometry(256, (1 << 20,))


class TestTables:
    def test_are_read(self, tmp_path: Path) -> None:
        section = load(tmp_path / "a.toml", NESTED)[DriverSection]
        assert section.streams == (StaticStream(10_001, "left", "camera"), StaticStream(10_002))
        assert section.profile_of(section.streams[0]).geometry == Geometry(16, (65_536, 1 << 20))
        assert section.profile_of(section.streams[1]) == section.default_profile
        assert section.profiles["with space"].hugepages

    def test_are_written_and_read_again(self, tmp_path: Path) -> None:
        before = load(tmp_path / "a.toml", NESTED)
        after = load(tmp_path / "b.toml", config_toml(before))
        assert after[DriverSection] == before[DriverSection]

    def test_are_shown(self, tmp_path: Path) -> None:
        entry = load(tmp_path / "a.toml", NESTED).entry("driver.profiles")
        assert entry.key.show(entry.value).startswith("camera: {nslots = 16, pools = 64k, 1048576, ")
        assert "[driver.profiles.NAME]" in entry.key.allowed

    def test_can_be_set_from_the_environment(self) -> None:
        environ = {
            "TENSOR_POOL__DRIVER__STREAMS": '[{id = 10005, name = "x"}]',
            "TENSOR_POOL__DRIVER__PROFILES": "{a = {nslots = 2}}",
            "TENSOR_POOL__DRIVER__DEFAULT_POOLS": "64k, 1m",
        }
        section = load_config(environ=environ, search=False)[DriverSection]
        assert section.streams == (StaticStream(10_005, "x"),)
        assert section.profiles == {"a": StreamProfile(2)}
        assert section.default_profile.geometry.strides == (65_536, 1 << 20)

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("[driver.profiles.a]\nslots = 3", "unknown field `slots`"),
            ("[driver.profiles.a]\nnslots = 3", "3 slots"),
            ("[driver.profiles.a]\npools = [100]", "pool slots of 100 bytes"),
            ("[driver.profiles.a]\npools = ['lots']", "lots"),
            ("[driver.profiles.a]\npools = []", "length >= 1"),
            ("[driver]\ndefault_pools = [':']", "':' is not a size"),
            ("[[driver.streams]]\nname = 'x'", "missing required field `id`"),
            ("[[driver.streams]]\nid = 0", ">= 1"),
            ("[[driver.streams]]\nid = 1\nprofile = 'x'", "profile 'x', which is not defined"),
            ("[[driver.streams]]\nid = 1\n[[driver.streams]]\nid = 1", "stream 1  stands twice"),
            ('[[driver.streams]]\nid = 1\nname = " left"', "driver.streams"),  # nobody could ask for it
            ("[[driver.streams]]\nid = 31005", "31000-31999 contains the stream 31005"),
        ],
    )
    def test_mistakes_are_located(self, tmp_path: Path, text: str, words: str) -> None:
        path = tmp_path / "a.toml"
        path.write_text(text)
        (problem,) = check_file(path)
        assert words in problem.what
        assert str(path) in problem.where


class TestRanges:
    @pytest.mark.parametrize("text", ["", "5", "5-4", "0-3", "a-b", "1-99999999999", "1-2-3", "-5"])
    def test_must_go_up(self, text: str) -> None:
        key = find_key("driver.creatable_ranges")
        assert key is not None
        if text == "5":
            assert key.read([text]) == ("5",)
            return
        with pytest.raises(ValueError):  # noqa: PT011
            key.read([text])

    @pytest.mark.parametrize(
        ("fields", "words"),
        [
            (
                {"descriptor_stream_id_range": "32500-33000"},
                "descriptor_stream_id_range 32500-33000 and control_stream_id_range 32000-32999 overlap",
            ),
            (
                {"stream_id_range": "31999-32000"},
                "stream_id_range 31999-32000 and descriptor_stream_id_range 31000-31999 overlap",
            ),
            (
                {"control_stream_id_range": "10999-11000"},
                "control_stream_id_range 10999-11000 and creatable_ranges 10000-10999 overlap",
            ),
        ],
    )
    def test_that_overlap_are_refused_with_their_numbers(self, fields: dict[str, str], words: str) -> None:
        with pytest.raises(ConfigError) as caught:
            DriverSection(**fields)  # type: ignore[arg-type]
        assert caught.value.message == words

    @pytest.mark.parametrize("key", ["control", "announce", "descriptor", "qos", "metadata"])
    def test_must_leave_out_the_pools_own_streams(self, key: str) -> None:
        streams = StreamsSection(**{f"{key}_stream_id": 31_500})
        with pytest.raises(ConfigError, match=f"31000-31999 contains 31500, streams.{key}_stream_id"):
            DriverSection().check_beside(streams)

    def test_may_be_empty(self) -> None:
        section = DriverSection(
            stream_id_range="", descriptor_stream_id_range="", control_stream_id_range="", creatable_ranges=()
        )
        assert section.ranges == {}
        section.check_beside(StreamsSection())

    def test_know_what_they_contain(self) -> None:
        ids = IdRange.parse("5-7")
        assert [n in ids for n in (4, 5, 7, 8)] == [False, True, True, False]
        assert ids.overlaps(IdRange(7, 9))
        assert not ids.overlaps(IdRange(8, 9))
