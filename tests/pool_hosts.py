"""Hosts for tests of the pool: short lease times, both stream layouts, and somebody who listens."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from tensor_pool import wire
from tensor_pool.closing import Closing
from tensor_pool.errors import MalformedMessageError
from tensor_pool.ops.tap import endpoints
from tensor_pool.pool.admin import AdminClient
from tensor_pool.testing import Cluster, wait_until
from tensor_pool.transport import AeronClient
from tensor_pool.wire import Message

MessageT = TypeVar("MessageT", bound=Message)

SOURCES = ("control", "announce", "descriptor", "qos", "metadata")

TALKATIVE: dict[str, Any] = {
    "driver.announce_interval_ms": 100,
    "client.keepalive_interval_ms": 300,
    "client.hello_interval_ms": 100,
    "client.metadata_interval_ms": 100,
}
"""Who waits to hear of the others waits tenths of a second; leases last as long as anywhere."""

QUICK: dict[str, Any] = {
    **TALKATIVE,
    "driver.keepalive_interval_ms": 300,
    "driver.epoch_min_age_ms": 200,
    "client.announce_freshness_ms": 1_200,
}
"""What takes seconds takes parts of one: a lease lasts 0.9 s, a silent driver counts as dead after 1.2 s."""

LEASE_S = 0.9
"""How long a lease of `QUICK` lasts without keepalives."""

_ASK_AGAIN_S = 0.25
"""After how long a client that lives repeats a request."""

LAYOUTS: dict[str, dict[str, Any]] = {
    "separate": {},
    "one-stream": {f"streams.{source}_stream_id": 1000 for source in SOURCES},
}
"""Which streams messages travel on: one for each purpose, or one for all of them (decision D21)."""


def quick_host(layout: str = "separate", *, driver: bool = True, **settings: Any) -> Cluster:
    """A host of its own; settings are keys with ``__`` for their dots."""
    given = {key.replace("__", "."): value for key, value in settings.items()}
    return Cluster({**QUICK, **LAYOUTS[layout], **given}, driver=driver)


class Ear(Closing):
    """Hears every message of a host, and may say some; stands beside the pool and is no part of it.

    Args:
        host: The host.
        sources: Which of the pool's streams to listen to.
    """

    def __init__(self, host: Cluster, sources: Iterable[str] = SOURCES) -> None:
        self._client = AeronClient.connect(host.aeron_dir)
        self._streams = host.config.streams
        self._subscriptions = {
            source: self._client.add_subscription(*place)
            for place, source in endpoints(self._streams, list(sources)).items()
        }
        self._publications: dict[str, Any] = {}
        self.heard: list[tuple[str, Message]] = []
        """All messages with their source, in the order in which each stream brought them."""

    def listen(self) -> None:
        """Takes in what has come so far."""
        for source, subscription in self._subscriptions.items():
            while subscription.poll(lambda data, _header, source=source: self._take(source, data), 100):
                pass

    def _take(self, source: str, data: bytes) -> None:
        with contextlib.suppress(MalformedMessageError):
            self.heard.append((source, wire.decode(data)))

    def all_of(self, kind: type[MessageT], **fields: Any) -> list[MessageT]:
        """The messages of a kind that were heard so far and have these values."""
        self.listen()
        return [
            message
            for _, message in self.heard
            if isinstance(message, kind)
            and all(getattr(message, name) == value for name, value in fields.items())
        ]

    def await_one(self, kind: type[MessageT], **fields: Any) -> MessageT:
        """The first message of a kind with these values, as soon as it comes."""
        return wait_until(lambda: self.all_of(kind, **fields), what=f"{kind.__name__} {fields}")[0]

    def sources_of(self, kind: type[Message]) -> set[str]:
        """Where messages of a kind travelled."""
        self.listen()
        return {source for source, message in self.heard if isinstance(message, kind)}

    def say(self, message: Message | bytes, source: str = "control", *, wait: bool = True) -> None:
        """Sends a message, as anybody could, when somebody listens; or at once, for whoever does."""
        if source not in self._publications:
            place = (getattr(self._streams, f"{source}_{part}") for part in ("channel", "stream_id"))
            self._publications[source] = self._client.add_publication(*place)
        publication = self._publications[source]
        wait_until(lambda: publication.connected or not wait, what=f"a listener on {source}")
        publication.offer(message if isinstance(message, bytes) else wire.encode(message))

    def ask(self, request: Message, kind: type[MessageT]) -> MessageT:
        """The answer to a request, which is repeated until it comes: a young driver is deaf (ADR 7)."""
        correlation_id = request.correlation_id  # type: ignore[attr-defined]
        asked_at = -math.inf

        def answers() -> list[MessageT]:
            nonlocal asked_at
            if time.monotonic() - asked_at > _ASK_AGAIN_S:
                self.say(request)
                asked_at = time.monotonic()
            return self.all_of(kind, correlation_id=correlation_id)

        return wait_until(answers, what=f"{kind.__name__} to {request}")[0]

    def admin(self) -> AdminClient:
        """Asks the driver; belongs to the connection of the ear."""
        return AdminClient(self._client, self._streams)

    def close(self) -> None:
        self._client.close()


def epochs_of(host: Cluster) -> dict[int, list[int]]:
    """The epochs that have a directory, by stream."""
    found: dict[int, list[int]] = {}
    for path in Path(str(host.settings["shm.shm_base_dir"])).glob("tensorpool-*/*/[0-9]*/[0-9]*"):
        found.setdefault(int(path.parent.name), []).append(int(path.name))
    return {stream: sorted(epochs) for stream, epochs in sorted(found.items())}


def half_made(host: Cluster) -> list[str]:
    """What half-made and half-removed epochs left behind."""
    base = Path(str(host.settings["shm.shm_base_dir"]))
    return sorted(path.name for path in base.glob("tensorpool-*/*/[0-9]*/.*"))


def open_files(pid: int) -> int:
    """How many file descriptors a process has."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def mapped_regions(pid: int, host: Cluster) -> list[str]:
    """The region files that a process has mapped, each as often as it is, deleted ones too."""
    base = str(host.settings["shm.shm_base_dir"])
    maps = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8").splitlines()
    return sorted(line.split(maxsplit=5)[5] for line in maps if base in line)


def cpu_seconds(pid: int) -> float:
    """CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
