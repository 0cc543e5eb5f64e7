"""The sections: defaults that the decisions fix, and what follows from them."""

import re
from typing import ClassVar

import pytest

from tensor_pool.config import AeronSection, ShmSection, StreamsSection, load_config
from tensor_pool.config.keys import all_keys
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


class TestContainment:
    """Nothing in the configuration lets a region be mapped without a look at where it lies."""

    # How a key that switches something says what it allows.
    SWITCHES: ClassVar = {"true or false", "true, false or auto"}
    # Whether a socket may be opened instead, what the driver removes, what the bridge sends along, who is
    # told of streams, whether slow consumers are moved; whoever maps a region looks at where it lies all
    # the same.
    HARMLESS: ClassVar = [
        "client.allow_fallback",
        "driver.recreate_on_start",
        "driver.cleanup_on_exit",
        "bridge.checksums",
        "bridge.forward_metadata",
        "bridge.forward_qos",
        "bridge.forward_progress",
        "discovery.embedded",
        "discovery.denies",
        "discovery.resolves_names",
        "control.enabled",
        "supervisor.dry_run",
    ]
    # Sums of payload bytes that travel in chunks: nothing about files.
    ONLY_SOUNDS_SO: ClassVar = ["bridge.checksums"]
    SUSPICIOUS = re.compile(r"contain|trust|unsafe|insecure|verify|check|skip|strict|symlink|follow")

    @pytest.mark.req("WIRE-15.21a.5-12")
    def test_no_key_switches_it_off(self) -> None:
        entries = list(load_config(environ={}, search=False).entries())
        assert {entry.key.path for entry in entries} == {key.path for key in all_keys()}
        switches = [entry.key.path for entry in entries if entry.key.allowed in self.SWITCHES]
        assert switches == self.HARMLESS, "a new switch: show here that it leaves containment alone"
        named = [e.key.path for e in entries if self.SUSPICIOUS.search(f"{e.key.path} {e.key.allowed}")]
        assert named == self.ONLY_SOUNDS_SO, "what these do must be looked at, then named here"

    @pytest.mark.req("WIRE-15.21a.5-12")
    @pytest.mark.parametrize("allowed", ["", [], "/a", ["/a", "/b"]])
    @pytest.mark.parametrize("permissions", ["private", "group"])
    @pytest.mark.parametrize("namespace", ["default", "lab"])
    def test_there_is_always_a_base_directory(
        self, allowed: str | list[str], permissions: str, namespace: str
    ) -> None:
        values = {"allowed_base_dirs": allowed, "permissions": permissions, "namespace": namespace}
        overrides = {f"shm.{name}": value for name, value in values.items()}
        section = load_config(overrides=overrides, environ={}, search=False).shm
        assert section.base_dirs
        assert all(directory.startswith("/") for directory in section.base_dirs)

    @pytest.mark.parametrize("directory", ["", "relative", "none", "*"])
    def test_what_is_no_absolute_path_is_no_base_directory(self, directory: str) -> None:
        for overrides in ({"shm.allowed_base_dirs": [directory]}, {"shm.shm_base_dir": directory}):
            with pytest.raises(ConfigError):
                load_config(overrides=overrides, environ={}, search=False)


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
