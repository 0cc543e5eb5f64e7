"""Keys: everything about them comes from the annotations of their sections."""

import math

import msgspec
import pytest

from tensor_pool.config.keys import Key, all_keys, find_key, nearest_key, section_keys
from tensor_pool.config.registry import SECTIONS, section_type


def key(path: str) -> Key:
    found = find_key(path)
    assert found is not None
    return found


class TestEveryKey:
    def test_has_a_sentence_of_documentation(self) -> None:
        assert [k.path for k in all_keys() if not k.doc.endswith(".")] == []

    def test_says_what_it_allows_in_words(self) -> None:
        assert [k.path for k in all_keys() if not k.allowed or "\\" in k.allowed] == []

    def test_has_a_default_that_it_accepts(self) -> None:
        for k in all_keys():
            assert k.read(k.default) == k.default

    def test_has_an_environment_variable_of_its_own(self) -> None:
        names = [k.environment_name for k in all_keys()]

        assert len(set(names)) == len(names)
        assert key("shm.shm_base_dir").environment_name == "TENSOR_POOL__SHM__SHM_BASE_DIR"

    def test_that_is_a_duration_says_its_unit(self) -> None:
        for k in all_keys():
            if k.name.endswith("_intervals"):
                continue  # a number of them
            if "timeout" in k.name or "interval" in k.name:
                assert k.name.endswith("_ms"), k.path


def test_sections_know_their_names() -> None:
    for name in SECTIONS:
        assert section_type(name).section_name == name
        assert section_keys(name)
        assert section_type(name).__doc__


class TestAllowed:
    @pytest.mark.parametrize(
        ("path", "text"),
        [
            ("aeron.term_length", "a size from 64k to 1g, a power of two"),
            ("aeron.driver_timeout_ms", "a whole number from 1 to 3600000"),
            ("agents.idle_max_pause_ms", "a number above 0 up to 100"),
            ("log.level", "one of debug, info, warning, error"),
            ("shm.shm_base_dir", "an absolute path of visible ASCII characters without ?, | and spaces"),
            (
                "shm.allowed_base_dirs",
                "a list, each an absolute path of visible ASCII characters without ?, | and spaces",
            ),
        ],
    )
    def test_in_words(self, path: str, text: str) -> None:
        assert key(path).allowed == text


class TestRead:
    @pytest.mark.parametrize(
        ("path", "raw", "value"),
        [
            ("aeron.term_length", 65_536, 65_536),
            ("aeron.term_length", "64k", 65_536),
            ("agents.idle_max_pause_ms", 5, 5.0),
            ("log.level", "DEBUG", "debug"),
            ("shm.allowed_base_dirs", ["/a", "/b"], ("/a", "/b")),
        ],
    )
    def test_values_of_toml(self, path: str, raw: object, value: object) -> None:
        assert key(path).read(raw) == value

    @pytest.mark.parametrize(
        ("path", "raw"),
        [
            ("aeron.term_length", 65_535),
            ("aeron.term_length", 65_537),
            ("aeron.term_length", 3 * 65_536),
            ("aeron.term_length", 2**31),
            ("aeron.term_length", "4 apples"),
            ("aeron.term_length", True),
            ("aeron.term_length", 65_536.0 * 1.5),
            ("aeron.timer_interval_ms", 0),
            ("aeron.timer_interval_ms", 2**80),
            ("aeron.timer_interval_ms", "20"),
            ("agents.idle_max_pause_ms", math.nan),
            ("agents.idle_max_pause_ms", math.inf),
            ("agents.idle_max_pause_ms", 0),
            ("log.level", "loud"),
            ("log.level", 3),
            ("shm.allowed_base_dirs", "/a"),
            ("shm.allowed_base_dirs", ["/a"] * 65),
            ("shm.namespace", {"a": 1}),
            ("streams.control_stream_id", 0),
            ("streams.control_stream_id", 2**31),
        ],
    )
    def test_wrong_types_and_ranges_are_refused(self, path: str, raw: object) -> None:
        with pytest.raises(ValueError):  # noqa: PT011 - the words come from `allowed`
            key(path).read(raw)

    def test_a_wrong_item_is_located(self) -> None:
        with pytest.raises(ValueError, match=r"not allowed - at `\$\[1\]`"):
            key("shm.allowed_base_dirs").read(["/a", "b"])


class TestReadText:
    @pytest.mark.parametrize(
        ("path", "text", "value"),
        [
            ("aeron.term_length", "8m", 8 * 2**20),
            ("aeron.timer_interval_ms", " 1_000 ", 1_000),
            ("agents.idle_max_pause_ms", "0.5", 0.5),
            ("log.level", " Warning ", "warning"),
            ("aeron.dir", "/dev/shm/a, b", "/dev/shm/a, b"),
            ("aeron.dir", "", ""),
            ("shm.allowed_base_dirs", "/a, /b,", ("/a", "/b")),
            ("shm.allowed_base_dirs", '["/a", "/b"]', ("/a", "/b")),
            ("shm.allowed_base_dirs", "", ()),
        ],
    )
    def test_values_of_the_environment(self, path: str, text: str, value: object) -> None:
        assert key(path).read_text(text) == value

    @pytest.mark.parametrize(
        ("path", "text"),
        [
            ("aeron.timer_interval_ms", "soon"),
            ("aeron.timer_interval_ms", ""),
            ("aeron.timer_interval_ms", "20\nother = 1"),
            ("aeron.timer_interval_ms", '"20"'),
            ("aeron.timer_interval_ms", "[" * 50_000),
            ("shm.allowed_base_dirs", "[1"),
            ("shm.allowed_base_dirs", "relative"),
        ],
    )
    def test_nonsense_is_refused(self, path: str, text: str) -> None:
        with pytest.raises(ValueError):  # noqa: PT011
            key(path).read_text(text)


class TestShow:
    @pytest.mark.parametrize(
        ("path", "value", "text"),
        [
            ("aeron.term_length", 4 * 2**20, "4m"),
            ("shm.allowed_base_dirs", ("/a", "/b"), "/a, /b"),
            ("agents.idle_max_pause_ms", 10.0, "10.0"),
            ("log.level", "info", "info"),
        ],
    )
    def test_for_people(self, path: str, value: object, text: str) -> None:
        assert key(path).show(value) == text

    def test_truth_is_written_as_in_toml(self) -> None:
        assert msgspec.structs.replace(key("log.level"), default=False).show(True) == "true"


class TestNearest:
    @pytest.mark.parametrize(
        ("typed", "meant"),
        [
            ("aeron.term_lenght", "aeron.term_length"),
            ("aeron.termlength", "aeron.term_length"),
            ("aerno.dir", "aeron.dir"),
            ("shm_base_dir", "shm.shm_base_dir"),
            ("driver.shm_base_dir", "shm.shm_base_dir"),
            ("logging.level", "log.level"),
            ("base_dir_allowed_x", None),
            ("quux", None),
            ("", None),
            ("x" * 1_000_000, None),
        ],
    )
    def test_key(self, typed: str, meant: str | None) -> None:
        assert nearest_key(typed) == meant

    def test_a_path_without_section_or_name_is_no_key(self) -> None:
        assert [find_key(path) for path in ("", ".", "aeron", "aeron.", ".dir", "aeron.dir.x")] == [None] * 6
