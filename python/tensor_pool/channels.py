"""Aeron channels, with the parameters that keep one stuck process from blinding the others.

A channel is a text such as ``aeron:ipc?term-length=4m``. Left alone, Aeron takes 64 MiB terms (192 MiB of
memory) for an IPC publication, and lets the slowest subscriber hold back everybody: a stopped process
silences a stream for as long as it is stopped. So no endpoint of ours is ever made from a channel as it was
written; `for_publication` and `for_subscription` add what is missing first.

What must agree between channels, the configuration and the media driver stands here too: the standard
lengths and time-outs, and how often a timer must tick for them.

Example:
    >>> for_subscription("aeron:ipc?term-length=1m")
    'aeron:ipc?term-length=1m|tether=false'
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from tensor_pool.errors import ChannelError, ConfigError
from tensor_pool.ids import AeronStreamId

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "DEFAULT_TERM_LENGTH",
    "DEFAULT_TIMER_INTERVAL_MS",
    "MAX_CHANNEL_LENGTH",
    "STANDARD",
    "Channel",
    "ChannelDefaults",
    "Endpoint",
    "check_stream_id",
    "check_timer_interval",
    "for_publication",
    "for_subscription",
    "format_size",
    "ipc",
    "parse_duration_ns",
    "parse_size",
    "udp",
]

DEFAULT_TERM_LENGTH: Final = "4m"
"""Bytes of one of the three terms of every publication that does not say otherwise."""

DEFAULT_TIMER_INTERVAL_MS: Final = 20
"""How often a media driver of ours looks at its time-outs: more often than the shortest in `STANDARD`."""

MAX_CHANNEL_LENGTH: Final = 2048
"""Characters of a channel."""


class Endpoint(NamedTuple):
    """An Aeron stream: where messages are sent to, or heard."""

    channel: str
    stream_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelDefaults:
    """What channels get that they don't say themselves.

    The three time-outs tell how long a subscriber that does not keep up may hold back a publication, stays
    behind, and rests. With these, others miss it for about 0.1 s instead of 10 s or for ever (measured). The
    media driver's timer must tick faster than that.

    Args:
        term_length: Bytes of one of the three terms of a publication, as Aeron writes sizes.
        window_limit_ms: How long a subscriber may hold back a publication.
        linger_ms: How long it then stays where it is.
        resting_ms: How long it rests before it joins again.

    Example:
        >>> for_publication("aeron:ipc", ChannelDefaults(term_length="64k")).partition("|")[0]
        'aeron:ipc?term-length=64k'
    """

    term_length: str = DEFAULT_TERM_LENGTH
    window_limit_ms: int = 50
    linger_ms: int = 50
    resting_ms: int = 100

    def of_publications(self) -> dict[str, str]:
        """The parameters of publications."""
        return {
            "term-length": self.term_length,
            "untethered-window-limit-timeout": f"{self.window_limit_ms}ms",
            "untethered-linger-timeout": f"{self.linger_ms}ms",
            "untethered-resting-timeout": f"{self.resting_ms}ms",
        }


STANDARD: Final = ChannelDefaults()
"""The defaults that everybody uses who configures nothing."""

_KNOWN_PARAMETERS: Final = frozenset(
    re.findall(
        r"\S+",
        """
        alias ats cc channel-rcv-ts-offset channel-snd-ts-offset control control-mode endpoint eos fc group
        gtag init-term-id interface linger max-resend media-rcv-ts-offset mtu nak-delay pub-wnd rcv-wnd rejoin
        reliable response-correlation-id session-id so-rcvbuf so-sndbuf so-tos sparse ssc stream-id tags
        term-id term-length term-offset tether ttl untethered-linger-timeout untethered-resting-timeout
        untethered-window-limit-timeout
        """,
    )
)
_SPY_PREFIX: Final = "aeron-spy:"
_MIN_TERM_LENGTH: Final = 64 << 10
_MAX_TERM_LENGTH: Final = 1 << 30
_FRAME_ALIGNMENT: Final = 32
_MAX_MTU: Final = 65_504
_SIZE_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_TIME_UNITS: Final = {"": 1, "ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


def parse_size(text: str) -> int:
    """Bytes from a size as Aeron writes it.

    Raises:
        ChannelError: Not a number with ``k``, ``m``, ``g`` or nothing behind it.

    Example:
        >>> parse_size("64k")
        65536
    """
    found = re.fullmatch(r"([0-9]{1,18})([kmgKMG]?)", text)
    if found is None:
        raise ChannelError(
            f"{text!r} is not a size: a number with k, m, g or nothing behind it", hint="such as 4m"
        )
    return int(found[1]) * _SIZE_UNITS[found[2].lower()]


def format_size(size: int) -> str:
    """A size as Aeron reads it, as short as it gets without rounding.

    Example:
        >>> format_size(4 * 1024 * 1024), format_size(1000)
        ('4m', '1000')
    """
    for unit in ("g", "m", "k"):
        if size and size % _SIZE_UNITS[unit] == 0:
            return f"{size // _SIZE_UNITS[unit]}{unit}"
    return str(size)


def parse_duration_ns(text: str) -> int:
    """Nanoseconds from a duration as Aeron writes it.

    Raises:
        ChannelError: Not a number with ``ns``, ``us``, ``ms``, ``s`` or nothing behind it.

    Example:
        >>> parse_duration_ns("50ms")
        50000000
    """
    found = re.fullmatch(r"([0-9]{1,18})(ns|us|ms|s|)", text, flags=re.ASCII | re.IGNORECASE)
    if found is None:
        raise ChannelError(
            f"{text!r} is not a duration", hint="write a number with ns, us, ms or s, such as 50ms"
        )
    return int(found[1]) * _TIME_UNITS[found[2].lower()]


def check_timer_interval(timer_interval_ms: float, timeouts_ms: Mapping[str, float]) -> None:
    """Refuses a timer that ticks too seldom for time-outs to be kept.

    With a coarser timer one stuck subscriber would silence all others until the next tick, and a media driver
    refuses to start.

    Args:
        timer_interval_ms: How often a media driver looks at its time-outs.
        timeouts_ms: The time-outs by the names that whoever set them knows.

    Raises:
        ConfigError: The interval is not positive, or a time-out is not longer.

    Example:
        >>> check_timer_interval(20, {"linger_ms": 50})
        >>> check_timer_interval(50, {"linger_ms": 50})
        Traceback (most recent call last):
        tensor_pool.errors.ConfigError: timer_interval_ms of 50 must be above 0 and below linger_ms of 50
          try: 20 ms suit the standard time-outs
    """
    for name, timeout_ms in timeouts_ms.items():
        if not 0 < timer_interval_ms < timeout_ms:
            raise ConfigError(
                f"timer_interval_ms of {timer_interval_ms} must be above 0 and below {name} of {timeout_ms}",
                hint=f"{DEFAULT_TIMER_INTERVAL_MS} ms suit the standard time-outs",
            )


@dataclass(frozen=True)
class Channel:
    """A channel in parts.

    Args:
        media: ``ipc`` for processes of one host, ``udp`` for the network.
        params: Parameters by name, in the order in which they are written.
        spy: Whether it listens to a UDP publication of the same host without the network.

    Raises:
        ChannelError: A parameter that Aeron does not know or would refuse.

    Example:
        >>> channel = Channel.parse("aeron:udp?endpoint=127.0.0.1:40123|mtu=8k")
        >>> channel.media, channel.params["mtu"]
        ('udp', '8k')
        >>> str(channel)
        'aeron:udp?endpoint=127.0.0.1:40123|mtu=8k'
    """

    media: Literal["ipc", "udp"]
    params: Mapping[str, str] = field(default_factory=dict)
    spy: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "params", MappingProxyType(dict(self.params)))
        for name, value in self.params.items():
            _check_parameter(name, value)
        if self.spy and self.media != "udp":
            raise ChannelError("only UDP publications can be spied on")
        if self.media == "udp" and not self.params.keys() & {"endpoint", "control", "tags"}:
            raise ChannelError(
                "a UDP channel needs an endpoint or a control address",
                hint="aeron:udp?endpoint=127.0.0.1:40123",
            )
        if self.media == "ipc" and "endpoint" in self.params:
            raise ChannelError(
                "an IPC channel has no endpoint", hint="write aeron:udp?endpoint=... for the network"
            )

    @classmethod
    def parse(cls, text: str) -> Channel:
        """The parts of a channel's text.

        Raises:
            ChannelError: Not a channel.
        """
        if not isinstance(text, str):
            raise ChannelError(f"{text!r} is not a channel", hint='a text such as "aeron:ipc"')
        if len(text) > MAX_CHANNEL_LENGTH:
            raise ChannelError(f"a channel of {len(text)} characters; at most {MAX_CHANNEL_LENGTH} are taken")
        spy = text.startswith(_SPY_PREFIX)
        found = re.fullmatch(r"aeron:(ipc|udp)(?:\?(.*))?", text.removeprefix(_SPY_PREFIX), flags=re.DOTALL)
        if found is None:
            raise ChannelError(
                f"{text!r} is not a channel", hint="aeron:ipc?term-length=4m, or aeron:udp?endpoint=HOST:PORT"
            )
        params: dict[str, str] = {}
        for part in found[2].split("|") if found[2] else []:
            name, equals, value = part.partition("=")
            if not equals:
                raise ChannelError(f"{part!r} in the channel {text!r} is not of the form name=value")
            if name in params:
                raise ChannelError(f"{name!r} stands twice in the channel {text!r}")
            params[name] = value
        return cls("udp" if found[1] == "udp" else "ipc", params, spy)

    def with_defaults(self, defaults: Mapping[str, str]) -> Channel:
        """The same channel with parameters that it does not have yet."""
        return Channel(
            self.media,
            {**self.params, **{k: v for k, v in defaults.items() if k not in self.params}},
            self.spy,
        )

    @property
    def term_length_bytes(self) -> int:
        """Bytes of one term."""
        return parse_size(self.params.get("term-length", DEFAULT_TERM_LENGTH))

    @property
    def mtu_bytes(self) -> int | None:
        """The MTU that the channel names, or None: then it is the media driver's."""
        return parse_size(self.params["mtu"]) if "mtu" in self.params else None

    def __str__(self) -> str:
        text = f"{_SPY_PREFIX if self.spy else ''}aeron:{self.media}"
        params = "|".join(f"{name}={value}" for name, value in self.params.items())
        return f"{text}?{params}" if params else text

    def __hash__(self) -> int:
        return hash(str(self))


