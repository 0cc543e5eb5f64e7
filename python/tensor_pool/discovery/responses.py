"""Where answers go: the endpoints that requests name, opened for a while and never too many."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from tensor_pool.channels import Channel
from tensor_pool.closing import Closing
from tensor_pool.discovery.openings import OpeningBudget
from tensor_pool.errors import ChannelError
from tensor_pool.pool.discovering import RESPONSE_STREAM_ID
from tensor_pool.transport import OfferResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensor_pool.discovery.index import Refused
    from tensor_pool.transport import Client, Publication
    from tensor_pool.wire.messages import DiscoveryRequest

__all__ = ["ResponsePorts", "is_numeric", "response_channel"]

_MAX_PORTS: Final = 64
"""Endpoints that are open at a time. Each holds a log in shared memory."""
_MAX_WAITING: Final = 8
"""Answers to one endpoint that wait until somebody listens there."""
_PATIENCE_NS: Final = 2_000_000_000
"""How long an answer waits, and how long an endpoint stays that nobody has ever listened to."""
_IDLE_NS: Final = 30_000_000_000
_MAX_REFUSED: Final = 256
_REFUSED_NS: Final = 10_000_000_000
"""How long a channel that Aeron refused is not tried again."""
_AGAIN: Final = frozenset({OfferResult.BACK_PRESSURED, OfferResult.ADMIN_ACTION, OfferResult.NOT_CONNECTED})


_TERM_LENGTH: Final = "4m"
"""Of the logs of answers, whatever a request asks for (decision K6): an answer may have an eighth of it."""
_WHERE: Final = ("endpoint", "interface", "control")
"""The parameters of a channel that say where it leads; no other is taken from a stranger."""
_USUAL: Final = (f"aeron:ipc?term-length={_TERM_LENGTH}", RESPONSE_STREAM_ID)
"""Where this host's clients listen: one endpoint for all of them, so that none has to ask for it twice."""


class _Answer(NamedTuple):
    request_id: int
    until_ns: int
    data: bytes


class _Port(msgspec.Struct):
    publication: Publication
    used_ns: int
    was_connected: bool = False
    waiting: deque[_Answer] = msgspec.field(default_factory=deque)


