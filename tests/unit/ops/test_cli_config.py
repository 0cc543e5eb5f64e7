"""``tpool config``: show, check, explain, init."""

import json
import logging
from pathlib import Path

import pytest

from tensor_pool.config import load_config


class TestShow:
    def test_has_every_key_with_its_origin(self, tpool, monkeypatch: pytest.MonkeyPatch) -> None:
        Path("tensor-pool.toml").write_text("[shm]\nnamespace = 'lab1'\n")
        monkeypatch.setenv("TENSOR_POOL__LOG__LEVEL", "error")
        outcome = tpool("config", "show", "--format", "json", "--set", "aeron.term_length=1m")
        rows = {row["key"]: row for row in json.loads(outcome.out)}

        assert rows["shm.namespace"] == {
            "key": "shm.namespace",
            "value": "lab1",
            "origin": "file tensor-pool.toml",
        }
        assert rows["log.level"]["origin"] == "environment TENSOR_POOL__LOG__LEVEL"
        assert (rows["aeron.term_length"]["value"], rows["aeron.term_length"]["origin"]) == (
            1_048_576,
            "command line",
        )
        assert rows["aeron.timer_interval_ms"]["origin"] == "default"

    def test_a_table_shows_sizes_as_people_write_them(self, tpool) -> None:
        lines = tpool("config", "show").out.splitlines()

        assert lines[0].split() == ["KEY", "VALUE", "ORIGIN"]
        assert ["aeron.term_length", "4m", "default"] in [line.split() for line in lines]

    def test_toml_can_be_read_back(self, tpool, tmp_path: Path) -> None:
        outcome = tpool(
            "config", "show", "--format", "toml", "--set", "shm.namespace=lab1", "--aeron-dir", "x y"
        )
        written = tmp_path / "again.toml"
        written.write_text(outcome.out)
        again = load_config(written, environ={})

        assert again.shm.namespace == "lab1"
        assert again.aeron.dir == str(tmp_path / "x y")
        assert tpool("config", "check", str(written)).code == 0

    def test_a_named_file_is_used(self, tpool, tmp_path: Path) -> None:
        (tmp_path / "other.toml").write_text("[log]\nlevel = 'error'\n")

        assert "log.level" in tpool("config", "show", "--config", "other.toml").out
        assert "file other.toml" in tpool("config", "show", "--config", "other.toml").out

    def test_wrong_configuration_is_exit_code_2_in_three_lines(self, tpool) -> None:
        outcome = tpool("config", "show", "--set", "log.llevel=debug")

        assert outcome.code == 2
        assert outcome.err.splitlines() == [
            "error: unknown key log.llevel",
            "   at: command line",
            "  try: did you mean log.level?",
        ]

    def test_an_empty_aeron_dir_is_wrong_usage(self, tpool) -> None:
        outcome = tpool("config", "show", "--aeron-dir", "")

        assert outcome.code == 2
        assert "'--aeron-dir': the name is empty" in outcome.err

    def test_logging_is_set_up_as_configured(self, tpool) -> None:
        tpool("config", "show", "--set", "log.level=error")

        assert logging.getLogger("tensor_pool").level == logging.ERROR


