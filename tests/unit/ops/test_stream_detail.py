"""Everything about one stream, from a driver with a script and messages in memory."""

from typing import Any

import numpy as np
import pytest

from scripted_driver import ScriptedDriver, lease, stream
from tensor_pool import wire
from tensor_pool.config import StreamsSection
from tensor_pool.errors import NoStreamError
from tensor_pool.ops.listening import Listener, qos_listener
from tensor_pool.ops.model import client_rows, have_reported, read_clients, read_leases, read_streams
from tensor_pool.ops.stream_detail import StreamDetail, StreamHeard, plain_value, read_detail
from tensor_pool.pool.admin import AdminClient
from tensor_pool.pool.qos_board import QosBoard
from tensor_pool.runtime import FakeClock
from tensor_pool.transport.memory import MemoryBus
from tensor_pool.wire.messages import (
    ClockDomain,
    DataSourceAnnounce,
    DataSourceMeta,
    MetaAttribute,
    Mode,
    PayloadPool,
    QosConsumer,
    QosProducer,
    Role,
    ShmPoolAnnounce,
)

S = 1_000_000_000
STREAM, EPOCH = 10000, 7


def announce(epoch: int = EPOCH, stream_id: int = STREAM) -> ShmPoolAnnounce:
    return ShmPoolAnnounce(
        stream_id=stream_id,
        producer_id=101,
        epoch=epoch,
        announce_timestamp_ns=1,
        announce_clock_domain=ClockDomain.MONOTONIC,
        layout_version=1,
        header_nslots=8,
        header_slot_bytes=256,
        header_region_uri="shm:file?path=/dev/shm/header.ring",
        payload_pools=(PayloadPool(1, 8, 4096, "shm:file?path=/dev/shm/1.pool"),),
    )


class Scene:
    """A driver, a listener, and everybody who reports."""

    def __init__(self) -> None:
        bus, self.clock = MemoryBus(), FakeClock()
        self.began_ns = self.clock.monotonic_ns()
        self.driver = ScriptedDriver(bus.client())
        self.driver.streams = [stream(STREAM, "camera-1"), stream(10001, "camera-2")]
        self.driver.leases = [lease(2), lease(1, role=Role.PRODUCER)]
        self.admin = AdminClient(bus.client(), StreamsSection(), pause=self.driver.do_work)
        self.listener, self.board = qos_listener(
            bus.client(),
            StreamsSection(),
            "announce",
            "metadata",
            clock=self.clock,
            pause=lambda: self.clock.advance(ns=S // 20),
        )
        self.places = StreamsSection()
        self._bus = bus

    def say(self, *messages: wire.Message) -> None:
        kinds = {
            ShmPoolAnnounce: (self.places.announce_channel, self.places.announce_stream_id),
            QosProducer: (self.places.qos_channel, self.places.qos_stream_id),
            QosConsumer: (self.places.qos_channel, self.places.qos_stream_id),
            DataSourceAnnounce: (self.places.metadata_channel, self.places.metadata_stream_id),
            DataSourceMeta: (self.places.metadata_channel, self.places.metadata_stream_id),
        }
        for message in messages:
            publication = self._bus.client().add_publication(*kinds[type(message)])
            publication.offer(wire.encode(message))

    @property
    def waited_ns(self) -> int:
        return self.clock.monotonic_ns() - self.began_ns

    def read(self, wanted: str = "camera-1") -> StreamDetail:
        return read_detail(self.admin, self.listener, self.board, wanted, listen_s=1.0)


@pytest.fixture
def scene() -> Scene:
    return Scene()


EVERYTHING = (
    announce(),
    DataSourceAnnounce(
        stream_id=STREAM, producer_id=101, epoch=EPOCH, meta_version=3, name="camera-1", summary=""
    ),
    DataSourceMeta(
        STREAM,
        3,
        timestamp_ns=0,
        attributes=(
            MetaAttribute("clock.domain", "text/plain", b"monotonic"),
            MetaAttribute("exposure_ms", "application/json", b"12.5"),
        ),
    ),
    QosProducer(STREAM, 101, epoch=EPOCH, current_seq=500),
    QosConsumer(STREAM, 102, EPOCH, 490, 4, 1, Mode.STREAM),
)


def test_all_there_is_to_know(scene: Scene) -> None:
    scene.say(*EVERYTHING)
    row = scene.read().as_row()

    assert scene.waited_ns == 0, "it does not wait for more than it needs"
    assert (row["name"], row["stream_id"], row["drops"]) == ("camera-1", STREAM, 5)
    assert row["pools"] == [{"pool_id": 1, "slots": 8, "stride_bytes": 4096}]
    assert (row["meta_version"], row["metadata"]["exposure_ms"]) == (3, 12.5)
    assert row["clock"]["domain"] == "monotonic"
    producer, consumer = row["clients"]
    assert (producer["role"], producer["lag_frames"]) == ("producer", None)
    assert (consumer["client_id"], consumer["lag_frames"]) == (102, 10)
    assert (consumer["drops_gap"], consumer["drops_late"], consumer["mode"]) == (4, 1, "stream")


def test_what_nobody_says_is_not_known(scene: Scene) -> None:
    row = scene.read("10000").as_row()

    assert scene.waited_ns == S, "it waits as long as it was told"
    assert (row["pools"], row["metadata"], row["meta_version"], row["drops"]) == (None, {}, 0, None)
    assert [client["drops_gap"] for client in row["clients"]] == [None, None]


def test_a_stream_without_a_producer_has_nothing_to_wait_for(scene: Scene) -> None:
    scene.driver.leases = []
    assert scene.read().clients == []
    assert scene.waited_ns == 0


def test_an_unknown_stream(scene: Scene) -> None:
    with pytest.raises(NoStreamError) as refused:
        scene.read("camera-3")
    assert "camera-1" in refused.value.hint


def test_a_lingering_announce_of_an_earlier_epoch_changes_nothing() -> None:
    heard = StreamHeard(STREAM)
    for message in (announce(), announce(epoch=EPOCH - 1), announce(epoch=99, stream_id=1)):
        heard.on_announce(message, 0)
    assert heard.announce == announce()
    assert not heard.is_complete


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b"\x00\xff", "0x00ff"),
        (bytes(100), "100 bytes"),
        (np.arange(3), [0, 1, 2]),
        (np.zeros((20, 20), "uint8"), "array of uint8 20x20"),
        ({"a": [1]}, {"a": [1]}),
        (None, None),
    ],
)
def test_values_of_metadata(value: Any, shown: Any) -> None:
    assert plain_value(value) == shown


