"""A driver that has just started does not answer attaches that a lingering log replays (decision L11)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tensor_pool import wire
from tensor_pool.config import ShmSection, StreamsSection
from tensor_pool.driver.agent import DriverAgent
from tensor_pool.driver.config import DriverSection
from tensor_pool.runtime import AgentInvoker, FakeClock
from tensor_pool.transport.memory import MemoryBus
from tensor_pool.wire.messages import (
    DriverStatus,
    GetDriverStatus,
    PublishMode,
    ResponseCode,
    Role,
    ShmAttachRequest,
    ShmAttachResponse,
)

if TYPE_CHECKING:
    from pathlib import Path

WINDOW_MS = 200


def attach(client_id: int) -> bytes:
    return wire.encode(
        ShmAttachRequest(
            correlation_id=client_id,
            stream_id=10_000,
            client_id=client_id,
            role=Role.PRODUCER,
            expected_layout_version=1,
            max_dims=8,
            publish_mode=PublishMode.EXISTING_OR_CREATE,
        )
    )


@pytest.mark.parametrize("after_ms", [0, WINDOW_MS - 1])
def test_attaches_of_the_first_moments_are_not_heard(base: Path, after_ms: int) -> None:
    bus, clock = MemoryBus(), FakeClock()
    client = bus.client()
    heard, control = client.add_subscription("aeron:ipc", 1000), client.add_publication("aeron:ipc", 1000)

    def answers() -> list[wire.Message]:
        decoded = [wire.decode(message) for message in heard.receive()]
        return [message for message in decoded if isinstance(message, ShmAttachResponse | DriverStatus)]

    agent = DriverAgent(
        bus.client(),
        DriverSection(),
        StreamsSection(),
        ShmSection(shm_base_dir=str(base)),
        clock=clock,
        replay_window_ns=WINDOW_MS * 1_000_000,
    )
    with AgentInvoker(agent, clock=clock) as driver:
        clock.advance(ms=after_ms)
        control.offer(attach(client_id=1))  # somebody who died with the last driver
        control.offer(wire.encode(GetDriverStatus(correlation_id=5, client_id=9)))
        driver.invoke()
        (status,) = answers()
        assert isinstance(status, DriverStatus), "other questions are answered"
        assert status.producer_count == 0

        clock.advance(ms=WINDOW_MS - after_ms)
        control.offer(attach(client_id=2))  # somebody who lives, and asks again
        driver.invoke()
        (granted,) = answers()
        assert isinstance(granted, ShmAttachResponse)
        assert granted.code is ResponseCode.OK
