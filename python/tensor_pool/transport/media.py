"""The media driver: the process (or part of one) that owns Aeron's shared memory and sockets of a host.

Three ways to have one, with one interface:

* `EmbeddedMediaDriver` runs on a thread of this process: a first try, tests, a host with one service;
* `tensor_pool.transport.spawned.SpawnedMediaDriver` runs in a process of its own that ends with this one;
* `ExternalMediaDriver` is somebody else's, found by its directory.

Everybody who names the same directory meets there. `default_aeron_dir` says which one that is when nobody
says.

Example:
    >>> with EmbeddedMediaDriver.temporary() as driver:
    ...     is_alive(driver.aeron_dir)
    True
"""

from __future__ import annotations

import os
import pwd
import re
import time
import weakref
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, Protocol, Self

from tensor_pool import _native, errors
from tensor_pool.channels import DEFAULT_TIMER_INTERVAL_MS, STANDARD, check_timer_interval, parse_size
from tensor_pool.closing import Closing
from tensor_pool.transport.aeron_dir import is_somebody_elses, start_hint

__all__ = [
    "EmbeddedMediaDriver",
    "ExternalMediaDriver",
    "MediaDriver",
    "MediaDriverOptions",
    "MediaDriverStatus",
    "default_aeron_dir",
    "is_alive",
    "media_driver_status",
    "resolve_aeron_dir",
    "temporary_aeron_dir",
]

_OUR_VARIABLES: Final = ("TENSOR_POOL__AERON__DIR", "TENSOR_POOL__AERON_DIR")
"""The key `aeron.dir` in the environment, as `tensor_pool.config` reads it, and its short form."""
_NS_PER_MS: Final = 1_000_000
_SHORTEST_SLEEP_US: Final = 50
_COUNTER_VALUE_BYTES: Final = 128
_MIN_COUNTERS: Final = 8_192
_MAX_COUNTERS: Final = 4_096_000
_LIVENESS_TIMEOUT_MS: Final = 10_000
_TEMPORARY: Final = re.compile(r"tensor-pool-(\d+)-[0-9a-f]{12}")
"""Aeron's own limit for a media driver's silence."""


def default_aeron_dir() -> str:
    """The directory that everybody uses when nobody says another.

    ``TENSOR_POOL__AERON__DIR`` (or, shorter, ``TENSOR_POOL__AERON_DIR``), else ``AERON_DIR``, else the one
    that Aeron itself takes: ``/dev/shm/aeron-USER``, so that programs of other makers on the same host are
    met without configuration. A configuration file is not read; who has one asks `tensor_pool.host.aeron`.

    Raises:
        ConfigError: The first two name different directories.

    Example:
        >>> import os
        >>> os.environ["TENSOR_POOL__AERON_DIR"] = "/dev/shm/example"
        >>> default_aeron_dir()
        '/dev/shm/example'
        >>> del os.environ["TENSOR_POOL__AERON_DIR"]
    """
    ours = {name: os.environ[name] for name in _OUR_VARIABLES if os.environ.get(name)}
    if len(set(ours.values())) > 1:
        raise errors.ConfigError(
            f"{' and '.join(ours)} name different directories",
            hint=f"unset one of them: {' or '.join(map(repr, ours.values()))}",
        )
    if directory := next(iter(ours.values()), None) or os.environ.get("AERON_DIR"):
        return directory
    user = os.environ.get("USER")
    if user is None:
        try:
            user = pwd.getpwuid(os.getuid()).pw_name
        except KeyError:  # a container with a made-up user id
            user = "default"
    return f"/dev/shm/aeron-{user}"  # noqa: S108 - Aeron's own place