def _check_parameter(name: str, value: str) -> None:
    if name not in _KNOWN_PARAMETERS:
        raise ChannelError(
            f"Aeron knows no channel parameter {name!r}, and would ignore it",
            hint=f"one of {', '.join(sorted(_KNOWN_PARAMETERS))}",
        )
    if not value or not value.isprintable() or set(value) & set("|? "):
        raise ChannelError(f"{value!r} can't be the value of the channel parameter {name!r}")
    if name == "term-length":
        size = parse_size(value)
        if not _MIN_TERM_LENGTH <= size <= _MAX_TERM_LENGTH or size & (size - 1):
            raise ChannelError(f"term-length={value}", hint="a power of two from 64k to 1g, such as 4m")
    elif name == "mtu":
        size = parse_size(value)
        if not _FRAME_ALIGNMENT < size <= _MAX_MTU or size % _FRAME_ALIGNMENT:
            raise ChannelError(f"mtu={value}", hint=f"a multiple of {_FRAME_ALIGNMENT}, at most {_MAX_MTU}")
    elif name.startswith("untethered-"):
        parse_duration_ns(value)
    elif name in {"endpoint", "control"}:
        _check_address(name, value)


def _check_address(name: str, value: str) -> None:
    host, _, port = value.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ChannelError(f"{name}={value} is not an address", hint="HOST:PORT, such as 127.0.0.1:40123")


