"""Descriptors that arrive over Aeron while Python does something else."""

from __future__ import annotations

import gc
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from forking import forks
from tensor_pool import _native
from tensor_pool._native import FrameDescriptor
from tensor_pool.errors import ClosedError, ForkedProcessError
from tensor_pool.transport import AeronClient, AeronPublication, Drain, EmbeddedMediaDriver

IPC = "aeron:ipc?term-length=64k|tether=true"
DESCRIPTORS = 1100
STREAM = 10_001
Eventually = Callable[[Callable[[], object]], None]


@pytest.fixture
def drain(client: AeronClient) -> Iterator[Drain]:
    with Drain(client) as drain:
        yield drain


@pytest.fixture
def feed(drain: Drain) -> _native.DescriptorFeed:
    return drain.descriptors(IPC, DESCRIPTORS)


@pytest.fixture
def publication(client: AeronClient, feed: _native.DescriptorFeed) -> AeronPublication:
    publication = client.add_publication(IPC, DESCRIPTORS)
    assert publication.wait_connected(20_000)
    return publication


def describe(
    publication: AeronPublication, *seqs: int, epoch: int = 5, stream_id: int = STREAM
) -> list[FrameDescriptor]:
    sent = []
    for seq in seqs:
        sent.append(
            FrameDescriptor(
                stream_id=stream_id,
                epoch=epoch,
                seq=seq,
                timestamp_ns=seq * 10,
                meta_version=3,
                trace_id=seq + 1,
            )
        )
        while not publication.offer(sent[-1].encode()):
            time.sleep(0.000_1)
    return sent


def test_a_descriptor_is_found_the_moment_it_is_there(drain: Drain, feed, publication) -> None:
    log = feed.follow(STREAM, 64)
    log.set_epoch(5)
    for seq in range(200):
        (sent,) = describe(publication, seq)
        assert log.find(5, seq) == sent
        assert log.newest == sent
    assert log.find(5, 100) is None, "only the newest 64 are kept"
    assert (log.received, log.regressions, log.stream_id) == (200, 0, STREAM)
    assert not drain.wait(0.0), "descriptors wake nobody"


def test_the_drain_takes_them_while_nobody_looks(feed, publication) -> None:
    log = feed.follow(STREAM, 1_000)
    # Far more than the log of the stream holds, tethered: without the drain this would block for ever.
    describe(publication, *range(5_000))
    assert log.find(5, 4_999).seq == 4_999
    assert log.received == 5_000
    assert [log.after(5, seq).seq for seq in (None, 4_100, 4_998)] == [4_000, 4_101, 4_999]
    assert log.after(5, 4_999) is None


def test_streams_on_one_descriptor_stream_do_not_disturb_each_other(client, feed, publication) -> None:
    other = client.add_publication(IPC, DESCRIPTORS)
    assert other.wait_connected(20_000)
    logs = [feed.follow(STREAM, 100), feed.follow(STREAM + 1, 100)]
    for seq in range(50):
        describe(publication, seq)
        describe(other, 1_000 + 2 * seq, epoch=9, stream_id=STREAM + 1)
        describe(other, seq, stream_id=STREAM + 2)
    assert logs[0].find(5, 49) is not None
    assert logs[1].find(9, 1_098) is not None
    for log in logs:
        assert (log.received, log.regressions, log.lower_epochs, log.higher_epochs) == (50, 0, 0, 0)
    assert feed.ignored == 50
    assert logs[0].find(9, 1_000) is None


def test_epochs_are_told_apart(feed, publication) -> None:
    log = feed.follow(STREAM, 10)
    describe(publication, 7, epoch=4)
    describe(publication, 0, epoch=5)
    assert log.find(5, 0) is not None, "kept before anybody said which epoch"
    log.set_epoch(5)
    assert log.find(5, 0) is not None
    describe(publication, 8, epoch=4)
    describe(publication, 0, epoch=6)
    assert log.find(6, 0) is None
    assert (log.lower_epochs, log.higher_epochs, log.highest_epoch) == (1, 1, 6)
    log.set_epoch(6)
    assert log.newest is None
    describe(publication, 1, epoch=6)
    assert log.find(6, 1).trace_id == 2


def test_numbers_that_go_back_are_regressions_only_within_a_publication(client, feed, publication) -> None:
    log = feed.follow(STREAM, 10)
    log.set_epoch(5)
    describe(publication, 5, 6, 6, 7)
    restarted = client.add_publication(IPC, DESCRIPTORS)
    assert restarted.wait_connected(20_000)
    describe(restarted, 3, 4)
    assert log.find(5, 4) is not None
    assert log.regressions == 0
    describe(restarted, 2)
    assert log.find(5, 2) is not None
    assert log.regressions == 1


