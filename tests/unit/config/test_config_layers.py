"""Where values come from: files, environment, command line."""

import os
from pathlib import Path

import pytest

from tensor_pool.config.layers import (
    Origin,
    Setting,
    find_file,
    parse_assignment,
    read_environment,
    read_file,
    read_overrides,
)
from tensor_pool.errors import ConfigError


def written(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


class TestFindFile:
    @pytest.fixture
    def home(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        here = tmp_path / "here"
        here.mkdir()
        monkeypatch.chdir(here)
        return tmp_path

    def test_there_may_be_none(self, home: Path) -> None:
        assert find_file(None, {"HOME": str(home)}) is None
        assert find_file(None, {}) is None

    def test_the_search_order(self, home: Path) -> None:
        environ = {"HOME": str(home)}
        user = written(home / ".config/tensor-pool/tensor-pool.toml")
        assert find_file(None, environ) == user

        xdg = written(home / "xdg/tensor-pool/tensor-pool.toml")
        environ["XDG_CONFIG_HOME"] = str(home / "xdg")
        assert find_file(None, environ) == xdg

        written(home / "here/tensor-pool.toml")
        assert find_file(None, environ) == Path("tensor-pool.toml")

        named = written(home / "named.toml")
        environ["TENSOR_POOL__CONFIG"] = str(named)
        assert find_file(None, environ) == named

        explicit = written(home / "explicit.toml")
        assert find_file(explicit, environ) == explicit

    @pytest.mark.parametrize(
        ("explicit", "environ", "named_by"),
        [
            ("missing.toml", {}, "the command line or the call"),
            (None, {"TENSOR_POOL__CONFIG": "missing.toml"}, "TENSOR_POOL__CONFIG"),
        ],
    )
    def test_a_named_file_must_exist(
        self, home: Path, explicit: str | None, environ: dict[str, str], named_by: str
    ) -> None:
        with pytest.raises(ConfigError, match=r"no configuration file missing\.toml") as caught:
            find_file(explicit, environ)
        assert named_by in str(caught.value.where)

    def test_a_place_that_can_not_even_be_looked_at_is_passed_over(self, home: Path) -> None:
        assert find_file(None, {"XDG_CONFIG_HOME": "/" + "x" * 300}) is None

    def test_a_directory_of_that_name_is_no_file(self, home: Path) -> None:
        (home / "here/tensor-pool.toml").mkdir()

        assert find_file(None, {}) is None


class TestReadFile:
    def test_settings_remember_the_file(self, tmp_path: Path) -> None:
        path = written(tmp_path / "a.toml", '[aeron]\ndir = "/x"\n[log]\nlevel = "debug"\n')

        assert read_file(path) == [
            Setting("aeron.dir", "/x", Origin("file", str(path))),
            Setting("log.level", "debug", Origin("file", str(path))),
        ]

    def test_values_outside_of_sections_are_settings_too_so_that_they_get_refused(
        self, tmp_path: Path
    ) -> None:
        (setting,) = read_file(written(tmp_path / "a.toml", "level = 1"))

        assert setting.path == "level"

    def test_a_quoted_dot_separates_nothing(self, tmp_path: Path) -> None:
        path = written(tmp_path / "a.toml", '"aeron.dir" = "/x"\n[log]\n"a b" = 1')

        assert [setting.path for setting in read_file(path)] == ['"aeron.dir"', 'log."a b"']

    @pytest.mark.parametrize(
        "content",
        [b"[aeron", b"x = ", b"\xff\xfe", b"[a]\n[a]", b"x = " + b"[" * 100_000, b"x = 1" + b"0" * 10_000],
        ids=["brackets", "no value", "not utf-8", "twice", "deep", "huge number"],
    )
    def test_what_is_not_toml_is_refused_with_its_path(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "a.toml"
        path.write_bytes(content)

        with pytest.raises(ConfigError, match="not TOML") as caught:
            read_file(path)
        assert caught.value.where == str(path)

    def test_a_file_that_is_too_large_is_not_read(self, tmp_path: Path) -> None:
        path = tmp_path / "a.toml"
        with path.open("wb") as file:
            file.truncate(10 * 2**40)  # sparse

        with pytest.raises(ConfigError, match="larger than 256 KiB"):
            read_file(path)

    @pytest.mark.parametrize("name", ["missing.toml", "nul\0.toml"])
    def test_a_file_that_can_not_be_read_is_refused(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(ConfigError, match="can't read"):
            read_file(tmp_path / name)

    def test_neither_pipes_nor_devices_nor_directories_make_it_wait(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")

        for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
            with pytest.raises(ConfigError, match="not a regular file"):
                read_file(path)


class TestEnvironment:
    def test_variables_with_the_prefix_become_settings(self) -> None:
        environ = {"TENSOR_POOL__SHM__SHM_BASE_DIR": "/x", "PATH": "/bin", "TENSOR_POOL_FAULT": "kill"}

        assert read_environment(environ) == [
            Setting(
                "shm.shm_base_dir",
                "/x",
                Origin("environment", "TENSOR_POOL__SHM__SHM_BASE_DIR"),
                is_text=True,
            )
        ]

    def test_the_name_of_the_file_is_not_a_setting(self) -> None:
        assert read_environment({"TENSOR_POOL__CONFIG": "x.toml"}) == []

    def test_an_empty_variable_counts_as_not_set(self) -> None:
        assert read_environment({"TENSOR_POOL__LOG__LEVEL": ""}) == []

    def test_the_shorthand_of_every_commands_documentation(self) -> None:
        (setting,) = read_environment({"TENSOR_POOL__AERON_DIR": "/x"})

        assert (setting.path, setting.origin.detail) == ("aeron.dir", "TENSOR_POOL__AERON_DIR")

    def test_a_shorthand_that_disagrees_is_refused(self) -> None:
        same = {"TENSOR_POOL__AERON_DIR": "/x", "TENSOR_POOL__AERON__DIR": "/x"}
        assert [setting.path for setting in read_environment(same)] == ["aeron.dir"]

        with pytest.raises(ConfigError, match="different values") as caught:
            read_environment(same | {"TENSOR_POOL__AERON__DIR": "/y"})
        assert "'/x' or '/y'" in str(caught.value.hint)


class TestOverrides:
    def test_text_is_to_be_read_other_values_are_taken(self) -> None:
        settings = read_overrides({"log.level": "debug", "aeron.term_length": 65_536}, "argument")

        assert [(s.path, s.raw, s.is_text, s.origin.kind) for s in settings] == [
            ("log.level", "debug", True, "argument"),
            ("aeron.term_length", 65_536, False, "argument"),
        ]

    @pytest.mark.parametrize(
        ("text", "parsed"),
        [("a.b=c", ("a.b", "c")), (" a.b =c=d ", ("a.b", "c=d ")), ("a.b=", ("a.b", ""))],
    )
    def test_assignments(self, text: str, parsed: tuple[str, str]) -> None:
        assert parse_assignment(text) == parsed

    @pytest.mark.parametrize("text", ["", "=", "a=b", "a.b", ".a=b", "a.=b"])
    def test_what_is_no_assignment(self, text: str) -> None:
        with pytest.raises(ConfigError, match="sets nothing"):
            parse_assignment(text)
