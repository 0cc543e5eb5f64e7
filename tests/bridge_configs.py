"""Configurations of a bridge, good ones and what is said about bad ones."""

from __future__ import annotations

from typing import Any

import pytest

from tensor_pool.bridging.config import BridgeMapping, BridgeSection, check_bridge
from tensor_pool.config import Config, load_config
from tensor_pool.errors import ConfigError

GROUP = "aeron:udp?endpoint=239.1.2.3:40000|interface=127.0.0.1"
CONTROL = "aeron:udp?endpoint=239.1.2.3:40001|interface=127.0.0.1"
METADATA = "aeron:udp?endpoint=239.1.2.3:40002|interface=127.0.0.1"
HOST_B = "aeron:udp?endpoint=10.0.0.2:40000"
HOST_C = "aeron:udp?endpoint=10.0.0.3:40000"
CONTROL_B = "aeron:udp?endpoint=10.0.0.2:40001"
CONTROL_C = "aeron:udp?endpoint=10.0.0.3:40001"
NAMED = {"instance_id": "b1", "payload_channel": GROUP, "control_channel": CONTROL}
ONE = BridgeMapping(10_000, 50_000)


def bridge(*mappings: BridgeMapping, **keys: Any) -> BridgeSection:
    return BridgeSection(**{**NAMED, "mappings": mappings or (ONE,), **keys})


def config_of(*mappings: BridgeMapping, **keys: Any) -> Config:
    """A whole configuration; keys of the bridge by name, others by path with __ for the dot."""
    values = {**NAMED, "mappings": mappings or (ONE,), **keys}
    paths = {
        name.replace("__", ".") if "__" in name else f"bridge.{name}": value for name, value in values.items()
    }
    return load_config(overrides=paths, environ={}, search=False)


def refusal(*mappings: BridgeMapping, **keys: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        bridge(*mappings, **keys)
    assert caught.value.hint
    return caught.value.message


def refusal_beside(*mappings: BridgeMapping, **keys: Any) -> str:
    """What `check_bridge` says about a section that is fine by itself."""
    config = config_of(*mappings, **keys)
    with pytest.raises(ConfigError) as caught:
        check_bridge(config)
    assert caught.value.hint
    return caught.value.message