def ipc(*, term_length: str = DEFAULT_TERM_LENGTH, **params: str) -> Channel:
    """A channel for processes of one host.

    Args:
        term_length: Bytes of one of the three terms; messages can be an eighth of it long.
        params: Other parameters, with ``_`` for ``-``.

    Example:
        >>> str(ipc(alias="control"))
        'aeron:ipc?term-length=4m|alias=control'
    """
    return Channel(
        "ipc", {"term-length": term_length} | {name.replace("_", "-"): v for name, v in params.items()}
    )


def udp(endpoint: str, *, term_length: str = DEFAULT_TERM_LENGTH, **params: str) -> Channel:
    """A channel over the network.

    Args:
        endpoint: ``HOST:PORT`` of the receiver, or of the multicast group.
        term_length: Bytes of one of the three terms.
        params: Other parameters, with ``_`` for ``-``.

    Example:
        >>> str(udp("127.0.0.1:40123", mtu="8k"))
        'aeron:udp?endpoint=127.0.0.1:40123|term-length=4m|mtu=8k'
    """
    named = {name.replace("_", "-"): value for name, value in params.items()}
    return Channel("udp", {"endpoint": endpoint, "term-length": term_length} | named)


def for_publication(channel: str | Channel, defaults: ChannelDefaults = STANDARD) -> str:
    """The channel as our publications use it: bounded memory, and slow subscribers are soon left behind.

    Example:
        >>> for_publication("aeron:ipc?term-length=1m").split("|")[1]
        'untethered-window-limit-timeout=50ms'
    """
    parsed = channel if isinstance(channel, Channel) else Channel.parse(channel)
    if parsed.spy:
        raise ChannelError(f"{parsed} can't be published to: spies only listen")
    return str(parsed.with_defaults(defaults.of_publications()))


def for_subscription(channel: str | Channel, defaults: ChannelDefaults = STANDARD) -> str:
    """The channel as our subscriptions use it: on one host they never hold back a publication for long.

    Example:
        >>> for_subscription("aeron:udp?endpoint=127.0.0.1:40123")
        'aeron:udp?endpoint=127.0.0.1:40123|term-length=4m'
    """
    parsed = channel if isinstance(channel, Channel) else Channel.parse(channel)
    same_host = parsed.media == "ipc" or parsed.spy
    return str(
        parsed.with_defaults(
            {"term-length": defaults.term_length} | ({"tether": "false"} if same_host else {})
        )
    )


def check_stream_id(stream_id: int) -> AeronStreamId:
    """The id as an Aeron stream id.

    Raises:
        ChannelError: Not an integer of 32 bits.

    Example:
        >>> check_stream_id(1100)
        1100
    """
    if not isinstance(stream_id, int) or isinstance(stream_id, bool) or not -(2**31) <= stream_id < 2**31:
        raise ChannelError(f"{stream_id!r} is not an Aeron stream id", hint="an integer of 32 bits")
    return AeronStreamId(stream_id)
