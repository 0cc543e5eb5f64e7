"""Which Aeron stream a fallback means, and what is none."""

from __future__ import annotations

import pytest

from tensor_pool.config import load_config
from tensor_pool.errors import ChannelError, ConfigError
from tensor_pool.pool.config import ClientSection
from tensor_pool.pool.fallback_uri import ChunkPlace, parse_fallback_uri


@pytest.mark.parametrize(
    ("uri", "place"),
    [
        ("aeron:udp?endpoint=a:1", ("aeron:udp?endpoint=a:1", 3000)),
        ("aeron:udp?endpoint=a:1|stream-id=7", ("aeron:udp?endpoint=a:1", 7)),
        ("aeron:udp?stream-id=7|endpoint=224.0.1.1:1|mtu=8k", ("aeron:udp?endpoint=224.0.1.1:1|mtu=8k", 7)),
        ("aeron:ipc", ("aeron:ipc", 3000)),
    ],
)
def test_a_channel_and_maybe_a_stream(uri: str, place: tuple[str, int]) -> None:
    assert parse_fallback_uri(uri, default_stream_id=3000) == ChunkPlace(*place)


@pytest.mark.req("WIRE-10.1.3-3")
@pytest.mark.parametrize(
    "uri",
    [
        "bridge://7",
        "carrier-pigeon",
        "aeron-spy:aeron:udp?endpoint=a:1",
        "AERON:udp?endpoint=a:1",
        "aeron:",
        "aeron:udp",
        "aeron:udp?endpoint=nowhere",
        "aeron:udp?endpoint=a:1|made-up=1",
        "aeron:udp?endpoint=a:1|stream-id=0",
        "aeron:udp?endpoint=a:1|stream-id=-1",
        "aeron:udp?endpoint=a:1|stream-id=2147483648",
        "aeron:udp?endpoint=a:1|stream-id=x",
        "aeron:udp?endpoint=a:1|stream-id=" + "9" * 1_000,
        "aeron:udp?endpoint=" + "a" * 10_000,
        "x" * 10_000,
    ],
)
def test_what_is_no_fallback_is_refused_in_few_words(uri: str) -> None:
    with pytest.raises(ChannelError) as caught:
        parse_fallback_uri(uri, default_stream_id=3000)
    assert len(str(caught.value)) < 1_500


def test_the_configuration_takes_nothing_else() -> None:
    config = load_config(
        overrides={"client.fallback_uri": "aeron:udp?endpoint=a:1|stream-id=7"}, environ={}, search=False
    )
    assert config[ClientSection].fallback_uri.endswith("=7")
    with pytest.raises(ConfigError, match=r"client\.fallback_uri"):
        load_config(overrides={"client.fallback_uri": "bridge://7"}, environ={}, search=False)
