"""Services on this host, and who commands them."""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import TYPE_CHECKING, Any, Final

from tensor_pool.closing import Closing
from tensor_pool.control.client import EventClient
from tensor_pool.control.desk import ServiceDesk
from tensor_pool.control.service import ServiceAgent
from tensor_pool.control.tags import service_tag
from tensor_pool.errors import ClosedError, TensorPoolError
from tensor_pool.host import aeron as host_aeron
from tensor_pool.host.connection import configured
from tensor_pool.runtime import AgentRunner, ErrorPolicy, make_idle
from tensor_pool.transport import AeronCounters
from tensor_pool.transport.drain import Drain

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from tensor_pool.config import Config
    from tensor_pool.control.client import KnownService
    from tensor_pool.control.declared import Command, Property
    from tensor_pool.control.events import Event
    from tensor_pool.control.values import Value

__all__ = ["ControlClient", "Service"]

_LOG: Final = logging.getLogger(__name__)
_LONGEST_NAP_S: Final = 0.1
_LOOK_S: Final = 0.25


class Service(Closing):
    """A service that others can command; it serves from construction to `close`.

    What is called by commands (`Property.on_change`, `Command.run`) runs on a thread of the service, one
    after the other: what takes long belongs somewhere else. A media driver that is lost is looked for.

    Args:
        name: What it is called: ``recorder`` has the tag ``service:recorder``.
        instance: Which one, where there are several: ``service:recorder:2``.
        properties: Values that it has, by their keys.
        commands: What it does, by their keys.
        doc: What it is, in a line.
        refresh: Called with the service several times a second, to bring its readings up to date.
        aeron_dir: The directory of this host's media driver.
        config: A configuration, or the path of a ``tensor-pool.toml``; found as usual when left out.
        settings: Configuration keys with their values.

    Raises:
        NoMediaDriverError: Nobody runs a media driver here.
        ValueError: The name or a key can't be one.

    Example:
        >>> import tensor_pool as tp
        >>> from tensor_pool.control import Command, Property
        >>> with tp.connect(embedded=True) as pool:
        ...     lamp = tp.Service(
        ...         "lamp",
        ...         properties={"brightness": Property(float, default=0.0, least=0, most=1)},
        ...         commands={"blink": Command(lambda _: print("blinks"))},
        ...         aeron_dir=pool.aeron_dir,
        ...     )
        ...     with lamp, tp.ControlClient(aeron_dir=pool.aeron_dir) as control:
        ...         _ = control.send("lamp", "brightness", 0.5), control.send("lamp", "blink")
        ...         lamp["brightness"]
        blinks
        0.5
    """

    def __init__(
        self,
        name: str,
        *,
        instance: str = "",
        properties: Mapping[str, Property] | None = None,
        commands: Mapping[str, Command] | None = None,
        doc: str = "",
        refresh: Callable[[Service], object] | None = None,
        aeron_dir: str | os.PathLike[str] | None = None,
        config: Config | str | os.PathLike[str] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self._config = configured(config, aeron_dir, settings)
        self._name = name
        self._doc = doc
        self._refresh = refresh
        self.tag: Final = service_tag(name, instance)
        """Who it is to others."""
        twice = (properties or {}).keys() & (commands or {}).keys()
        if twice:
            raise ValueError(f"both a property and a command: {', '.join(sorted(twice))}")
        self._desk = ServiceDesk({**(properties or {}), **(commands or {})})
        self._own = contextlib.ExitStack()
        self._drain: Drain | None = None
        self._runner: AgentRunner | None = None
        self._open()
        self._stop = threading.Event()
        self._watching = threading.Thread(target=self._watch, name=f"{name} watch", daemon=True)
        self._watching.start()

    @property
    def is_running(self) -> bool:
        """Whether it can be commanded now; a media driver that it has lost is looked for until `close`."""
        return self._runner is not None and self._runner.is_running

    @property
    def ignored(self) -> int:
        """Messages for others that were left out before Python saw them."""
        return self._agent.ignored

    def __getitem__(self, key: str) -> Any:
        """The present value of a property."""
        return self._desk[key]

    def __setitem__(self, key: str, value: Value) -> None:
        """The service itself changes a property, and tells it.

        Raises:
            KeyError: There is no such property.
            ValueError: The value is none for it.
        """
        self._desk.set(key, value)
        self._wake()

    def tell(self, key: str, value: Value = None, *, correlation_id: int = 0) -> None:
        """Tells everybody of something that happened, as an event on the status stream.

        Raises:
            ValueError: The key can't be one, or an event can't carry the value.
        """
        self._desk.post(key, value, correlation_id=correlation_id)
        self._wake()

    def close(self) -> None:
        """Says goodbye and ends. May be called again."""
        self._stop.set()
        own = {self._agent.thread_id, self._watching.ident}
        if threading.get_ident() not in own:  # a command or a reading that closes it does not wait for itself
            self._watching.join()

    def _wake(self) -> None:
        with contextlib.suppress(ClosedError):  # it is being opened anew, and looks then
            if self._drain is not None:
                self._drain.wake()

    def _open(self) -> None:
        with contextlib.ExitStack() as opening:
            client = opening.enter_context(host_aeron.connect(self._config.aeron, name=self._name))
            self._drain = opening.enter_context(Drain(client, name="service drain"))
            counters = AeronCounters(client)
            self._agent = ServiceAgent(
                self._drain.client, self._config, self.tag, self._desk, doc=self._doc, counters=counters
            )
            self._runner = opening.enter_context(
                AgentRunner(
                    self._agent,
                    idle=make_idle("doorbell", bell=self._drain, max_pause_s=_LONGEST_NAP_S),
                    policy=ErrorPolicy(limit=self._config.agents.error_limit),
                    counters=counters,
                )
            )
            self._own = opening.pop_all()

    def _watch(self) -> None:
        try:
            self._keep_open()
            self._look()  # the last readings are told before goodbye
        finally:
            self._own.close()

    def _keep_open(self) -> None:
        while not self._stop.wait(_LOOK_S):
            if not self.is_running:
                try:
                    self._own.close()
                    self._open()
                except (TensorPoolError, OSError) as e:
                    _LOG.debug("%s can't be commanded: %s", self.tag, e)
            self._look()

    def _look(self) -> None:
        if self._refresh is not None:
            try:
                self._refresh(self)
            except Exception:
                _LOG.exception("%s does not know how it is", self.tag)


class ControlClient(Closing):
    """Commands services, and hears what they tell. For one thread at a time.

    Args:
        tags: Only events of these services are heard; None for all.
        hears_commands: Whether commands are heard too, accepted or not.
        aeron_dir: The directory of this host's media driver.
        config: A configuration, or the path of a ``tensor-pool.toml``; found as usual when left out.
        settings: Configuration keys with their values.

    Raises:
        NoMediaDriverError: Nobody runs a media driver here.

    Example:
        >>> import tensor_pool as tp
        >>> with tp.connect(embedded=True) as pool, tp.ControlClient(aeron_dir=pool.aeron_dir) as control:
        ...     control.send("lamp", "on", True, timeout_s=0.1)
        Traceback (most recent call last):
        tensor_pool.errors.NoServiceError: service:lamp does not answer: no echo of on within 0.1 s
          try: tpool services lists those that do; one that refuses very many commands does not tell of all
    """

    def __init__(
        self,
        *,
        tags: str | Iterable[str] | None = None,
        hears_commands: bool = False,
        aeron_dir: str | os.PathLike[str] | None = None,
        config: Config | str | os.PathLike[str] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        found = configured(config, aeron_dir, settings)
        with contextlib.ExitStack() as opening:
            client = opening.enter_context(host_aeron.connect(found.aeron, name="control"))
            drain = opening.enter_context(Drain(client, name="control drain", longest_pause_ms=5))
            self._events = opening.enter_context(
                EventClient(
                    drain.client,
                    found,
                    wait=drain.wait,
                    tags=tags,
                    hears_commands=hears_commands,
                )
            )
            self._own = opening.pop_all()

    def send(self, service: str, key: str, value: Value = None, **options: Any) -> Event:
        """Commands a service, and waits until it has accepted; see `EventClient.send`.

        Raises:
            CommandRefusedError: The service does not accept it; the text says why.
            NoServiceError: Nobody of that name answered.
            ValueError: The name, the key or the value can't be.
        """
        return self._events.send(service, key, value, **options)

    def services(self, *, timeout_s: float | None = None, only: str = "") -> list[KnownService]:
        """The services that tell of themselves, with their properties; see `EventClient.services`."""
        return self._events.services(timeout_s=timeout_s, only=only)

    def events(self, *, timeout_s: float | None = None) -> Iterator[Event]:
        """What comes, in its order, until nothing came for so long; None for ever."""
        return self._events.events(timeout_s=timeout_s)

    @property
    def malformed(self) -> int:
        """Events that could not be read."""
        return self._events.malformed

    def close(self) -> None:
        """Ends the connection. May be called again."""
        self._own.close()
