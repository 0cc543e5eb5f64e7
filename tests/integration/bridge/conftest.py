"""A host whose bridge leads back to itself: both ends of a mapping in one process, over UDP on loopback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tensor_pool as tp
from bridges import DEST, SOURCE, free_endpoints
from pool_hosts import quick_host
from tensor_pool.config import load_config
from tensor_pool.host.bridge import BridgeService
from tensor_pool.testing import Cluster


@pytest.fixture(scope="module")
def host() -> Iterator[Cluster]:
    with quick_host() as cluster:
        yield cluster


@pytest.fixture
def pool(host: Cluster) -> Iterator[tp.Pool]:
    with host.connect() as pool:
        yield pool


@pytest.fixture
def settings() -> dict[str, Any]:
    """Of a bridge with one mapping, and channels that no other test has."""
    payload, control, metadata = (f"aeron:udp?endpoint={each}" for each in free_endpoints(3))
    return {
        "bridge.instance_id": "test",
        "bridge.payload_channel": payload + "|mtu=8192",
        "bridge.control_channel": control,
        "bridge.metadata_channel": metadata,
        "bridge.mappings": [{"source_stream_id": SOURCE, "dest_stream_id": DEST, "name": "copy"}],
    }


@pytest.fixture
def bridge(host: Cluster, settings: dict[str, Any]) -> Iterator[Callable[..., BridgeService]]:
    """Starts a bridge; keyword arguments are more settings."""
    started: list[BridgeService] = []

    def start(**more: Any) -> BridgeService:
        given = {**host.settings, **settings, **{f"bridge.{key}": value for key, value in more.items()}}
        config = load_config(overrides=given, environ={}, search=False)
        started.append(BridgeService(config))
        return started[-1]

    yield start
    for each in started:
        each.close()