def test_two_consumers_of_one_process_may_follow_one_stream(feed, publication) -> None:
    logs = [feed.follow(STREAM, 10) for _ in range(2)]
    for log, epoch in zip(logs, (5, 6), strict=True):
        log.set_epoch(epoch)
        describe(publication, 1, epoch=epoch)
    assert [log.find(epoch, 1) is not None for log, epoch in zip(logs, (5, 6), strict=True)] == [True, True]
    logs[0].close()
    logs[0].close()
    assert logs[0].closed
    for use in (lambda: logs[0].find(5, 1), lambda: logs[0].received, lambda: logs[0].set_epoch(1)):
        with pytest.raises(ClosedError, match="descriptor log"):
            use()
    describe(publication, 2, epoch=6)
    assert logs[1].find(6, 2) is not None


def test_a_writer_of_a_ring_is_heard(feed, publication) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        address = _native.create_ring(directory, stream_id=STREAM, epoch=5, nslots=8, pools=[(1, 4096)])
        log = feed.follow(STREAM, 8)
        log.set_epoch(5)
        with pytest.raises(TypeError, match="descriptors is a str"):
            _native.RingWriter(address, base_dirs=[directory], descriptors="aeron:ipc")
        with _native.RingWriter(address, base_dirs=[directory], descriptors=publication.native) as writer:
            writer.publish(b"x")
        with (
            _native.RingWriter(
                address, base_dirs=[Path(directory)], descriptors=publication, stamp_descriptors=True
            ) as writer,
            _native.RingReader(address, base_dirs=[Path(directory)]) as reader,
        ):
            assert reader.poll().seq == 0
            for number in range(1, 20):
                writer.publish(np.full(10, number, "u1"), trace_id=100 + number)
                frame = reader.poll()
                assert log.find(frame.epoch, frame.seq).trace_id == 100 + number


@pytest.mark.quiet
def test_finding_is_quick(feed, publication) -> None:
    log = feed.follow(STREAM, 4_096)
    describe(publication, *range(4_096))
    assert log.find(5, 4_095) is not None
    find, rounds = log.find, 20_000
    start = time.perf_counter_ns()
    for _ in range(rounds):
        find(5, 2_000)
    present = (time.perf_counter_ns() - start) / rounds
    start = time.perf_counter_ns()
    for _ in range(rounds):
        find(5, 5_000)
    absent = (time.perf_counter_ns() - start) / rounds
    print(f"finding a descriptor takes {present:.0f} ns, {absent:.0f} ns when there is none")
    assert present < 5_000


class TestEnds:
    def test_closing_the_feed_closes_its_subscription(
        self, feed, publication, eventually: Eventually
    ) -> None:
        log = feed.follow(STREAM, 10)
        describe(publication, 1)
        assert log.find(5, 1) is not None
        feed.close()
        feed.close()
        assert feed.closed
        eventually(lambda: not publication.connected)
        assert log.find(5, 1) is not None, "what was kept stays"
        assert log.find(5, 2) is None
        with pytest.raises(ClosedError):
            feed.follow(STREAM, 10)

    def test_a_closed_drain_leaves_what_was_kept(self, drain: Drain, feed, publication) -> None:
        log = feed.follow(STREAM, 10)
        describe(publication, 1)
        assert log.find(5, 1) is not None
        drain.close()
        assert feed.closed
        assert (log.find(5, 1).seq, log.find(5, 2)) == (1, None)

    def test_a_lost_media_driver_leaves_what_was_kept(
        self, feed, publication, media_driver: EmbeddedMediaDriver, eventually: Eventually
    ) -> None:
        log = feed.follow(STREAM, 10)
        describe(publication, 1)
        assert log.find(5, 1) is not None
        media_driver.close()
        eventually(lambda: feed.closed)
        assert (log.find(5, 1).seq, log.find(5, 2)) == (1, None)

    def test_forgotten_logs_and_feeds_end(self, feed, publication, eventually: Eventually) -> None:
        log = feed.follow(STREAM, 10)
        del log
        gc.collect()
        describe(publication, 1)
        eventually(lambda: feed.ignored == 1)

    @forks
    def test_forked_children_get_errors(self, feed, publication) -> None:
        log = feed.follow(STREAM, 10)
        child = os.fork()
        if child == 0:
            refused = 0
            for use in (lambda: log.find(5, 1), lambda: feed.follow(1, 1), feed.close, log.close):
                try:
                    use()
                except ForkedProcessError:
                    refused += 1
            del use, log
            os._exit(0 if refused == 4 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        describe(publication, 1)
        assert log.find(5, 1) is not None
