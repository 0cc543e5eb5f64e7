"""Metadata and progress of a bridged stream: under local numbers, and never more than is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tensor_pool as tp
from bridges import DEST, SOURCE, is_ready, publications, ring_file, slot_in
from false_sender import EPOCH, FalseSender, pieces
from pool_hosts import Ear
from tensor_pool import wire
from tensor_pool.host.bridge import BridgeService
from tensor_pool.testing import Cluster, wait_until
from tensor_pool.transport import AeronClient
from tensor_pool.wire.messages import (
    DataSourceAnnounce,
    DataSourceMeta,
    FrameDescriptor,
    FrameProgress,
    FrameProgressState,
)

Start = Callable[..., BridgeService]
CONTROL_AT_DEST = 1541


class TestMetadata:
    @pytest.fixture
    def out(self, pool: tp.Pool) -> Iterator[tp.Producer]:
        with pool.producer(
            SOURCE, name="camera", dtype="uint8", shape=(4,), slots=16, metadata={"gain": 7}
        ) as out:
            yield out

    @pytest.mark.parametrize(
        "metadata_stream_id",
        [
            pytest.param(77, marks=pytest.mark.req("BRG-7.1-4")),
            pytest.param(0, marks=pytest.mark.req("BRG-7.1-5")),
        ],
    )
    @pytest.mark.req("BRG-7.1-1", "BRG-7.1-3", "BRG-7.1-6")
    def test_is_told_on_the_metadata_stream_of_the_host(
        self, host: Cluster, out: tp.Producer, bridge: Start, settings: Any, metadata_stream_id: int
    ) -> None:
        settings["bridge.mappings"][0]["metadata_stream_id"] = metadata_stream_id
        expected = metadata_stream_id or DEST
        out.metadata["gain"] = 8
        with Ear(host, ["metadata"]) as ear:
            running = bridge()
            wait_until(lambda: is_ready(running))
            version = out.metadata.meta_version
            announce = ear.await_one(DataSourceAnnounce, stream_id=expected, meta_version=version)
            meta = ear.await_one(DataSourceMeta, stream_id=expected, meta_version=version)
            at_home = ear.await_one(DataSourceMeta, stream_id=SOURCE, meta_version=version)
        assert (announce.name, announce.epoch) == ("copy", running.stats[1].received.epoch)
        assert meta.attributes == at_home.attributes

    def test_is_found_under_the_name_that_the_mapping_gives(
        self, host: Cluster, out: tp.Producer, bridge: Start, pool: tp.Pool
    ) -> None:
        running = bridge()
        wait_until(lambda: is_ready(running))
        (found,) = wait_until(lambda: tp.discover(name="copy", config=host.config))
        assert found.stream_id == DEST
        assert [stream.name for stream in pool.streams() if stream.stream_id == DEST] == ["copy"]

    def test_says_what_the_frames_are_like(self, out: tp.Producer, bridge: Start, pool: tp.Pool) -> None:
        running = bridge()
        wait_until(lambda: is_ready(running))

        def listed() -> list[tuple[str, tuple[int, ...]]]:
            return [(each.dtype, each.shape) for each in pool.streams() if each.stream_id == DEST]

        wait_until(lambda: listed() == [("uint8", (4,))])

    @pytest.mark.req("BRG-7.1-7")
    @pytest.mark.parametrize(
        "keys",
        [
            pytest.param({"metadata_channel": ""}, id="no-channel"),
            pytest.param({"forward_metadata": False}, id="not-wanted", marks=pytest.mark.req("BRG-7.1-9")),
        ],
    )
    def test_stays_at_home(
        self, pool: tp.Pool, host: Cluster, out: tp.Producer, bridge: Start, keys: dict[str, Any]
    ) -> None:
        before = publications(host.aeron_dir)
        with Ear(host, ["metadata"]) as ear:
            running = bridge(**keys)
            wait_until(lambda: is_ready(running))
            inp = pool.consumer(DEST)
            told = len(ear.all_of(DataSourceMeta, stream_id=SOURCE))
            wait_until(lambda: len(ear.all_of(DataSourceMeta, stream_id=SOURCE)) > told + 1)
            out.publish(np.zeros(4, np.uint8))
            assert inp.poll(timeout=5.0) is not None
            assert ear.all_of(DataSourceMeta, stream_id=DEST) == []
        made = publications(host.aeron_dir) - before
        assert {stream_id for channel, stream_id in made if channel.startswith("aeron:udp")} == {3000, 3001}


class TestProgress:
    """Of a frame of four chunks, three of which have come: 300 bytes of 350."""

    SEQ = 13

    @pytest.fixture
    def heard(self, pool: tp.Pool) -> Iterator[Callable[[], list[wire.Message]]]:
        messages: list[wire.Message] = []
        with AeronClient.connect(pool.aeron_dir) as client:
            subscription = client.add_subscription("aeron:ipc", CONTROL_AT_DEST)

            def take() -> list[wire.Message]:
                messages.extend(wire.decode(data) for data in subscription.receive())
                return messages

            yield take

    @pytest.fixture
    def sender(self, host: Cluster, settings: dict[str, Any]) -> Iterator[FalseSender]:
        settings["bridge.role"] = "receiver"
        settings["driver.profiles"] = {"few": {"nslots": 4, "pools": ["4096"]}}
        settings["bridge.mappings"][0] |= {
            "profile": "few",
            "source_control_stream_id": 1540,
            "dest_control_stream_id": CONTROL_AT_DEST,
        }
        with FalseSender(host.aeron_dir, settings) as sender:
            yield sender

    def begin(self, running: BridgeService, sender: FalseSender) -> Any:
        """Sends the announce and three chunks; what was received."""
        sender.announce()
        wait_until(lambda: is_ready(running))
        sender.send(pieces(self.SEQ)[:3])
        wait_until(lambda: running.stats[0].received.in_flight == 1)
        return running.stats[0].received

    def progress(self, filled: int, **fields: Any) -> FrameProgress:
        given = {"stream_id": SOURCE, "epoch": EPOCH, "seq": self.SEQ, "state": FrameProgressState.PROGRESS}
        return FrameProgress(payload_bytes_filled=filled, **{**given, **fields})

    @pytest.mark.req("BRG-9-3", "BRG-9-6", "BRG-9-7", "BRG-9-8", "BRG-9-9")
    def test_is_told_for_the_local_stream(
        self, host: Cluster, bridge: Start, sender: FalseSender, heard: Callable[[], list[wire.Message]]
    ) -> None:
        running = bridge(forward_progress=True, assembly_timeout_ms=10_000)
        local = self.begin(running, sender)
        for filled, state in ((0, "STARTED"), (200, "PROGRESS"), (350, "PROGRESS")):
            sender.say(self.progress(filled, state=FrameProgressState[state]))
        wait_until(lambda: len(heard()) == 3)
        assert [(each.state.name, each.payload_bytes_filled) for each in heard()] == [
            ("STARTED", 0),
            ("PROGRESS", 200),
            ("PROGRESS", 300),  # no more of it has come (decision R8)
        ]
        assert {(each.stream_id, each.epoch, each.seq) for each in heard()} == {(DEST, local.epoch, self.SEQ)}
        # The frame that it names is being written at its place in the local ring, which has other slots.
        slot = slot_in(ring_file(host, DEST, local.epoch), self.SEQ % 4)
        assert slot.header.seq_commit == 2 * self.SEQ

    @pytest.mark.req("BRG-9-10")
    def test_of_other_streams_and_epochs_is_dropped(
        self, bridge: Start, sender: FalseSender, heard: Callable[[], list[wire.Message]]
    ) -> None:
        running = bridge(forward_progress=True, assembly_timeout_ms=10_000)
        self.begin(running, sender)
        for other in ({"stream_id": 10_001}, {"stream_id": DEST}, {"epoch": EPOCH - 1}, {"epoch": EPOCH + 1}):
            sender.say(self.progress(100, **other))
        sender.say(self.progress(101))
        wait_until(heard)
        assert [each.payload_bytes_filled for each in heard()] == [101]

    @pytest.mark.req("BRG-9-13")
    def test_is_dropped_where_nobody_asked_for_it(
        self, host: Cluster, bridge: Start, settings: Any, sender: FalseSender, heard: Callable[[], list[Any]]
    ) -> None:
        settings["bridge.mappings"][0]["dest_control_stream_id"] = 0
        with pytest.raises(tp.ConfigError, match="dest_control_stream_id 0"):
            bridge(forward_progress=True)
        running = bridge(assembly_timeout_ms=10_000)  # without it, from a sender that forwards all the same
        self.begin(running, sender)
        with Ear(host, ["control", "descriptor"]) as ear:
            sender.say(self.progress(100))
            sender.send(pieces(self.SEQ)[3:])
            ear.await_one(FrameDescriptor, stream_id=DEST, seq=self.SEQ)
            assert ear.all_of(FrameProgress) == heard() == []

    @pytest.mark.req("BRG-9-15")
    def test_delivers_nothing(
        self, pool: tp.Pool, host: Cluster, bridge: Start, sender: FalseSender, heard: Callable[[], list[Any]]
    ) -> None:
        running = bridge(forward_progress=True, assembly_timeout_ms=10_000)
        self.begin(running, sender)
        with Ear(host, ["descriptor"]) as ear:
            inp = pool.consumer(DEST)
            wait_until(lambda: inp.mapped)
            sender.say(self.progress(350, state=FrameProgressState.COMPLETE))
            wait_until(heard)
            assert inp.poll(timeout=0.1) is None
            assert ear.all_of(FrameDescriptor, stream_id=DEST) == []
            sender.send(pieces(self.SEQ)[3:])
            frame = inp.poll(timeout=5.0)
        assert frame is not None
        assert frame.seq == self.SEQ