def resolve_aeron_dir(aeron_dir: str | os.PathLike[str] | None) -> str:
    """The directory that was named, or `default_aeron_dir()` when none was.

    Example:
        >>> resolve_aeron_dir("/dev/shm/example")
        '/dev/shm/example'
    """
    return os.fspath(aeron_dir) if aeron_dir is not None else default_aeron_dir()


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaDriverOptions:
    """How a media driver runs. What is not here stays as Aeron's own environment variables say.

    Args:
        threading: ``shared`` does all work on one thread; ``shared_network`` and ``dedicated`` take two and
            three, for hosts that have the cores and need low latency between hosts.
        idle: ``backoff`` sleeps longer and longer while there is nothing to do; ``yield`` and ``spin`` take a
            core.
        idle_max_sleep_ms: The longest sleep of ``backoff``.
        timer_interval_ms: How often time-outs are looked at. Must be shorter than every other time here.
        client_liveness_ms: A client that shows no life for this long is dropped.
        publication_connection_ms: A receiver on another host that says nothing for this long is not there;
            they say something five times a second.
        untethered_window_limit_ms: How long a subscriber may hold back a publication that says nothing
            itself.
        untethered_linger_ms: How long it then stays where it is.
        untethered_resting_ms: How long it rests before it joins again.
        term_bytes: Bytes of one of the three terms of a UDP publication that says nothing itself.
        ipc_term_bytes: The same for IPC.
        sparse_terms: Take memory for terms only when they are written. Without it they are allocated at once,
            and a full /dev/shm is an error when a publication is added instead of the death of who writes to
            it.
        max_counters: How many counters all clients together can have; each takes 640 bytes of shared memory,
            used or not. Every publication and subscription takes a few.
        delete_dir_on_start: Replace what a dead media driver left behind, instead of refusing to start.
        delete_dir_on_shutdown: Remove the directory at a clean end.

    Example:
        >>> MediaDriverOptions(threading="dedicated", idle="spin").timer_interval_ms
        20
    """

    threading: Literal["shared", "shared_network", "dedicated"] = "shared"
    idle: Literal["backoff", "yield", "spin"] = "backoff"
    idle_max_sleep_ms: float = 4
    timer_interval_ms: float = DEFAULT_TIMER_INTERVAL_MS
    client_liveness_ms: float = 10_000
    publication_connection_ms: float = 1_000
    untethered_window_limit_ms: float = STANDARD.window_limit_ms
    untethered_linger_ms: float = STANDARD.linger_ms
    untethered_resting_ms: float = STANDARD.resting_ms
    term_bytes: int = parse_size(STANDARD.term_length)
    ipc_term_bytes: int = parse_size(STANDARD.term_length)
    sparse_terms: bool = True
    max_counters: int = _MIN_COUNTERS
    delete_dir_on_start: bool = True
    delete_dir_on_shutdown: bool = True

    def __post_init__(self) -> None:
        choices = {
            "threading": ("shared", "shared_network", "dedicated"),
            "idle": ("backoff", "yield", "spin"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise errors.ConfigError(
                    f"{name}={getattr(self, name)!r}", hint=f"one of {', '.join(allowed)}"
                )
        timeouts = ("client_liveness", "untethered_window_limit", "untethered_linger", "untethered_resting")
        check_timer_interval(
            self.timer_interval_ms, {f"{name}_ms": getattr(self, f"{name}_ms") for name in timeouts}
        )
        if not _MIN_COUNTERS <= self.max_counters <= _MAX_COUNTERS:
            raise errors.ConfigError(
                f"max_counters={self.max_counters}", hint=f"from {_MIN_COUNTERS} to {_MAX_COUNTERS}"
            )
        if not 0 < self.idle_max_sleep_ms <= self.timer_interval_ms:
            raise errors.ConfigError(
                f"idle_max_sleep_ms={self.idle_max_sleep_ms}", hint="positive, and at most timer_interval_ms"
            )

    def _idle_arguments(self) -> str | None:
        if self.idle != "backoff":
            return None
        longest_us = max(1, round(self.idle_max_sleep_ms * 1e3))
        # Spinning and yielding first would gain microseconds after each wake-up and cost more than the
        # sleeps. Short sleeps first cost little: what comes together with something else mostly comes soon.
        return f"1-1-{min(_SHORTEST_SLEEP_US, longest_us)}us-{longest_us}us"

    def start(self, aeron_dir: str) -> _native.AeronMediaDriver:
        """Starts a media driver of this kind on threads of this process."""
        return _native.AeronMediaDriver(
            aeron_dir=aeron_dir,
            dir_delete_on_start=self.delete_dir_on_start,
            dir_delete_on_shutdown=self.delete_dir_on_shutdown,
            threading_mode=self.threading,
            idle_strategy=self.idle,
            idle_arguments=self._idle_arguments(),
            timer_interval_ns=round(self.timer_interval_ms * _NS_PER_MS),
            client_liveness_ns=round(self.client_liveness_ms * _NS_PER_MS),
            # Who looks seldom can't notice sooner.
            publication_connection_ns=round(
                max(self.publication_connection_ms, 2 * self.timer_interval_ms) * _NS_PER_MS
            ),
            untethered_window_limit_ns=round(self.untethered_window_limit_ms * _NS_PER_MS),
            untethered_linger_ns=round(self.untethered_linger_ms * _NS_PER_MS),
            untethered_resting_ns=round(self.untethered_resting_ms * _NS_PER_MS),
            term_buffer_bytes=self.term_bytes,
            ipc_term_buffer_bytes=self.ipc_term_bytes,
            sparse_terms=self.sparse_terms,
            counter_values_bytes=_COUNTER_VALUE_BYTES * self.max_counters,
        )


DEFAULT_OPTIONS: Final = MediaDriverOptions()


class MediaDriverStatus(NamedTuple):
    """What a media driver says about itself."""

    aeron_dir: str
    pid: int
    start_ms: int
    """When it started, in milliseconds since 1970."""
    heartbeat_ms: int
    """When it last showed life, in milliseconds since 1970; -1 after a clean end."""
    client_liveness_ms: float
    """After this silence it drops a client."""
    alive: bool

    @property
    def heartbeat_age_s(self) -> float | None:
        """Seconds since it last showed life; None before it started or after it ended cleanly."""
        return max(0.0, time.time() - self.heartbeat_ms / 1e3) if self.heartbeat_ms > 0 else None


def media_driver_status(
    aeron_dir: str | os.PathLike[str] | None = None, *, timeout_ms: float = _LIVENESS_TIMEOUT_MS
) -> MediaDriverStatus | None:
    """The state of the media driver of a directory, dead or alive; None when there never was one.

    Example:
        >>> media_driver_status("/nonexistent") is None
        True
    """
    directory = resolve_aeron_dir(aeron_dir)
    try:
        pid, start_ms, heartbeat_ms, liveness_ns, alive = _native.aeron_driver_status(
            directory, round(timeout_ms * _NS_PER_MS)
        )
    except errors.NoMediaDriverError:
        return None
    return MediaDriverStatus(directory, pid, start_ms, heartbeat_ms, liveness_ns / _NS_PER_MS, alive)


def is_alive(
    aeron_dir: str | os.PathLike[str] | None = None, *, timeout_ms: float = _LIVENESS_TIMEOUT_MS
) -> bool:
    """Whether a media driver serves a directory and showed life within the time-out."""
    status = media_driver_status(aeron_dir, timeout_ms=timeout_ms)
    return status is not None and status.alive


class MediaDriver(Closing, Protocol):
    """A media driver, wherever it runs."""

    @property
    def aeron_dir(self) -> str:
        """The directory where clients meet it."""
        ...

    @property
    def pid(self) -> int:
        """The process it runs in."""
        ...

    def is_alive(self) -> bool:
        """Whether it runs."""
        ...

    def close(self) -> None:
        """Ends it if it is ours; may be called again."""
        ...


class EmbeddedMediaDriver(Closing):
    """A media driver on threads of this process.

    Args:
        aeron_dir: An absolute path; `default_aeron_dir()` when not given.
        options: How it runs.

    Raises:
        TransportError: A live media driver serves the directory, or it holds other things than a media
            driver's.

    Example:
        >>> with EmbeddedMediaDriver.temporary() as driver:
        ...     driver.is_alive()
        True
    """

    def __init__(
        self,
        aeron_dir: str | os.PathLike[str] | None = None,
        options: MediaDriverOptions = DEFAULT_OPTIONS,
    ) -> None:
        directory = resolve_aeron_dir(aeron_dir)
        self._native = options.start(directory)
        self._pid = os.getpid()
        # Ends it before the interpreter does, even when a daemon thread still holds a reference.
        weakref.finalize(self, _close_in, self._pid, self._native)

    @classmethod
    def temporary(cls, options: MediaDriverOptions = DEFAULT_OPTIONS) -> Self:
        """One in a directory of its own that nobody else uses, gone at the end."""
        return cls(temporary_aeron_dir(), options)

    @property
    def aeron_dir(self) -> str:
        """The directory where clients meet it."""
        return self._native.aeron_dir

    @property
    def pid(self) -> int:
        """This process, or the one it was forked from."""
        return self._pid

    def is_alive(self) -> bool:
        """Whether it runs."""
        return not self._native.closed

    def close(self) -> None:
        """Ends it; clients notice within a second. May be called again."""
        self._native.close()


def _close_in(pid: int, native: _native.AeronMediaDriver) -> None:
    if os.getpid() == pid:
        native.close()


def temporary_aeron_dir() -> str:
    """The name of a directory in shared memory that nobody uses; nothing is made."""
    unique = f"{os.getpid()}-{os.urandom(6).hex()}"
    return f"/dev/shm/tensor-pool-{unique}"  # noqa: S108 - shared memory is the point


def temporary_dir_pid(name: str) -> int | None:
    """Whose directory that is, by its name; None when `temporary_aeron_dir` gives no such name.

    Example:
        >>> temporary_dir_pid("tensor-pool-4711-0123456789ab"), temporary_dir_pid("aeron-ada")
        (4711, None)
    """
    found = _TEMPORARY.fullmatch(name)
    return None if found is None else int(found[1])


class ExternalMediaDriver(Closing):
    """A media driver that somebody else runs.

    Args:
        aeron_dir: Its directory; `default_aeron_dir()` when not given.

    Raises:
        NoMediaDriverError: It is not alive, or this user may not use it.

    Example:
        >>> with EmbeddedMediaDriver.temporary() as theirs, ExternalMediaDriver(theirs.aeron_dir) as driver:
        ...     driver.pid == theirs.pid
        True
    """

    def __init__(self, aeron_dir: str | os.PathLike[str] | None = None) -> None:
        self.aeron_dir: Final = resolve_aeron_dir(aeron_dir)
        status = media_driver_status(self.aeron_dir)
        if status is None or not status.alive:
            if is_somebody_elses(self.aeron_dir):
                _native.aeron_driver_status(self.aeron_dir, 0)  # raises, and has the words for it
            raise errors.NoMediaDriverError(
                f"no live media driver serves {self.aeron_dir}",
                hint=start_hint(self.aeron_dir),
            )
        self.pid: Final = status.pid

    def is_alive(self) -> bool:
        """Whether it showed life lately."""
        return is_alive(self.aeron_dir)

    def close(self) -> None:
        """Does nothing: it is not ours."""
