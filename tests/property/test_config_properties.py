"""Configuration: what is written is what is read, and no input does anything but work or be refused."""

import re
import string
import tomllib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tensor_pool.channels import format_size, parse_size
from tensor_pool.config import Config, check_file, load_config
from tensor_pool.config.keys import Key, all_keys, nearest_key
from tensor_pool.config.toml_text import commented_defaults, config_toml, toml_value
from tensor_pool.driver.config import StaticStream, StreamProfile
from tensor_pool.errors import ConfigError

PATHS = st.text(alphabet=string.ascii_letters + string.digits + "/._-{}@~'\"", max_size=30).map("/".__add__)
PROFILES = st.builds(
    StreamProfile,
    st.sampled_from([0, 1, 8, 1024]),
    st.lists(st.sampled_from([64, "4k", "1m"]), min_size=1, max_size=3, unique=True).map(tuple),
    st.booleans(),
)
VALUES = {
    "aeron.dir": st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20).map(
        lambda name: f"/{name}"
    ),
    "aeron.term_length": st.integers(16, 30).map(lambda bits: 1 << bits),
    "shm.shm_base_dir": PATHS,
    "shm.allowed_base_dirs": st.lists(PATHS, max_size=4).map(tuple),
    "shm.namespace": st.from_regex(r"\A[A-Za-z0-9_][A-Za-z0-9._-]{0,63}\Z"),
    "agents.idle_max_pause_ms": st.floats(0, 100, exclude_min=True, allow_subnormal=False),
    "agents.error_limit": st.integers(0, 1_000_000),
    "driver.profiles": st.dictionaries(st.text("abc-_. ", min_size=1, max_size=5), PROFILES, max_size=3),
    "driver.streams": st.lists(
        st.builds(StaticStream, st.integers(10_000, 10_999), st.text("ab'\"\\ ", max_size=5).map(str.strip)),
        max_size=3,
        unique_by=(lambda stream: stream.id, lambda stream: stream.name),
    ).map(tuple),
    "log.level": st.sampled_from(["debug", "info", "warning", "error"]),
    "streams.qos_stream_id": st.integers(1, 2**31 - 1),
    "streams.qos_channel": st.sampled_from(["aeron:ipc", "aeron:udp?endpoint=127.0.0.1:40123"]),
}


def load(path: Path | None = None, **overrides: object) -> Config:
    return load_config(path, overrides=overrides, environ={}, search=False)


def outcome(*, environ: dict[str, str] | None = None, overrides: dict[str, object] | None = None) -> object:
    """A configuration or the refusal; any other exception fails the test."""
    try:
        return load_config(overrides=overrides, environ=environ or {}, search=False)
    except ConfigError as e:
        return e


def values_of(config: Config) -> dict[str, object]:
    return {entry.key.path: entry.value for entry in config.entries()}


class TestInit:
    def test_what_init_writes_gives_the_defaults(self, tmp_path: Path) -> None:
        path = tmp_path / "a.toml"
        path.write_text(commented_defaults())

        assert check_file(path) == []
        assert values_of(load(path)) == values_of(load())

    def test_with_every_key_switched_on_it_still_gives_the_defaults(self, tmp_path: Path) -> None:
        text, switched_on = re.subn(r"(?m)^#(\w+ = )", r"\1", commented_defaults())
        path = tmp_path / "a.toml"
        path.write_text(text)

        assert switched_on == len(list(all_keys()))
        assert values_of(load(path)) == values_of(load())
        assert {entry.origin.kind for entry in load(path).entries()} == {"file"}

    def test_every_key_is_documented_in_it(self) -> None:
        words = " ".join(line.lstrip("# ") for line in commented_defaults().splitlines())

        assert [key.path for key in all_keys() if " ".join(key.doc.split()) not in words] == []

    def test_no_line_is_too_long_to_read(self) -> None:
        assert max(map(len, commented_defaults().splitlines())) <= 105


@pytest.mark.parametrize("way", ["toml", "environment", "command line"])
@given(data=st.fixed_dictionaries({}, optional=VALUES))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_round_trip(tmp_path: Path, way: str, data: dict[str, object]) -> None:
    """Whatever holds can be written down and read back, in each form that people use."""
    before = load(**data)
    if way == "toml":
        path = tmp_path / "a.toml"
        path.write_text(config_toml(before), encoding="utf-8")
        after = load(path)
    else:
        texts = {entry.key: as_text(entry.key, entry.value) for entry in before.entries()}
        if way == "environment":
            environ = {key.environment_name: text for key, text in texts.items()}
            after = load_config(environ=environ, search=False)
        else:
            after = load(**{key.path: text for key, text in texts.items()})

    assert values_of(after) == values_of(before)


def as_text(key: Key, value: object) -> str:
    """A value as people type it: lists and tables in TOML's form, since a path may have a comma."""
    return toml_value(value) if isinstance(value, tuple | dict) else key.show(value)


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(list(all_keys())), json_like)
def test_any_value_is_taken_or_refused_with_words(key: Key, raw: object) -> None:
    loaded = outcome(overrides={key.path: raw})

    if isinstance(loaded, ConfigError):
        assert loaded.message.startswith((f"{key.path} can't be ", f"{key.section}: "))
        assert loaded.hint
    else:
        entry = loaded.entry(key.path)
        assert entry.origin.kind == "argument"
        assert key.read(entry.value) == entry.value


@given(st.text(max_size=40), st.text(max_size=40))
def test_any_environment_variable_is_taken_or_refused(name: str, text: str) -> None:
    loaded = outcome(environ={f"TENSOR_POOL__{name}": text})

    if isinstance(loaded, ConfigError):
        assert str(loaded).replace("\n", "").isprintable()
    else:
        assert not text or name == "CONFIG" or nearest_key(name.lower().replace("__", "."))


@given(st.binary(max_size=300))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_file_is_taken_or_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(content)
    problems = check_file(path)
    try:
        document = tomllib.loads(content.decode())
    except ValueError:
        assert problems
    else:
        assert bool(problems) == bool(document)  # no random text names a key of ours


@given(st.one_of(st.integers(0, 10**15), st.integers(0, 2**40).map((2**10).__mul__)))
def test_sizes_survive_writing_and_reading(size: int) -> None:
    assert parse_size(format_size(size)) == size


@given(
    st.recursive(
        st.booleans()
        | st.integers(-(2**63), 2**63 - 1)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(st.characters(exclude_categories=["Cs"])),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=3)
        ),
        max_leaves=8,
    )
)
def test_toml_values_are_read_back_by_the_standard_library(value: object) -> None:
    assert tomllib.loads(f"x = {toml_value(value)}")["x"] == value
