"""A bad network between two addresses: delay, jitter, duplicates, loss and partitions of UDP.

For machines whose kernel has no such thing (``tc netem``). It is made for tests and not for speed: one thread
of Python passes a few thousand datagrams a second beside a busy program.
"""

from __future__ import annotations

import contextlib
import heapq
import ipaddress
import os
import random
import selectors
import socket
import threading
import time
from collections import OrderedDict
from typing import Final, NamedTuple

import msgspec

from tensor_pool.closing import Closing
from tensor_pool.errors import ConfigError

__all__ = ["LinkConditions", "Relay", "RelayCounts", "free_udp_endpoint"]

_Address = tuple[str, int]

_MAX_DATAGRAM_BYTES: Final = 65_535
_SOCKET_BUFFER_BYTES: Final = 4 << 20
_DATAGRAMS_A_TURN: Final = 64
"""After so many from one socket the others and the clock get their turn."""
_MAX_PORT: Final = 65_535
_MAX_SENDERS: Final = 64
_END_S: Final = 10.0
_NS_PER_MS: Final = 1e6


class LinkConditions(msgspec.Struct, frozen=True, kw_only=True):
    """How bad a link is, in both directions.

    Args:
        delay_ms: How long every datagram takes.
        jitter_ms: How much longer it takes at most, at random: datagrams overtake each other.
        loss: The part that never arrives.
        duplicates: The part that arrives twice, each on its own time.

    Raises:
        ConfigError: A time is negative, or a part is not from 0 to 1.

    Example:
        >>> LinkConditions(delay_ms=20, loss=0.01).jitter_ms
        0.0
    """

    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    loss: float = 0.0
    duplicates: float = 0.0

    def __post_init__(self) -> None:
        for name in ("delay_ms", "jitter_ms"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ConfigError(f"{name}={getattr(self, name)}", hint="milliseconds from 0 on")
        for name in ("loss", "duplicates"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name}={getattr(self, name)}", hint="a part from 0 to 1, such as 0.05")


_GOOD: Final = LinkConditions()


class RelayCounts(msgspec.Struct):
    """What a relay did with datagrams so far, both directions together."""

    received: int = 0
    forwarded: int = 0
    """Sent on, the second of a pair of duplicates included."""
    lost: int = 0
    duplicated: int = 0
    overtaken: int = 0
    """Sent on after one of the same direction that had come later."""
    partitioned: int = 0
    """Dropped because of a partition."""
    overflowed: int = 0
    """Dropped because too much was on its way already."""
    refused: int = 0
    """Not taken by the system, on its way for a sender that had to make room, or an answer of a stranger."""


class _Way:
    """One direction of one sender: which socket sends where."""

    __slots__ = ("forward", "last_sent", "out", "to")

    def __init__(self, out: socket.socket, to: _Address, *, forward: bool) -> None:
        self.out = out
        self.to = to
        self.forward = forward
        self.last_sent = -1


class _Held(NamedTuple):
    """A datagram on its way; sorted by when it is due, those of one time in the order they came."""

    due_ns: float
    number: int
    copy: int
    way: _Way
    datagram: bytes


class _Sender(NamedTuple):
    """Somebody who sends through the relay, with the socket that stands for it on the other side."""

    back: socket.socket
    there: _Way
    home: _Way


class Relay(Closing):
    """Stands between who sends and who receives; answers go back through it too, as through a NAT.

    A publication names `address` as its endpoint, a subscription the `target`. Aeron's status messages and
    NAKs return the same way. Unicast only. In a network namespace it runs as part of a program there.

    Args:
        target: Where datagrams go in the end, ``ADDRESS:PORT``.
        listen: Where it waits for them; port 0 takes a free one.
        conditions: How bad the link is; may be changed any time by setting `conditions`.
        seed: The same seed treats the same datagrams in the same way.
        max_held: How many datagrams may be on their way at once.

    Raises:
        ConfigError: An address is none, or is in use.

    Example:
        >>> with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        ...     receiver.bind(("127.0.0.1", 0))
        ...     port = receiver.getsockname()[1]
        ...     with (
        ...         Relay(f"127.0.0.1:{port}", conditions=LinkConditions(delay_ms=5)) as relay,
        ...         socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
        ...     ):
        ...         _ = sender.sendto(b"hello", ("127.0.0.1", int(relay.address.split(":")[1])))
        ...         receiver.recv(100)
        b'hello'
    """

    def __init__(
        self,
        target: str,
        *,
        listen: str = "127.0.0.1:0",
        conditions: LinkConditions = _GOOD,
        seed: int = 1,
        max_held: int = 16_384,
    ) -> None:
        self.target: Final = target
        """Where datagrams go in the end."""
        self.conditions = conditions
        self._to = _parse(target)
        if self._to[1] == 0:
            raise ConfigError(f"the target {target!r} has no port", hint="name the port of the receiver")
        if max_held < 1:
            raise ConfigError(f"max_held={max_held}", hint="at least 1 datagram")
        self._random = random.Random(seed)  # noqa: S311 - repeatable on purpose
        self._max_held = max_held
        self._held: list[_Held] = []
        self._senders: OrderedDict[_Address, _Sender] = OrderedDict()
        self._counts = RelayCounts()
        self._cut_there = self._cut_home = False
        self._lock = threading.Lock()  # whoever changes something waits until no datagram is half-way
        self._closing = False
        self._front = _bound(_parse(listen))
        self.address: Final = "{}:{}".format(*self._front.getsockname())
        """Where senders send to, such as ``127.0.0.1:40123``."""
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._selector.register(self._front, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name=f"relay {self.address}", daemon=True)
        self._thread.start()

    @property
    def counts(self) -> RelayCounts:
        """What it did so far."""
        with self._lock:
            return msgspec.structs.replace(self._counts)

    @property
    def held(self) -> int:
        """How many datagrams are on their way."""
        return len(self._held)

    def partition(self, *, there: bool = True, home: bool = True) -> None:
        """Cuts the link; what is on its way there is lost. Nothing passes any more when this returns.

        Args:
            there: Cut the direction to the target.
            home: Cut the direction back to the senders.
        """
        with self._lock:
            self._cut_there, self._cut_home = there, home
            kept = [held for held in self._held if not self._is_cut(held.way)]
            self._counts.partitioned += len(self._held) - len(kept)
            heapq.heapify(kept)
            self._held = kept

    def heal(self) -> None:
        """Mends the link."""
        self.partition(there=False, home=False)

    def close(self) -> None:
        """Ends it; what is on its way is lost. May be called again."""
        if self._closing:
            return
        self._closing = True
        os.eventfd_write(self._wake, 1)
        self._thread.join(_END_S)
        self._selector.close()
        os.close(self._wake)
        self._front.close()
        for sender in self._senders.values():
            sender.back.close()

    def _run(self) -> None:
        while not self._closing:
            for key, _ in self._selector.select(self._send_due()):
                if key.fd != self._wake:
                    assert isinstance(key.fileobj, socket.socket)
                    self._take(key.fileobj, key.data)

    def _take(self, source: socket.socket, home: _Way | None) -> None:
        """Takes what a socket has; `home` is the way of answers, None for what comes from senders."""
        # Usually it has no more. It may also belong to a sender that had to make room in this very turn.
        with self._lock, contextlib.suppress(OSError):
            for _ in range(_DATAGRAMS_A_TURN):
                datagram, address = source.recvfrom(_MAX_DATAGRAM_BYTES)
                self._counts.received += 1
                if home is None:
                    self._accept(self._way_there(address), datagram)
                elif address == self._to:
                    self._accept(home, datagram)
                else:
                    self._counts.refused += 1

    def _accept(self, way: _Way, datagram: bytes) -> None:
        """Decides about a datagram: how often it goes on, and when."""
        conditions, counts = self.conditions, self._counts
        number = counts.received
        if self._is_cut(way):
            counts.partitioned += 1
        elif self._random.random() < conditions.loss:
            counts.lost += 1
        else:
            copies = 2 if self._random.random() < conditions.duplicates else 1
            counts.duplicated += copies - 1
            for copy in range(copies):
                delay_ms = conditions.delay_ms + self._random.random() * conditions.jitter_ms
                if delay_ms == 0:
                    self._send(way, datagram, number)
                elif len(self._held) >= self._max_held:
                    counts.overflowed += 1
                else:
                    due_ns = time.monotonic_ns() + delay_ms * _NS_PER_MS
                    heapq.heappush(self._held, _Held(due_ns, number, copy, way, datagram))

    def _send_due(self) -> float | None:
        """Sends what has been on its way for long enough; seconds until the next one is due."""
        with self._lock:
            while self._held:
                left_ns = self._held[0].due_ns - time.monotonic_ns()
                if left_ns > 0:
                    return left_ns / 1e9
                held = heapq.heappop(self._held)
                self._send(held.way, held.datagram, held.number)
            return None

    def _send(self, way: _Way, datagram: bytes, number: int) -> None:
        try:
            way.out.sendto(datagram, way.to)
        except OSError:  # a full buffer, no route, a sender that was forgotten: what a network does too
            self._counts.refused += 1
            return
        self._counts.forwarded += 1
        if number < way.last_sent:
            self._counts.overtaken += 1
        way.last_sent = max(way.last_sent, number)

    def _is_cut(self, way: _Way) -> bool:
        return self._cut_there if way.forward else self._cut_home

    def _way_there(self, address: _Address) -> _Way:
        """The way of a sender to the target; the one that was silent longest makes room for a new one."""
        known = self._senders.get(address)
        if known is None:
            if len(self._senders) >= _MAX_SENDERS:
                _, forgotten = self._senders.popitem(last=False)
                self._selector.unregister(forgotten.back)
                forgotten.back.close()
            back = _new_socket()
            known = _Sender(
                back, _Way(back, self._to, forward=True), _Way(self._front, address, forward=False)
            )
            self._senders[address] = known
            self._selector.register(back, selectors.EVENT_READ, known.home)
        self._senders.move_to_end(address)
        return known.there


def free_udp_endpoint(address: str = "127.0.0.1") -> str:
    """An address with a UDP port that nobody uses at the moment.

    Example:
        >>> free_udp_endpoint().startswith("127.0.0.1:")
        True
    """
    with _bound((address, 0)) as probe:
        return "{}:{}".format(*probe.getsockname())


def _parse(text: str) -> _Address:
    host, _, port = text.rpartition(":")
    hint = "an IPv4 address and a port, such as 127.0.0.1:40123"
    try:
        address = ipaddress.IPv4Address(host)
        number = int(port)
    except ValueError:
        raise ConfigError(f"{text!r} is no address of a relay", hint=hint) from None
    if address.is_multicast or not 0 <= number <= _MAX_PORT:
        raise ConfigError(f"{text!r} can't be used for a relay", hint=f"{hint}; a relay passes no multicast")
    return str(address), number


def _new_socket() -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setblocking(False)
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        made.setsockopt(socket.SOL_SOCKET, option, _SOCKET_BUFFER_BYTES)
    return made


def _bound(address: _Address) -> socket.socket:
    made = _new_socket()
    try:
        made.bind(address)
    except OSError as error:
        made.close()
        where = "{}:{}".format(*address)
        raise ConfigError(
            f"nobody can listen at {where}: {error.strerror}", hint="port 0 takes a free one"
        ) from None
    return made
