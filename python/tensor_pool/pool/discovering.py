"""Asks providers what streams there are. Advice only: who wants a stream attaches at the driver it names."""

from __future__ import annotations

import contextlib
import ipaddress
import secrets
import socket
import time
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import msgspec

from tensor_pool.channels import Channel
from tensor_pool.closing import Closing
from tensor_pool.errors import NoStreamError, TensorPoolError
from tensor_pool.wire import Router, encode
from tensor_pool.wire.messages import (
    DiscoveryRequest,
    DiscoveryResponse,
    DiscoveryResult,
    DiscoveryStatus,
    DiscoveryTag,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from tensor_pool.pool.pool import Pool
    from tensor_pool.transport import AeronClient, AeronPublication, AeronSubscription, Header

__all__ = ["HOST_TAG", "DiscoveryClient", "FoundStream", "ProviderAddress", "Search", "Surroundings"]

HOST_TAG: Final = "host:"
"""The tag that says on which host a stream is."""
RESPONSE_STREAM_ID: Final = 7004
_RESPONSE_TERM: Final = "4m"
"""Answers may have an eighth of it (decision K6)."""
_FIRST_REPEAT_S: Final = 0.025
_REPEAT_S: Final = 0.1
"""A question is asked again while there is no answer, soon at first: streams that were opened for it take
their time, and an answer that waits for one goes out with the next question."""
_OPTIONAL_S: Final = 0.25
"""How long to wait for providers that need not be there, when all others have answered."""
_LOOK_S: Final = 0.000_5
_SHORT_LOOK_S: Final = 0.000_2
_SOON_S: Final = 0.005
"""When an answer is expected, and looked for more often."""
_SLOT_BYTES: Final = 256
_MAX_DIMS: Final = 8


class ProviderAddress(NamedTuple):
    """Where a provider is asked."""

    channel: str
    stream_id: int

    def __str__(self) -> str:
        return f"the provider at {self.channel}, stream {self.stream_id},"


class FoundStream(msgspec.Struct, frozen=True, kw_only=True):
    """A stream that a provider knows.

    Example:
        >>> FoundStream(
        ...     stream_id=10000, name="camera", epoch=1, producer_id=7, driver_instance_id="lab",
        ...     driver_control_channel="aeron:ipc", driver_control_stream_id=1000,
        ...     tags=("left", "host:lab-3")).host
        'lab-3'
    """

    stream_id: int
    name: str
    epoch: int
    producer_id: int
    driver_instance_id: str
    driver_control_channel: str
    driver_control_stream_id: int
    tags: tuple[str, ...] = ()
    data_source_id: int | None = None
    layout_version: int = 1
    nslots: int = 0
    strides: tuple[int, ...] = ()
    """Slot sizes of its pools."""

    @property
    def host(self) -> str:
        """The host that it is on; empty where nobody said so."""
        names = [tag.removeprefix(HOST_TAG) for tag in self.tags if tag.startswith(HOST_TAG)]
        return names[-1] if names else ""

    @classmethod
    def of(cls, result: DiscoveryResult) -> FoundStream | None:
        """A result in these words; None for one that nobody could use [DSC-5.2-11, DSC-5.2-13]."""
        is_sound = (
            result.driver_control_channel
            and result.driver_control_stream_id
            and result.header_slot_bytes == _SLOT_BYTES
            and result.max_dims == _MAX_DIMS
            and all(pool.pool_nslots == result.header_nslots for pool in result.payload_pools)
        )
        if not is_sound:
            return None
        return cls(
            stream_id=result.stream_id,
            name=result.data_source_name,
            epoch=result.epoch,
            producer_id=result.producer_id,
            driver_instance_id=result.driver_instance_id,
            driver_control_channel=result.driver_control_channel,
            driver_control_stream_id=result.driver_control_stream_id,
            tags=tuple(entry.tag for entry in result.tags),
            data_source_id=result.data_source_id,
            layout_version=result.layout_version,
            nslots=result.header_nslots,
            strides=tuple(pool.stride_bytes for pool in result.payload_pools),
        )


class Surroundings(Protocol):
    """What a pool asks about streams and drivers around it."""

    def own_streams(
        self, tags: Sequence[str], data_source_id: int | None
    ) -> Collection[tuple[int, int | None]]:
        """Ids and epochs of its driver's streams that have all these tags and this data source.

        Raises:
            NoDriverError: No provider answers.
        """
        ...

    def find(self, name: str) -> FoundStream | None:
        """The stream of a name that another driver of this host has; None when there is none."""
        ...

    def explain(self, name: str, error: NoStreamError) -> NoStreamError:
        """The same error, with a better hint where another host has the stream."""
        ...

    def pool_of(self, stream: FoundStream) -> Pool | None:
        """The pool that leads to the driver that a stream names; None for the one that asks.

        Raises:
            NoStreamError: It is on another host; says what would bring it here.
            NoDriverError: That driver does not answer.
        """
        ...


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """What came of asking."""

    streams: tuple[FoundStream, ...]
    """What matched, of each driver and stream the newest epoch; by host, driver and stream id."""
    answered: int
    """Providers that answered."""
    errors: tuple[str, ...] = ()
    """What providers said that could not answer."""
    silent: tuple[ProviderAddress, ...] = ()
    """Providers that did not answer in time."""
    unusable: int = 0
    """Results that nobody could use."""

    @property
    def complaints(self) -> tuple[str, ...]:
        """Why there may be more than was found, one text for each provider that failed."""
        silent = (f"{provider} does not answer" for provider in self.silent)
        return (*self.errors, *silent)


class _Asking:
    """The answers to one question."""

    def __init__(
        self,
        asked: Mapping[int, ProviderAddress],
        is_enough: Callable[[FoundStream], bool],
        optional: Collection[ProviderAddress],
    ) -> None:
        self.open = dict(asked)
        self._optional = optional
        self.has_enough = False
        self._is_enough = is_enough
        self._found: dict[tuple[str, int], FoundStream] = {}
        self._errors: list[str] = []
        self._answered = 0
        self._unusable = 0

    def on_response(self, response: DiscoveryResponse) -> None:
        if response.request_id not in self.open:
            return  # somebody else's, or a second answer [DSC-5.2-2]
        provider = self.open.pop(response.request_id)
        self._answered += 1
        if response.status is DiscoveryStatus.ERROR:
            self._errors.append(f"{provider} says: {response.error_message or 'it failed'}")
        if response.status is not DiscoveryStatus.OK:
            return  # whatever results it has [DSC-5.2-23]
        for result in response.results:
            stream = FoundStream.of(result)
            if stream is None:
                self._unusable += 1
                continue
            key = (stream.driver_instance_id, stream.stream_id)
            known = self._found.get(key)
            if known is None or stream.epoch > known.epoch:
                self._found[key] = stream
                self.has_enough |= self._is_enough(stream)

    @property
    def missing(self) -> tuple[ProviderAddress, ...]:
        """Those that should have answered and have not."""
        return tuple(provider for provider in self.open.values() if provider not in self._optional)

    @property
    def search(self) -> Search:
        return Search(
            # In an order that stays, whoever answered first.
            streams=tuple(
                sorted(
                    self._found.values(),
                    key=lambda each: (each.host, each.driver_instance_id, each.stream_id),
                )
            ),
            answered=self._answered,
            errors=tuple(self._errors),
            silent=self.missing,
            unusable=self._unusable,
        )


class DiscoveryClient(Closing):
    """Asks some providers, all at once. For one thread at a time.

    Args:
        client: A connection to this host's media driver; stays open.
        providers: Whom to ask.
        optional: Those of them that need not be there: they are waited for a moment, and never missed.
        client_id: What this client calls itself.

    Raises:
        ChannelError: Aeron refuses a channel.
    """

    def __init__(
        self,
        client: AeronClient,
        providers: Sequence[ProviderAddress],
        *,
        optional: Collection[ProviderAddress] = (),
        client_id: int = 0,
    ) -> None:
        self._client_id = client_id
        self._optional = frozenset(optional)
        self._own = contextlib.ExitStack()
        self._lines: list[tuple[AeronPublication, str, ProviderAddress]] = []
        self._ears: dict[str, AeronSubscription] = {}
        self._asking: _Asking | None = None
        self._all_answered = False
        """Whether all streams are open: the last question was answered by everybody."""
        self._router = Router()
        self._router.on(DiscoveryResponse, self._on_response)
        with self._own:
            for provider in dict.fromkeys(providers):
                back = response_channel(provider.channel)
                if back not in self._ears:
                    self._ears[back] = self._own.enter_context(
                        client.add_subscription(back, RESPONSE_STREAM_ID)
                    )
                line = self._own.enter_context(client.add_publication(*provider))
                self._lines.append((line, back, provider))
            self._own = self._own.pop_all()

    def ask(
        self,
        *,
        name: str = "",
        tags: Iterable[str] = (),
        stream_id: int | None = None,
        producer_id: int | None = None,
        data_source_id: int | None = None,
        timeout_s: float = 1.0,
        is_enough: Callable[[FoundStream], bool] = lambda _: False,
    ) -> Search:
        """Asks for the streams that pass all filters, and waits until all providers have answered.

        A stream that is enough ends the wait: what others would say does not matter then.
        Providers that don't answer in time are left out; `Search.silent` names them.
        """
        requests = [
            DiscoveryRequest(
                request_id=secrets.randbits(63),
                client_id=self._client_id,
                response_stream_id=RESPONSE_STREAM_ID,
                stream_id=stream_id,
                producer_id=producer_id,
                data_source_id=data_source_id,
                tags=tuple(DiscoveryTag(tag) for tag in dict.fromkeys(tags)),
                response_channel=back,
                data_source_name=name,
            )
            for _, back, _ in self._lines
        ]
        asking = self._asking = _Asking(
            {
                request.request_id: provider
                for request, (_, _, provider) in zip(requests, self._lines, strict=True)
            },
            is_enough,
            self._optional,
        )
        now = time.monotonic()
        optional_until = now + _OPTIONAL_S
        deadline, look_long_at = now + timeout_s, now + _SOON_S
        repeat_at, repeat_s = now, _REPEAT_S if self._all_answered else _FIRST_REPEAT_S
        while asking.open and not asking.has_enough and now < deadline:
            if now >= optional_until and not asking.missing:
                break
            if now >= repeat_at:
                repeat_at, repeat_s = now + repeat_s, min(2 * repeat_s, _REPEAT_S)
                for (line, _, _), request in zip(self._lines, requests, strict=True):
                    if request.request_id in asking.open:
                        line.offer(encode(request))
            if not sum(ear.poll(self._on_message) for ear in self._ears.values()):
                time.sleep(_SHORT_LOOK_S if now < look_long_at else _LOOK_S)
            now = time.monotonic()
        self._asking = None
        self._all_answered = not asking.open
        return asking.search

    def close(self) -> None:
        """Closes its streams. May be called again."""
        self._own.close()

    def _on_message(self, data: bytes, _header: Header) -> None:
        self._router.dispatch(data)

    def _on_response(self, response: DiscoveryResponse) -> None:
        if self._asking is not None:
            self._asking.on_response(response)


def response_channel(requests: str) -> str:
    """Where answers of a provider come back: the same way that questions go, to a port of this host.

    Example:
        >>> response_channel("aeron:ipc?term-length=1m")
        'aeron:ipc?term-length=4m'
    """
    channel = Channel.parse(requests)
    if channel.media == "ipc":
        return f"aeron:ipc?term-length={_RESPONSE_TERM}"
    host, _, port = channel.params["endpoint"].rpartition(":")
    family = socket.AF_INET6 if ":" in host.strip("[]") else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((host.strip("[]"), int(port)))  # sends nothing; says which of our addresses is used
            address = ipaddress.ip_address(probe.getsockname()[0].partition("%")[0])
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
            free_port = probe.getsockname()[1]
    except (OSError, ValueError) as e:
        raise TensorPoolError(
            f"no way to {requests}: {e}", hint="check the address of the provider"
        ) from None
    shown = f"[{address}]" if isinstance(address, ipaddress.IPv6Address) else str(address)
    return f"aeron:udp?endpoint={shown}:{free_port}|term-length={_RESPONSE_TERM}"
