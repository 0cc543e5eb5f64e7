"""From the numbers of leases to processes, by what a media driver knows of its clients."""

from __future__ import annotations

import os
import struct

import pytest

from tensor_pool import wire
from tensor_pool.config import StreamsSection
from tensor_pool.host.client_name import client_name, read_client_name
from tensor_pool.ops.holders import Holder, find_holders
from tensor_pool.ops.listening import qos_listener
from tensor_pool.transport import CounterReading
from tensor_pool.transport.memory import MemoryBus
from tensor_pool.wire.messages import Mode, QosConsumer, QosProducer

QOS = 1200


def heartbeat(client: int, name: str) -> CounterReading:
    label = f"client-heartbeat: id={client} name={name} version=1.54.0 commit=abc"
    return CounterReading(client, 11, 0, client, client, bytes(112), label)


def publication(client: int, session_id: int, stream_id: int = QOS) -> CounterReading:
    key = struct.pack("<qii", 1000 + session_id, session_id, stream_id).ljust(112, b"\0")
    return CounterReading(100 + session_id, 12, 0, 1000 + session_id, client, key, "pub-pos")


def test_only_who_reports_and_tells_is_known() -> None:
    counters = [
        *(
            heartbeat(7, "camera tensor-pool 4711"),
            heartbeat(8, "other maker"),
            heartbeat(9, "tensor-pool 12"),
        ),
        *(publication(7, 70), publication(8, 80), publication(9, 90, stream_id=1000)),
    ]
    reporters = {1: 70, 2: 80, 3: 90, 4: 70, 5: 55}
    found = find_holders(reporters, counters, qos_stream_id=QOS)
    assert found == {1: Holder(4711, "camera"), 4: Holder(4711, "camera")}


def test_reports_tell_the_sessions_of_their_senders() -> None:
    bus = MemoryBus()
    listener, _ = qos_listener(bus.client(), StreamsSection())
    publications = [bus.client().add_publication("aeron:ipc", QOS) for _ in range(2)]
    publications[0].offer(wire.encode(QosProducer(1, 7, epoch=5, current_seq=42)))
    publications[1].offer(wire.encode(QosConsumer(1, 9, 5, 140, 3, 1, Mode.STREAM)))
    listener.poll()
    assert listener.reporters == {7: publications[0].session_id, 9: publications[1].session_id}


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (None, None),
        ("", None),
        ("front camera", "front camera"),
        ("tensor-pool 1 version=2", "tensor-pool 1 version=2"),
        ("x" * 100, "x" * (99 - len(f"tensor-pool {os.getpid()}"))),
        ("\x1b[2Jgone", "'\\x1b[2Jgone'"),
    ],
)
def test_a_name_is_found_again(name: str | None, shown: str | None) -> None:
    told = client_name(name)
    assert len(told.encode()) <= 100
    assert read_client_name(heartbeat(7, told).label) == (os.getpid(), shown)


def test_half_a_letter_is_left_out() -> None:
    told = client_name("é" * 50)
    assert told.startswith("éé")
    assert len(told.encode()) <= 100


def test_what_aeron_would_refuse_is_refused_still() -> None:
    assert client_name("x" * 101) == "x" * 101