class TestRowsWithReports:
    def test_clients_get_lag_and_drops(self, scene: Scene) -> None:
        scene.say(*EVERYTHING)
        scene.listener.poll()
        producer, consumer = read_clients(scene.admin, scene.board)

        assert (producer.lag_frames, producer.drops_gap) == (None, None)
        assert (consumer.lag_frames, consumer.drops_gap, consumer.drops_late) == (10, 4, 1)

    def test_a_client_of_several_streams_adds_up(self, scene: Scene) -> None:
        scene.driver.leases = [lease(2), lease(3, 10001, client_id=102)]
        for stream_id, gap in ((STREAM, 3), (10001, 4)):
            scene.board.on_consumer(QosConsumer(stream_id, 102, EPOCH, 1, gap, 1, Mode.STREAM), 0)
        (row,) = client_rows(read_leases(scene.admin), scene.board)
        assert (row.drops_gap, row.drops_late, row.lag_frames) == (7, 2, None)

    def test_a_measured_rate_goes_before_the_drivers(self, scene: Scene) -> None:
        for second, seq in enumerate((100, 110)):
            scene.board.on_producer(QosProducer(STREAM, 101, epoch=EPOCH, current_seq=seq), second * S)
        first, second = read_streams(scene.admin, scene.board)
        assert (first.rate_hz, first.bytes_per_s) == (10.0, 10 * 480 * 640 * 2)
        assert second.rate_hz == 60.0

    def test_whether_everybody_has_reported(self, scene: Scene) -> None:
        held = read_leases(scene.admin)
        assert not have_reported(held, scene.board)
        scene.board.on_producer(QosProducer(STREAM, 101, epoch=EPOCH, current_seq=1), 0)
        assert not have_reported(held, scene.board)
        scene.board.on_consumer(QosConsumer(STREAM, 102, EPOCH, 1, 0, 0, Mode.STREAM), 0)
        assert have_reported(held, scene.board)


def test_listeners_share_a_stream_where_the_configuration_does() -> None:
    """A deployment with everything on one channel and id is listened to once."""
    one = StreamsSection(qos_stream_id=1000, metadata_stream_id=1000, announce_stream_id=1000)
    bus = MemoryBus()
    listener, board = Listener(bus.client(), one, ["qos", "metadata", "announce"]), QosBoard()
    listener.on(QosProducer, board.on_producer)
    publication = bus.client().add_publication("aeron:ipc", 1000)
    publication.offer(wire.encode(QosProducer(1, 7, epoch=5, current_seq=42)))
    assert listener.poll() == 1
