"""From layers to one checked configuration."""

from pathlib import Path
from typing import Annotated, ClassVar

import msgspec
import pytest

from tensor_pool.config import AeronSection, Config, Section, check_file, load_config, registry
from tensor_pool.config import keys as keys_module
from tensor_pool.config.kinds import StreamId, doc
from tensor_pool.config.registry import SECTIONS
from tensor_pool.errors import ConfigError


def load(text: str | None = None, tmp_path: Path | None = None, **options: object) -> Config:
    path = None
    if text is not None:
        assert tmp_path is not None
        path = tmp_path / "tensor-pool.toml"
        path.write_text(text)
    return load_config(path, **({"environ": {}, "search": False} | options))


class TestLayers:
    def test_each_layer_wins_over_those_before_and_is_remembered(self, tmp_path: Path) -> None:
        text = "[aeron]\ntimer_interval_ms = 1\ndriver_timeout_ms = 1\nterm_length = '64k'\n"
        environ = {"TENSOR_POOL__AERON__DRIVER_TIMEOUT_MS": "2", "TENSOR_POOL__AERON__TERM_LENGTH": "128k"}
        config = load(
            text,
            tmp_path,
            environ=environ,
            overrides={"aeron.term_length": "256k"},
            overrides_from="command line",
        )

        aeron = config.aeron
        assert (aeron.timer_interval_ms, aeron.driver_timeout_ms, aeron.term_length) == (1, 2, 256 * 1024)
        assert str(config.origin("aeron.timer_interval_ms")) == f"file {tmp_path / 'tensor-pool.toml'}"
        assert str(config.origin("aeron.driver_timeout_ms")) == (
            "environment TENSOR_POOL__AERON__DRIVER_TIMEOUT_MS"
        )
        assert str(config.origin("aeron.term_length")) == "command line"
        assert str(config.origin("aeron.dir")) == "default"

    def test_without_anything_everything_is_default(self) -> None:
        config = load()

        assert config.file is None
        assert {entry.origin.kind for entry in config.entries()} == {"default"}
        assert config.aeron == AeronSection()

    def test_the_file_that_was_read_is_known(self, tmp_path: Path) -> None:
        assert load("", tmp_path).file == tmp_path / "tensor-pool.toml"

    def test_the_environment_of_the_process_is_the_default(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TENSOR_POOL__LOG__LEVEL", "error")

        assert load_config(search=False).log.level == "error"

    def test_sections_are_frozen(self) -> None:
        with pytest.raises(AttributeError):
            load().log.level = "debug"  # type: ignore[misc]

    def test_a_section_is_built_once(self) -> None:
        config = load()

        assert config.aeron is config[AeronSection]

    def test_an_empty_section_is_fine(self, tmp_path: Path) -> None:
        assert load("[aeron]\n[log]\n", tmp_path).log.level == "info"


class TestRefusals:
    @pytest.mark.parametrize(
        ("text", "what", "hint"),
        [
            ("[aeron]\nterm_lenght = 1", "unknown key aeron.term_lenght", "did you mean aeron.term_length?"),
            ("[aeorn]\ndir = ''", "unknown key aeorn.dir", "did you mean aeron.dir?"),
            ("[quux]\nzzz = 1", "unknown key quux.zzz", f"sections: {', '.join(SECTIONS)}"),
            ("[quux]", "unknown section [quux]", f"sections: {', '.join(SECTIONS)}"),
            ("[log]\nzzz = 1", "unknown key log.zzz", "keys of log: level, format"),
            ("zzz = 1", "unknown key zzz", f"sections: {', '.join(SECTIONS)}"),
            ("log = 1", "log is a section, not a key", "write [log] and its keys below it: level, format"),
            (
                "[log]\nlevel = 'loud'",
                "log.level can't be 'loud'",
                "set it to one of debug, info, warning, error",
            ),
            (
                "[aeron]\nterm_length = 100",
                "aeron.term_length can't be 100",
                "set it to a size from 64k to 1g, a power of two",
            ),
            (
                "[aeron]\nterm_length = '3m'",
                "aeron.term_length can't be '3m': not a power of two",
                "set it to a size from 64k to 1g, a power of two",
            ),
            (
                "[aeron.dir]\nx = 1",
                "aeron.dir can't be {'x': 1}",
                "set it to an absolute path, or empty for Aeron's own default",
            ),
        ],
    )
    def test_say_what_where_and_what_is_allowed(
        self, tmp_path: Path, text: str, what: str, hint: str
    ) -> None:
        with pytest.raises(ConfigError) as caught:
            load(text, tmp_path)

        error = caught.value
        assert (error.message, error.hint) == (what, hint)
        assert error.where == f"file {tmp_path / 'tensor-pool.toml'}"

    def test_the_environment_is_checked_the_same_way(self) -> None:
        with pytest.raises(ConfigError, match=r"unknown key log\.llevel") as caught:
            load(environ={"TENSOR_POOL__LOG__LLEVEL": "debug"})
        assert caught.value.where == "environment TENSOR_POOL__LOG__LLEVEL"
        assert caught.value.hint == "did you mean log.level?"

    def test_so_are_overrides(self) -> None:
        with pytest.raises(ConfigError, match=r"agents\.error_limit can't be -1"):
            load(overrides={"agents.error_limit": -1})
        with pytest.raises(ConfigError, match="5 is not a key") as caught:
            load(overrides={5: 1})
        assert "log.level" in caught.value.hint

    def test_a_wrong_value_is_refused_even_where_a_later_layer_replaces_it(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="loud"):
            load("[log]\nlevel = 'loud'", tmp_path, overrides={"log.level": "info"})

    def test_further_problems_are_counted(self, tmp_path: Path) -> None:
        with pytest.raises(
            ConfigError, match=r"unknown key a\.b \(and 2 more; `tpool config check` lists all\)"
        ):
            load("[a]\nb = 1\nc = 2\nd = 3", tmp_path)

    def test_huge_and_unprintable_values_are_shown_short(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError) as caught:
            load(overrides={"shm.namespace": "\x1b[2J" + "x" * 100_000})
        assert len(str(caught.value)) < 400
        assert str(caught.value).replace("\n", "").isprintable()

    def test_rules_between_keys(self, tmp_path: Path) -> None:
        with pytest.raises(
            ConfigError, match="timer_interval_ms of 500 must be above 0 and below untethered_window"
        ) as caught:
            load("[aeron]\ntimer_interval_ms = 500", tmp_path)
        assert "tensor-pool.toml" in str(caught.value.where)

    def test_a_key_that_does_not_exist_has_no_origin(self) -> None:
        with pytest.raises(ConfigError, match=r"unknown key log\.lleve"):
            load().origin("log.lleve")


class TestCheckFile:
    def test_lists_every_problem(self, tmp_path: Path) -> None:
        path = tmp_path / "a.toml"
        path.write_text("x = 1\n[log]\nlevel = 'loud'\nformat = 'json'\n[aeron]\ntimer_interval_ms = 0\n")

        assert [problem.key for problem in check_file(path)] == ["x", "log.level", "aeron.timer_interval_ms"]

    def test_a_good_file_has_none(self, tmp_path: Path) -> None:
        path = tmp_path / "a.toml"
        path.write_text("[log]\nlevel = 'debug'\n")

        assert check_file(path) == []

    def test_what_is_not_toml_is_one_problem(self, tmp_path: Path) -> None:
        path = tmp_path / "a.toml"
        path.write_text("[log")

        (problem,) = check_file(path)
        assert (problem.key, problem.where) == ("", str(path))
        assert problem.what.startswith("not TOML")

    def test_neither_the_environment_nor_other_files_matter(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TENSOR_POOL__LOG__LEVEL", "loud")
        path = tmp_path / "a.toml"
        path.write_text("")

        assert check_file(path) == []


class TestReplace:
    def test_rules_between_keys_see_the_values_that_stay(self) -> None:
        config = load(overrides={"driver.clock_error_budget_ms": 5})
        changed = config.replace({"driver.announce_clock_domain": "realtime_synced"})
        assert changed.entry("driver.clock_error_budget_ms").value == 5

        with pytest.raises(ConfigError, match="without clock_error_budget_ms"):
            changed.replace({"driver.clock_error_budget_ms": 0})


class RelaySection(Section, frozen=True):
    """A section as a service would add it, with keys that have no default."""

    section_name: ClassVar[str] = "relay"

    instance_id: Annotated[str, doc("Names the instance.")]
    payload_stream_id: Annotated[StreamId, doc("Stream id of chunks.")]
    names: Annotated[list[str], doc("Some names.")] = msgspec.field(default_factory=list)


class TestSectionsOfServices:
    @pytest.fixture(autouse=True)
    def _registered(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(registry.SECTIONS, "relay", "relay_for_test:RelaySection")
        module = type("module", (), {"RelaySection": RelaySection})
        monkeypatch.setitem(__import__("sys").modules, "relay_for_test", module)
        yield
        keys_module.section_keys.cache_clear()

    def test_are_reached_by_their_struct(self) -> None:
        config = load(overrides={"relay.instance_id": "b1", "relay.payload_stream_id": 3000})

        relay = config[RelaySection]
        assert (relay.instance_id, relay.payload_stream_id, relay.names) == ("b1", 3000, [])

    def test_required_keys_matter_only_to_who_uses_the_section(self) -> None:
        config = load()

        assert config.aeron.timer_interval_ms == 20
        assert "relay.instance_id" not in [entry.key.path for entry in config.entries()]
        with pytest.raises(ConfigError, match=r"relay\.instance_id is required \(and 1 more"):
            config[RelaySection]

    def test_a_section_half_given_is_refused_with_what_is_missing(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"relay\.payload_stream_id is required") as caught:
            load("[relay]\ninstance_id = 'b1'", tmp_path)
        assert caught.value.hint == "set it to a whole number from 1 to 2147483647"
