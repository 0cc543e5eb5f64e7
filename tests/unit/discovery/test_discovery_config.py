"""What the section `discovery` refuses, and that the text says which key it is about."""

from __future__ import annotations

from typing import Any

import pytest

from tensor_pool.config import load_config
from tensor_pool.discovery.config import DiscoverySection
from tensor_pool.errors import ConfigError

FEED = "aeron:udp?endpoint=127.0.0.1:40124"


def section(**values: Any) -> DiscoverySection:
    overrides = {f"discovery.{key}": value for key, value in values.items()}
    return load_config(overrides=overrides, environ={}, search=False)[DiscoverySection]


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("access", [{"clients": [[9, 1]], "names": ["*"]}], "clients 9 to 1"),
        ("access", [{"clients": [[-1, 1]], "names": ["*"]}], "clients -1 to 1"),
        ("access", [{"clients": [[1, 9]]}], "neither names nor tags"),
        ("sources", [{"channel": FEED, "stream_id": 0}], "stream_id"),
        ("sources", [{"channel": ""}], "a source has an empty channel"),
        ("sources", [{"channel": FEED}, {"channel": f"{FEED}|mtu=8192"}], "twice"),
        ("providers", [{"channel": ""}], "a provider has an empty channel"),
        ("providers", [{"channel": "nonsense"}], "nonsense"),
        ("providers", [{"channel": FEED, "stream_id": 0}], "stream_id"),
        ("registries", [{"channel": ""}], "a provider has an empty channel"),
    ],
)
def test_what_makes_no_sense_is_refused(key: str, value: Any, says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        section(**{key: value})
    assert f"discovery.{key}" in str(raised.value)
    assert says in str(raised.value)


def test_sources_may_share_a_channel_with_streams_of_their_own() -> None:
    assert len(section(sources=[{"channel": FEED}, {"channel": FEED, "stream_id": 7002}]).sources) == 2