class ResponsePorts(Closing):
    """Publications to those who ask.

    An endpoint that nobody listens to costs a log for two seconds and nobody's time: a few answers wait in
    memory, and the rest of the work goes on. Opening one costs time, so nobody may name new ones without end.

    Args:
        client: Aeron, or what stands for it.
        resolves_names: Whether endpoints may have host names.
        on_unsent: Called for each answer that nobody took.

    Example:
        >>> from tensor_pool.transport.memory import MemoryBus
        >>> from tensor_pool.wire.messages import DiscoveryRequest
        >>> bus = MemoryBus()
        >>> listener = bus.client().add_subscription("aeron:ipc", 7004)
        >>> ports = ResponsePorts(bus.client())
        >>> asked = DiscoveryRequest(1, 7, 7004, response_channel="aeron:ipc")
        >>> ports.send(asked, lambda max_bytes: b"here", now_ns=0)
        >>> listener.receive()
        [b'here']
    """

    def __init__(
        self,
        client: Client,
        *,
        resolves_names: bool = False,
        on_unsent: Callable[[], object] = lambda: None,
    ) -> None:
        self._client = client
        self._resolves_names = resolves_names
        self._on_unsent = on_unsent
        self._ports: OrderedDict[tuple[str, int], _Port] = OrderedDict()
        self._refused: OrderedDict[str, int] = OrderedDict()
        self._budget = OpeningBudget()

    def __len__(self) -> int:
        return len(self._ports)

    def send(
        self, request: DiscoveryRequest, make: Callable[[int], bytes], *, now_ns: int, asker: int = 0
    ) -> Refused | None:
        """Sends an answer, or keeps it for a moment; says why if it can't be sent at all.

        Args:
            request: What is answered; names a channel and a stream.
            make: Makes the answer, given how many bytes it may have.
            now_ns: The time.
            asker: The session that the request came over.
        """
        asked = Channel.parse(request.response_channel)
        if not self._resolves_names and not is_numeric(asked):
            return "response_host_name"
        key = (response_channel(asked), request.response_stream_id)
        port = self._ports.get(key) or self._open(*key, asker, now_ns)
        if isinstance(port, str):
            return port
        self._ports.move_to_end(key)
        port.used_ns = now_ns
        if any(answer.request_id == request.request_id for answer in port.waiting):
            return None  # asked again before anybody listened
        if len(port.waiting) >= _MAX_WAITING:
            return "too_many_waiting"
        data = make(port.publication.max_message_bytes)
        port.waiting.append(_Answer(request.request_id, now_ns + _PATIENCE_NS, data))
        self._flush(port, now_ns)
        return None

    def do_work(self, now_ns: int) -> int:
        """Sends what can be sent now, gives up what waited too long, closes what is not used."""
        work = 0
        for key, port in list(self._ports.items()):
            if port.waiting:
                work += self._flush(port, now_ns)
            if not port.waiting and now_ns - port.used_ns >= (
                _IDLE_NS if port.was_connected else _PATIENCE_NS
            ):
                del self._ports[key]
                port.publication.close()
                work += 1
        return work

    def close(self) -> None:
        """Closes all endpoints. May be called again."""
        for port in self._ports.values():
            port.publication.close()
        self._ports.clear()

    def _open(self, channel: str, stream_id: int, asker: int, now_ns: int) -> _Port | Refused:
        if self._refused.get(channel, now_ns) > now_ns:
            return "bad_response_channel"
        if (channel, stream_id) != _USUAL and not self._budget.take(asker=asker, now_ns=now_ns):
            return "too_many_endpoints"
        while len(self._ports) >= _MAX_PORTS:
            _, oldest = self._ports.popitem(last=False)
            for _ in oldest.waiting:
                self._on_unsent()
            oldest.publication.close()
        try:
            publication = self._client.add_publication(channel, stream_id)
        except ChannelError:
            self._refused[channel] = now_ns + _REFUSED_NS
            if len(self._refused) > _MAX_REFUSED:
                self._refused.popitem(last=False)
            return "bad_response_channel"
        port = self._ports[channel, stream_id] = _Port(publication, now_ns)
        return port

    def _flush(self, port: _Port, now_ns: int) -> int:
        done = 0
        while port.waiting:
            answer = port.waiting[0]
            if port.publication.offer(answer.data) in _AGAIN:
                if now_ns < answer.until_ns:
                    break
                self._on_unsent()
            else:
                port.was_connected = True
            port.waiting.popleft()
            done += 1
        return done


def response_channel(asked: Channel) -> str:
    """The channel that leads where a request says, and is otherwise ours: nobody makes us map a gigabyte.

    Example:
        >>> response_channel(Channel.parse("aeron:udp?endpoint=10.0.0.2:7004|term-length=1g|ssc=true"))
        'aeron:udp?endpoint=10.0.0.2:7004|term-length=4m'
    """
    where = [f"{name}={asked.params[name]}" for name in _WHERE if name in asked.params]
    return f"aeron:{asked.media}?{'|'.join([*where, f'term-length={_TERM_LENGTH}'])}"


def is_numeric(channel: Channel) -> bool:
    """Whether a channel names no host that would have to be looked up.

    Example:
        >>> is_numeric(Channel.parse("aeron:udp?endpoint=10.0.0.2:7004"))
        True
        >>> is_numeric(Channel.parse("aeron:udp?endpoint=registry.lab:7004"))
        False
    """
    addresses = [channel.params[name] for name in _WHERE if name in channel.params]
    return all(_is_address(text) for text in addresses)


def _is_address(text: str) -> bool:
    host = text.partition("/")[0].rpartition(":")[0] or text.partition("/")[0]
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True
