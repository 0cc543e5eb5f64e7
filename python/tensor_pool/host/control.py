"""Services on this host, and who commands them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

from tensor_pool.closing import Closing
from tensor_pool.control.client import EventClient
from tensor_pool.control.service import ServiceAgent
from tensor_pool.control.tags import service_tag
from tensor_pool.host import aeron as host_aeron
from tensor_pool.host.connection import configured
from tensor_pool.runtime import AgentRunner, ErrorPolicy, make_idle
from tensor_pool.transport import AeronCounters
from tensor_pool.transport.drain import Drain

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Mapping

    from tensor_pool.config import Config
    from tensor_pool.control.client import KnownService
    from tensor_pool.control.declared import Command, Property
    from tensor_pool.control.events import Event
    from tensor_pool.control.values import Value

__all__ = ["ControlClient", "Service"]

_LONGEST_NAP_S: Final = 0.1


class Service(Closing):
    """A service that others can command; it serves from construction to `close`.

    What is called by commands (`Property.on_change`, `Command.run`) runs on a thread of the service, one
    after the other: what takes long belongs somewhere else.

    Args:
        name: What it is called: ``recorder`` has the tag ``service:recorder``.
        instance: Which one, where there are several: ``service:recorder:2``.
        properties: Values that it has, by their keys.
        commands: What it does, by their keys.
        doc: What it is, in a line.
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
        aeron_dir: str | os.PathLike[str] | None = None,
        config: Config | str | os.PathLike[str] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        found = configured(config, aeron_dir, settings)
        declared: dict[str, Property | Command] = {**(properties or {}), **(commands or {})}
        with contextlib.ExitStack() as opening:
            client = opening.enter_context(host_aeron.connect(found.aeron, name=name))
            self._drain = opening.enter_context(Drain(client, name="service drain"))
            counters = AeronCounters(client)
            self._agent = ServiceAgent(
                self._drain.client,
                found,
                service_tag(name, instance),
                declared,
                doc=doc,
                counters=counters,
            )
            self._runner = opening.enter_context(
                AgentRunner(
                    self._agent,
                    idle=make_idle("doorbell", bell=self._drain, max_pause_s=_LONGEST_NAP_S),
                    policy=ErrorPolicy(limit=found.agents.error_limit),
                    counters=counters,
                )
            )
            self._own = opening.pop_all()

    @property
    def tag(self) -> str:
        """Who it is to others."""
        return self._agent.tag

    @property
    def is_running(self) -> bool:
        """Whether it serves."""
        return self._runner.is_running

    @property
    def error(self) -> BaseException | None:
        """What ended it, unless it was closed."""
        return self._runner.error

    def __getitem__(self, key: str) -> Any:
        """The present value of a property."""
        return self._agent.desk[key]

    def __setitem__(self, key: str, value: Value) -> None:
        """The service itself changes a property, and tells it.

        Raises:
            KeyError: There is no such property.
            ValueError: The value is none for it.
        """
        self._agent.desk.set(key, value)
        self._drain.wake()

    def tell(self, key: str, value: Value = None, *, correlation_id: int = 0) -> None:
        """Tells everybody of something that happened, as an event on the status stream.

        Raises:
            ValueError: The key can't be one, or an event can't carry the value.
        """
        self._agent.post(key, value, correlation_id=correlation_id)
        self._drain.wake()

    def close(self) -> None:
        """Says goodbye and ends. May be called again."""
        self._own.close()


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
        tensor_pool.errors.NoServiceError: service:lamp does not answer: nobody listens to commands here
          try: tpool services lists those that do
    """

    def __init__(
        self,
        *,
        tags: Iterable[str] | None = None,
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
