"""Channels are built, parsed, checked and completed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensor_pool.channels import (
    DEFAULT_TIMER_INTERVAL_MS,
    STANDARD,
    Channel,
    ChannelDefaults,
    check_stream_id,
    check_timer_interval,
    for_publication,
    for_subscription,
    format_size,
    ipc,
    parse_duration_ns,
    parse_size,
    udp,
)
from tensor_pool.errors import ChannelError, ConfigError


def test_builders_always_set_the_term_length() -> None:
    assert ipc().params == {"term-length": "4m"}
    assert ipc().term_length_bytes == 4 << 20
    assert udp("127.0.0.1:40123").params["term-length"] == "4m"
    assert str(ipc(term_length="64k", session_id="7")) == "aeron:ipc?term-length=64k|session-id=7"


@pytest.mark.parametrize("text", ["aeron:ipc", "aeron:udp?endpoint=127.0.0.1:40123", "aeron:ipc?alias=x"])
def test_publications_get_bounded_memory_and_short_untethered_timeouts(text: str) -> None:
    params = Channel.parse(for_publication(text)).params
    assert params["term-length"] == "4m"
    assert params.items() >= ChannelDefaults().of_publications().items()
    assert "tether" not in params


def test_what_channels_do_not_say_can_be_configured() -> None:
    defaults = ChannelDefaults(term_length="64k", window_limit_ms=7, linger_ms=8, resting_ms=9)
    params = Channel.parse(for_publication("aeron:ipc?untethered-linger-timeout=1s", defaults)).params
    assert params == {
        "term-length": "64k",
        "untethered-window-limit-timeout": "7ms",
        "untethered-linger-timeout": "1s",
        "untethered-resting-timeout": "9ms",
    }
    assert Channel.parse(for_subscription("aeron:ipc", defaults)).params["term-length"] == "64k"


def test_ipc_subscriptions_are_untethered_and_network_ones_are_not() -> None:
    assert Channel.parse(for_subscription("aeron:ipc")).params == {"term-length": "4m", "tether": "false"}
    assert "tether" not in Channel.parse(for_subscription("aeron:udp?endpoint=127.0.0.1:40123")).params
    spy = for_subscription("aeron-spy:aeron:udp?endpoint=127.0.0.1:40123")
    assert spy.startswith("aeron-spy:aeron:udp?")
    assert Channel.parse(spy).params["tether"] == "false"


def test_what_a_channel_says_itself_is_kept() -> None:
    channel = "aeron:ipc?term-length=64k|untethered-resting-timeout=3s|tether=true"
    assert Channel.parse(for_publication(channel)).params.items() >= Channel.parse(channel).params.items()
    assert Channel.parse(for_subscription(channel)).params["tether"] == "true"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ipc",
        "aeron:",
        "aeron:tcp?endpoint=1.2.3.4:5",
        "aeron:udp",
        "aeron:ipc?term-length",
        "aeron:ipc?term-length=",
        "aeron:ipc?term-length=4m|term-length=8m",
        "aeron:ipc?term-lenght=4m",
        "aeron:ipc?term-length=3m",
        "aeron:ipc?term-length=32k",
        "aeron:ipc?term-length=2g",
        "aeron:ipc?term-length=-4m",
        "aeron:ipc?term-length=4mb",
        "aeron:ipc?mtu=1000",
        "aeron:ipc?mtu=32",
        "aeron:ipc?mtu=64k",
        "aeron:ipc?untethered-resting-timeout=soon",
        "aeron:ipc?alias=a b",
        "aeron:ipc?alias=a\n",
        "aeron:ipc?endpoint=127.0.0.1:1",
        "aeron:udp?endpoint=127.0.0.1",
        "aeron:udp?endpoint=:40123",
        "aeron:udp?endpoint=127.0.0.1:70000",
        "aeron:udp?endpoint=127.0.0.1:http",
        "aeron-spy:aeron:ipc?term-length=4m",
        "aeron:ipc?alias=" + "x" * 3000,
    ],
)
def test_bad_channels_are_refused(text: str) -> None:
    with pytest.raises(ChannelError):
        Channel.parse(text)


@pytest.mark.parametrize("channel", [None, 7, b"aeron:ipc", ["aeron:ipc"]])
def test_what_is_not_even_text_is_refused_the_same_way(channel: Any) -> None:
    for make in (for_publication, for_subscription, Channel.parse):
        with pytest.raises(ChannelError, match="is not a channel"):
            make(channel)


def test_a_question_mark_without_parameters_is_harmless() -> None:
    assert str(Channel.parse("aeron:ipc?")) == "aeron:ipc"


def test_an_unknown_parameter_is_named_with_the_known_ones() -> None:
    with pytest.raises(ChannelError, match="'term-lenght'") as caught:
        Channel.parse("aeron:ipc?term-lenght=4m")
    assert "term-length" in (caught.value.hint or "")


def test_spies_can_not_publish() -> None:
    with pytest.raises(ChannelError, match="spies"):
        for_publication("aeron-spy:aeron:udp?endpoint=127.0.0.1:40123")


@pytest.mark.parametrize("stream_id", [2**31, -(2**31) - 1, True, 1.0, "1", None])
def test_stream_ids_are_integers_of_32_bits(stream_id: object) -> None:
    with pytest.raises(ChannelError):
        check_stream_id(stream_id)  # type: ignore[arg-type]
    assert check_stream_id(-(2**31)) == -(2**31)


class TestSizes:
    @pytest.mark.parametrize(
        ("text", "size"),
        [("0", 0), ("100", 100), ("64k", 65_536), ("4m", 4_194_304), ("1G", 2**30), ("2K", 2_048)],
    )
    def test_are_read(self, text: str, size: int) -> None:
        assert parse_size(text) == size

    @pytest.mark.parametrize(
        "text",
        ["", "x", "k", "4 m", " 4m", "4mb", "-1", "1.5m", "0x10", "٤", "4\u212a", "1e3", "9" * 19, "4m\n"],
    )
    def test_that_are_none_are_refused(self, text: str) -> None:
        with pytest.raises(ChannelError, match="k, m, g"):
            parse_size(text)

    @pytest.mark.parametrize(
        ("size", "text"), [(0, "0"), (1_000, "1000"), (65_536, "64k"), (3 * 2**20, "3m"), (2**30, "1g")]
    )
    def test_are_written_as_short_as_possible(self, size: int, text: str) -> None:
        assert format_size(size) == text
        assert parse_size(text) == size


class TestDurations:
    @pytest.mark.parametrize(
        ("text", "ns"), [("5", 5), ("5ns", 5), ("5us", 5_000), ("5MS", 5_000_000), ("5s", 5_000_000_000)]
    )
    def test_are_read(self, text: str, ns: int) -> None:
        assert parse_duration_ns(text) == ns

    @pytest.mark.parametrize("text", ["", "x", "ms", "5 ms", "5m", "\u0665ms", "5m\u017f", "-5ms", "9" * 19])
    def test_that_are_none_are_refused(self, text: str) -> None:
        with pytest.raises(ChannelError, match="is not a duration"):
            parse_duration_ns(text)


@pytest.mark.parametrize("timer_interval_ms", [0, -1, 50, 51, float("nan")])
def test_a_timer_that_could_not_keep_a_time_out_is_refused(timer_interval_ms: float) -> None:
    with pytest.raises(
        ConfigError, match=f"of {timer_interval_ms} must be above 0 and below linger_ms of 50"
    ):
        check_timer_interval(timer_interval_ms, {"linger_ms": 50, "resting_ms": 100})
    with pytest.raises(ConfigError, match="below linger_ms of 50"):
        check_timer_interval(50, {"resting_ms": 100, "linger_ms": 50})


def test_the_standard_timer_keeps_the_standard_time_outs() -> None:
    times = {"window": STANDARD.window_limit_ms, "linger": STANDARD.linger_ms, "resting": STANDARD.resting_ms}
    check_timer_interval(DEFAULT_TIMER_INTERVAL_MS, times)


@given(
    st.dictionaries(
        st.sampled_from(["alias", "tags", "session-id", "linger"]),
        st.text(
            st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="|?"),
            min_size=1,
            max_size=20,
        ),
    )
)
def test_text_and_parts_are_two_forms_of_one_thing(params: dict[str, str]) -> None:
    channel = Channel("ipc", params)
    assert Channel.parse(str(channel)) == channel
    assert hash(Channel.parse(str(channel))) == hash(channel)


@given(st.text(max_size=60))
def test_any_text_is_a_channel_or_an_error(text: str) -> None:
    for candidate in (text, f"aeron:ipc?{text}", f"aeron:udp?endpoint={text}"):
        try:
            parsed = Channel.parse(candidate)
        except ChannelError:
            continue
        assert Channel.parse(str(parsed)) == parsed
