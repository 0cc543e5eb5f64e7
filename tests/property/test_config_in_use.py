"""What `tpool config check` accepts works: no value is refused only when somebody uses it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tensor_pool.channels import Channel, for_publication, for_subscription
from tensor_pool.config import check_file, load_config
from tensor_pool.config.keys import section_keys
from tensor_pool.config.toml_text import toml_value
from tensor_pool.host.aeron import channel_defaults, media_driver_options

# Around the limits and around each other, which is where rules disagree.
TIMES_MS = st.sampled_from([1, 2, 3, 4, 5, 20, 21, 49, 50, 51, 100, 999, 1_000, 1_001, 10_000, 3_600_000])
AERON = st.fixed_dictionaries(
    {},
    optional={
        "timer_interval_ms": TIMES_MS,
        "driver_timeout_ms": TIMES_MS,
        "untethered_window_limit_timeout_ms": TIMES_MS,
        "untethered_linger_timeout_ms": TIMES_MS,
        "untethered_resting_timeout_ms": TIMES_MS,
        "term_length": st.sampled_from(["64k", "1m", "4m", "1g", 65_536, "32k", "3m", "2g"]),
    },
)
PARAMETERS = st.sampled_from(
    [
        *("alias=camera", "alias=", "alias=a b", "foo=1", "term-length=64k", "term-length=3m", "mtu=8k"),
        *("mtu=100", "endpoint=127.0.0.1:40123", "endpoint=nowhere", "control=127.0.0.1:0", "tether=true"),
        *("untethered-linger-timeout=1s", "untethered-linger-timeout=soon", "session-id=7", "x", ""),
    ]
)
CHANNELS = st.builds(
    lambda media, parameters: f"{media}?{'|'.join(parameters)}" if parameters else media,
    st.sampled_from(["aeron:ipc", "aeron:udp", "aeron-spy:aeron:udp", "aeron:tcp", "ipc"]),
    st.lists(PARAMETERS, max_size=3),
)
STREAMS = st.fixed_dictionaries(
    {},
    optional={name: CHANNELS for name in section_keys("streams") if name.endswith("_channel")},
)


def accepted(path: Path, section: str, values: dict[str, object]) -> bool:
    path.write_text(f"[{section}]\n" + "".join(f"{k} = {toml_value(v)}\n" for k, v in values.items()))
    return check_file(path) == []


@given(AERON)
@example({"timer_interval_ms": 50})
@example({"timer_interval_ms": 1})
@example({"timer_interval_ms": 2, "untethered_linger_timeout_ms": 3})
@example(dict.fromkeys(("timer_interval_ms", "untethered_linger_timeout_ms"), 1))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_accepted_times_and_lengths_make_a_media_driver(tmp_path: Path, values: dict[str, object]) -> None:
    path = tmp_path / "a.toml"
    if accepted(path, "aeron", values):
        section = load_config(path, environ={}).aeron
        options = media_driver_options(section)
        assert options.timer_interval_ms == section.timer_interval_ms
        assert 0 < options.idle_max_sleep_ms <= options.timer_interval_ms
        for_publication("aeron:ipc", channel_defaults(section))


@given(STREAMS)
@example({"descriptor_channel": "aeron:ipc?foo=1"})
@example({"descriptor_channel": "aeron:udp"})
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_accepted_channels_can_be_published_and_subscribed_to(
    tmp_path: Path, values: dict[str, object]
) -> None:
    path = tmp_path / "a.toml"
    if accepted(path, "streams", values):
        config = load_config(path, environ={})
        for name in values:
            channel = getattr(config.streams, name)
            for complete in (for_publication, for_subscription):
                text = complete(channel, channel_defaults(config.aeron))
                assert Channel.parse(text).params.items() >= Channel.parse(channel).params.items()


@pytest.mark.parametrize(
    ("section", "values", "is_accepted"),
    [
        ("aeron", {"timer_interval_ms": 49}, True),
        ("aeron", {"timer_interval_ms": 50}, False),
        ("aeron", {"timer_interval_ms": 2}, True),
        ("aeron", {"timer_interval_ms": 1_001, "untethered_linger_timeout_ms": 5_000}, False),
        ("streams", {"descriptor_channel": "aeron:ipc?alias=camera"}, True),
        ("streams", {"descriptor_channel": "aeron:ipc?foo=1"}, False),
        ("streams", {"descriptor_channel": "aeron-spy:aeron:udp?endpoint=127.0.0.1:1"}, False),
    ],
    ids=str,
)
def test_what_is_accepted(tmp_path: Path, section: str, values: dict[str, object], is_accepted: bool) -> None:
    assert accepted(tmp_path / "a.toml", section, values) == is_accepted
