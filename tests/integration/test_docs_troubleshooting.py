"""The errors that the troubleshooting page explains are raised, with the words of its headings."""

from __future__ import annotations

import doctest
import os
import re
import tempfile
from typing import TYPE_CHECKING

import numpy as np
import pytest

import tensor_pool as tp
from doc_pages import DOCS, Page
from forking import forks
from tensor_pool import errors
from tensor_pool.driver import Driver
from tensor_pool.testing import Cluster, wait_until
from tensor_pool.transport import AeronClient, EmbeddedMediaDriver
from tensor_pool.wire.messages import ListLeases, RevokeLease

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = Page(DOCS / "operations" / "troubleshooting.md")
HEADINGS = re.findall(r"^#### `([^`]+)`$", PAGE.text, flags=re.MULTILINE)
NOT_PROVOKED = {"open ...: Permission denied (os error 13)"}  # never happens to root


def matches(heading: str, message: str) -> bool:
    return doctest.OutputChecker().check_output(heading, message, doctest.ELLIPSIS)


class Ring:
    """A small ring with both ends open."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.address = tp.create_ring(directory, stream_id=1, epoch=1, nslots=4, pools=[(1, 4096)])
        self.writer = tp.RingWriter(self.address, base_dirs=[directory])
        self.reader = tp.RingReader(self.address, base_dirs=[directory])

    def create(self, **changes: object) -> None:
        numbers = {"stream_id": 1, "epoch": 1, "nslots": 4, "pools": [(1, 4096)]} | changes
        tp.create_ring(self.directory, **numbers)

    def read(self, **changes: object) -> None:
        address = self.address
        numbers = {
            name: getattr(address, name) for name in ("stream_id", "epoch", "nslots", "header_uri", "pools")
        }
        tp.RingReader(tp.RingAddress(**(numbers | changes)), base_dirs=[self.directory])

    def publish_behind_a_claim(self) -> None:
        with self.writer.claim((3,), tp.Dtype.UINT8):
            self.publish()

    def publish(self, array: object = b"abc") -> None:
        self.writer.publish(array)

    def look_too_long(self) -> None:
        self.publish()
        with self.reader.poll():
            for _ in range(4):
                self.publish()

    def read_in_a_child(self) -> None:
        # What the child was told comes back through a pipe and is raised again here.
        receive, send = os.pipe()
        if os.fork() == 0:
            try:
                self.reader.poll()
            except tp.ForkedProcessError as error:
                os.write(send, error.message.encode())
            os._exit(0)
        os.wait()
        raise tp.ForkedProcessError(os.read(receive, 4096).decode())

    def export(self) -> None:
        self.publish()
        self.reader.poll().__dlpack__()


RINGS: list[Callable[[Ring], object]] = [
    lambda ring: ring.create(pools=[(2, 1 << 31)], nslots=1 << 20),
    lambda ring: ring.create(),
    lambda ring: tp.RingReader(ring.address, base_dirs=["/proc"]),
    lambda ring: ring.read(epoch=2),
    lambda ring: ring.read(nslots=64),
    lambda ring: ring.read(header_uri=f"shm:file?path={ring.directory}/none"),
    lambda ring: ring.publish(np.zeros(5000, "uint8")),
    lambda ring: ring.publish(np.zeros(3, "complex64")),
    lambda ring: ring.publish_behind_a_claim(),
    lambda ring: ring.look_too_long(),
    lambda ring: ring.read_in_a_child(),
    lambda ring: ring.export(),
]


class Streams:
    """A host with both drivers, and a program that uses it."""

    def __init__(self, cluster: Cluster, pool: tp.Pool) -> None:
        self.cluster = cluster
        self.pool = pool

    def second_producer(self) -> None:
        with self.pool.producer("taken", max_bytes=64):
            self.pool.producer("taken", max_bytes=64)

    def without_driver(self) -> None:
        settings = {"client.attach_timeout_ms": 100}
        tp.connect(f"{self.cluster.directory}/nobody", settings=settings)

    def lose_the_lease(self) -> None:
        settings = {"client.on_lease_loss": "raise"}
        with self.cluster.connect(settings=settings) as pool, pool.producer("lost", max_bytes=64) as out:
            while True:  # the next lease comes soon: some call meets the time without one
                wait_until(lambda: out.epoch is not None)
                # None where the driver has ended the last one, and the client is still to hear of it.
                for lease in pool.request(ListLeases(0, 1, stream_id=out.stream_id)).leases:
                    revoke = RevokeLease(
                        0, 1, stream_id=out.stream_id, lease_id=lease.lease_id, token="", reason="test"
                    )
                    pool.request(revoke)
                out.publish(b"x")

    @staticmethod
    def without_room() -> None:
        with tp.connect(embedded=True) as pool:  # without the limit of the other host
            pool.producer("endless", max_bytes=1 << 31, slots=1 << 20)

    def outlive_the_epoch(self) -> None:
        out = self.pool.producer("short", max_bytes=64)
        inp = self.pool.consumer("short")
        out.publish(b"x")
        frame = inp.poll(timeout=10)
        out.close()
        wait_until(lambda: not frame.still_valid())
        frame.copy()

    def command(self, service: str) -> None:
        with tp.ControlClient(config=self.cluster.config) as control:
            control.send(service, "log.level", 7, timeout_s=0.5)

    def publish_after_close(self) -> None:
        out = self.pool.producer("closed", max_bytes=64)
        out.close()
        out.publish(b"x")

    def much_metadata(self) -> None:
        with self.pool.producer("talkative", max_bytes=64) as out:
            out.metadata["table"] = bytes(300_000)


STREAMS: list[Callable[[Streams], object]] = [
    lambda host: host.without_driver(),
    lambda host: host.second_producer(),
    lambda host: host.pool.producer("large", max_bytes=1 << 30, slots=8),
    lambda host: host.pool.producer("huge", max_bytes=64, hugepages=True),
    lambda host: host.pool.producer(77, max_bytes=64),
    lambda host: host.pool.consumer("nobody", wait_s=0.05),
    lambda host: host.lose_the_lease(),
    lambda host: host.without_room(),
    lambda host: host.outlive_the_epoch(),
    lambda host: Driver(host.cluster.config),
    lambda host: host.pool.consumer(""),
    lambda host: host.much_metadata(),
    lambda host: host.publish_after_close(),
    lambda host: host.command("nobody"),
    lambda host: host.command("driver"),
]


def heading_of(error: BaseException) -> str:
    """The heading whose words an error has; what stands below it must name its class."""
    message = str(getattr(error, "message", error))
    found = [heading for heading in HEADINGS if matches(heading, message) or message.startswith(heading)]
    assert len(found) == 1, f"{message!r} has the headings {found}"
    explanation = PAGE.text.partition(f"#### `{found[0]}`\n\n")[2]
    assert explanation.startswith(f"`{type(error).__name__}`"), f"{message!r} is a {type(error).__name__}"
    return found[0]


@forks
def test_every_explained_error_is_raised_in_these_words():
    seen = set()
    for provoke in RINGS:
        with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="tensor-pool-docs-") as directory:
            with pytest.raises((tp.TensorPoolError, BufferError)) as caught:
                provoke(Ring(directory))
            seen.add(heading_of(caught.value))
    with Cluster({"driver.max_stream_bytes": "4g"}) as cluster, cluster.connect() as pool:
        for provoke in STREAMS:
            with pytest.raises(tp.TensorPoolError) as caught:
                provoke(Streams(cluster, pool))
            seen.add(heading_of(caught.value))
    for provoke in (_nobody, _second, _shut_down, _misspelt, _too_long):
        with pytest.raises(tp.TransportError) as caught:
            provoke()
        seen.add(heading_of(caught.value))
    with pytest.raises(tp.ConfigError) as caught:
        tp.load_config(overrides={"aeron.nothing": 1}, environ={}, search=False)
    seen.add(heading_of(caught.value))
    assert set(HEADINGS) - seen == NOT_PROVOKED


def _nobody() -> None:
    AeronClient.connect("/dev/shm/tensor-pool-docs-nobody", connect_timeout_ms=100)


def _second() -> None:
    with EmbeddedMediaDriver.temporary() as media:
        EmbeddedMediaDriver(media.aeron_dir)


def _shut_down() -> None:
    with EmbeddedMediaDriver.temporary() as media, AeronClient.connect(media.aeron_dir) as client:
        publication = client.add_publication("aeron:ipc", 1)
        media.close()
        while True:
            publication.wait_connected(20)
            client.check()


def _misspelt() -> None:
    with EmbeddedMediaDriver.temporary() as media, AeronClient.connect(media.aeron_dir) as client:
        client.add_publication("aeron:ipc?term-lenght=4m", 1)


def _too_long() -> None:
    with EmbeddedMediaDriver.temporary() as media, AeronClient.connect(media.aeron_dir) as client:
        client.add_publication("aeron:ipc?term-length=64k", 1).offer(bytes(1 << 20))


def test_every_error_is_explained():
    parents = {base for name in errors.__all__ for base in getattr(errors, name).__bases__}
    for name in errors.__all__:
        assert f"`{name}`" in PAGE.text or getattr(errors, name) in parents, name