class TestCheck:
    def test_a_good_file(self, tpool, tmp_path: Path) -> None:
        (tmp_path / "good.toml").write_text("[log]\nlevel = 'debug'\n")

        assert tpool("config", "check", "good.toml") == (0, "good.toml: ok\n", "")

    def test_every_problem_is_listed_and_the_exit_code_is_1(self, tpool, tmp_path: Path) -> None:
        (tmp_path / "bad.toml").write_text("[log]\nlevel = 'loud'\nllevel = 'debug'\n")
        outcome = tpool("config", "check", "bad.toml", "--format", "jsonl")
        problems = [json.loads(line) for line in outcome.out.splitlines()]

        assert outcome.code == 1
        assert problems == [
            {
                "key": "log.level",
                "problem": "log.level can't be 'loud'",
                "try": "set it to one of debug, info, warning, error",
                "file": "bad.toml",
            },
            {
                "key": "log.llevel",
                "problem": "unknown key log.llevel",
                "try": "did you mean log.level?",
                "file": "bad.toml",
            },
        ]
        assert "log.llevel" in tpool("config", "check", "bad.toml").out

    def test_what_is_not_toml_is_a_problem_too(self, tpool, tmp_path: Path) -> None:
        (tmp_path / "bad.toml").write_text("[log")
        outcome = tpool("config", "check", "bad.toml")

        assert outcome.code == 1
        assert "not TOML" in outcome.out

    def test_a_good_file_as_json_is_an_empty_list(self, tpool, tmp_path: Path) -> None:
        (tmp_path / "good.toml").touch()

        assert tpool("config", "check", "good.toml", "--format", "json") == (0, "[]\n", "")

    def test_without_a_name_it_takes_the_file_that_would_be_used(self, tpool) -> None:
        assert tpool("config", "check").code == 2
        Path("tensor-pool.toml").write_text("x = 1")
        assert tpool("config", "check").code == 1

    def test_a_file_that_does_not_exist_is_wrong_usage(self, tpool) -> None:
        assert tpool("config", "check", "missing.toml").code == 2


class TestExplain:
    def test_a_key(self, tpool, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TENSOR_POOL__AERON__TERM_LENGTH", "1m")
        outcome = tpool("config", "explain", "aeron.term_length", "--format", "json")

        explained = json.loads(outcome.out)
        assert explained.pop("doc").startswith("Length of a term buffer")
        assert explained == {
            "key": "aeron.term_length",
            "allowed": "a size from 64k to 1g, a power of two",
            "default": 4_194_304,
            "value": 1_048_576,
            "origin": "environment TENSOR_POOL__AERON__TERM_LENGTH",
            "environment": "TENSOR_POOL__AERON__TERM_LENGTH",
        }

    def test_a_key_for_people(self, tpool) -> None:
        lines = tpool("config", "explain", "aeron.term_length").out.splitlines()

        assert "default      4m" in lines
        assert "origin       default" in lines

    def test_a_section(self, tpool) -> None:
        lines = tpool("config", "explain", "log").out.splitlines()

        assert [line.split()[0] for line in lines] == ["KEY", "log.level", "log.format"]

    def test_an_unknown_key_suggests_the_nearest(self, tpool) -> None:
        outcome = tpool("config", "explain", "aeron.term_lenght")

        assert outcome.code == 2
        assert outcome.err.splitlines() == [
            "error: unknown key aeron.term_lenght",
            "  try: did you mean aeron.term_length?",
        ]


class TestInit:
    def test_writes_a_file_that_checks(self, tpool, tmp_path: Path) -> None:
        outcome = tpool("config", "init")

        assert (outcome.code, outcome.out) == (0, "")
        assert "[aeron]" in (tmp_path / "tensor-pool.toml").read_text()
        assert tpool("config", "check").out == "tensor-pool.toml: ok\n"

    def test_does_not_overwrite_unless_told_to(self, tpool, tmp_path: Path) -> None:
        path = tmp_path / "mine.toml"
        path.write_text("# mine\n")
        outcome = tpool("config", "init", "mine.toml")

        assert outcome.code == 2
        assert outcome.err.splitlines() == [
            "error: can't write the file: File exists",
            "   at: mine.toml",
            "  try: --force overwrites it",
        ]
        assert path.read_text() == "# mine\n"
        assert tpool("config", "init", "mine.toml", "--force").code == 0
        assert "[aeron]" in path.read_text()

    def test_a_dash_prints_it(self, tpool, tmp_path: Path) -> None:
        outcome = tpool("config", "init", "-")

        assert outcome.code == 0
        assert outcome.out.startswith("# Configuration of the tensor pool.")
        assert not (tmp_path / "-").exists()

    def test_a_place_that_does_not_exist_is_an_error(self, tpool) -> None:
        outcome = tpool("config", "init", "no/such/place.toml")

        assert outcome.code == 2
        assert "No such file or directory" in outcome.err
