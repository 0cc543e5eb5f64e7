"""Commands services, and hears what they tell."""

from __future__ import annotations

import secrets
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tensor_pool.closing import Closing
from tensor_pool.control.config import ControlPlaces, ControlSection
from tensor_pool.control.desk import Refusal
from tensor_pool.control.ear import EventEar, listen
from tensor_pool.control.events import Event, EventForm, event_message
from tensor_pool.control.service import ENDED, INFO, REFUSED, ServiceInfo
from tensor_pool.control.tags import check_key, service_tag
from tensor_pool.errors import CommandRefusedError, MalformedMessageError, NoServiceError
from tensor_pool.transport import OfferResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tensor_pool.config import Config
    from tensor_pool.control.values import Value
    from tensor_pool.transport import Client
    from tensor_pool.wire.messages import EventMessage, Format

__all__ = ["EventClient", "KnownService"]

_CONNECT_S: Final = 0.5
"""How long a new client waits for streams that are not there yet: those to other hosts take their time."""
_LOOK_S: Final = 0.005
_MAX_EVENTS: Final = 10_000
"""Events that nobody has read yet; the oldest go first."""
_MAX_SERVICES: Final = 1_000


class KnownService(msgspec.Struct, kw_only=True):
    """A service that was heard, and its properties.

    Example:
        >>> KnownService(info=ServiceInfo(tag="service:camera", host="lab-3", pid=42)).values
        {}
    """

    info: ServiceInfo
    values: dict[str, Any] = msgspec.field(default_factory=dict)


class EventClient(Closing):
    """The other side of services. For one thread at a time.

    Args:
        client: Aeron, or what stands for it.
        config: The sections ``control`` and ``streams``.
        wait: Sleeps for at most so many seconds, or until something comes.
        tags: Only events with these tags are heard; None for all.
        hears_commands: Whether commands are heard too, accepted or not.
    """

    def __init__(
        self,
        client: Client,
        config: Config,
        *,
        wait: Callable[[float], object] = time.sleep,
        tags: str | Iterable[str] | None = None,
        hears_commands: bool = False,
    ) -> None:
        section, places = config[ControlSection], ControlPlaces.of(config)
        self._form = EventForm(section.schema_id)
        self._wait = wait
        self._period_s = section.status_period_ms / 1_000
        self._commands = [client.add_publication(*endpoint) for endpoint in places.commanded_at]
        wanted = None if tags is None else [service_tag(tag) for tag in _listed(tags)]
        self._ears = [
            EventEar(listen(client, endpoint, self._form.kind, tags=wanted), self._on_message)
            for endpoint in [
                *places.followed_at,
                *(places.commanded_at[:1] if hears_commands else []),
            ]
        ]
        self._wanted = None if wanted is None else frozenset(wanted)
        self._connect_until = time.monotonic() + _CONNECT_S
        self._events: deque[Event] = deque(maxlen=_MAX_EVENTS)
        self.malformed = 0
        """Events that could not be read."""

    def send(
        self,
        service: str,
        key: str,
        value: Value = None,
        *,
        correlation_id: int = 0,
        format: Format | None = None,  # noqa: A002 - the field's name
        timeout_s: float = 2.0,
    ) -> Event:
        """Commands a service, and waits until it has accepted.

        Args:
            service: Its name, ``NAME:INSTANCE``, or its tag.
            key: A property or a command.
            value: What it is to be, or to be done with.
            correlation_id: What the echo carries too, a trace id say; one of its own when left out.
            format: How a number travels; 64 bits otherwise.
            timeout_s: How long to wait.

        Returns:
            The echo.

        Raises:
            CommandRefusedError: The service does not accept it; the text says why.
            NoServiceError: Nobody of that name answered.
            ValueError: The name, the key or the value can't be.
        """
        tag = service_tag(service)
        if self._wanted is not None and tag not in self._wanted:
            raise ValueError(f"{tag} would not be heard: this client hears {', '.join(sorted(self._wanted))}")
        number = correlation_id or secrets.randbits(62) + 1
        deadline = time.monotonic() + timeout_s
        self._connect(min(deadline, self._connect_until))
        # After that: what was said before a service began is not for it.
        message = event_message(tag, check_key(key), value, correlation_id=number, format=format)
        self._forget()
        if not self._offer(self._form.encode(message), deadline):
            raise _no_service(tag, "nobody listens to commands here")
        for event in self._until(deadline):
            if event.tag != tag:
                continue
            if event.correlation_id == number and event.key == key:
                return event
            refusal = _refusal(event)
            if refusal is not None and (refusal.correlation_id, refusal.key) == (number, key):
                raise CommandRefusedError(
                    f"{tag} does not accept {key}: {refusal.text}", hint="tpool services says what it takes"
                )
        raise _no_service(tag, f"no echo of {key} within {timeout_s:g} s")

    def services(self, *, timeout_s: float | None = None, only: str = "") -> list[KnownService]:
        """The services that tell of themselves, with their properties.

        Args:
            timeout_s: How long to listen; a little more than the period of status by default.
            only: The name of the one that is wanted: known as soon as it has told everything.
        """
        wanted = service_tag(only) if only else ""
        self._forget()
        deadline = time.monotonic() + (1.25 * self._period_s if timeout_s is None else timeout_s)
        found: dict[tuple[str, str, int], KnownService] = {}
        last: dict[str, KnownService] = {}
        for event in self._until(deadline):
            if wanted and event.tag != wanted:
                continue
            if event.key == INFO:
                info = _info(event)
                if info is not None and len(found) < _MAX_SERVICES:
                    key = (info.tag, info.host, info.pid)
                    last[event.tag] = found.setdefault(key, KnownService(info=info))
            elif event.key == ENDED and event.tag in last:
                gone = last.pop(event.tag).info
                found.pop((gone.tag, gone.host, gone.pid), None)
            elif event.tag in last:
                service = last[event.tag]
                if any(declared.key == event.key for declared in service.info.properties):
                    service.values[event.key] = event.value
            if wanted and wanted in last and len(last[wanted].values) == len(last[wanted].info.properties):
                break
        return sorted(found.values(), key=lambda known: (known.info.tag, known.info.host, known.info.pid))

    def events(self, *, timeout_s: float | None = None) -> Iterator[Event]:
        """What comes, in its order, until nothing came for so long; None for ever."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        for event in self._until(deadline):
            yield event
            deadline = None if timeout_s is None else time.monotonic() + timeout_s

    def close(self) -> None:
        """Closes everything. May be called again."""
        for ear in self._ears:
            ear.close()
        for publication in self._commands:
            publication.close()

    def _connect(self, deadline: float) -> None:
        """Waits for the streams; one whose host is away is not waited for any longer."""
        while not (
            all(publication.connected for publication in self._commands)
            and all(ear.subscription.connected for ear in self._ears)
        ):
            if time.monotonic() >= deadline:
                return
            self._wait(_LOOK_S)

    def _offer(self, data: bytes, deadline: float) -> bool:
        """Whether anybody may have heard it."""
        sent = False
        for publication in self._commands:
            while (result := publication.offer(data)) is not OfferResult.SENT:
                if result is OfferResult.NOT_CONNECTED or time.monotonic() >= deadline:
                    break
                self._wait(_LOOK_S)
            sent |= result is OfferResult.SENT
        return sent

    def _until(self, deadline: float | None) -> Iterator[Event]:
        while True:
            self._take_all()
            while self._events:
                yield self._events.popleft()
            left = 1.0 if deadline is None else deadline - time.monotonic()
            if left <= 0:
                return
            self._wait(min(left, _LOOK_S if self._wait is time.sleep else 0.1))

    def _forget(self) -> None:
        """What came before has nothing to do with what is asked now."""
        self._take_all()
        self._events.clear()

    def _take_all(self) -> None:
        for ear in self._ears:
            while ear.poll():
                pass

    def _on_message(self, data: bytes, source: str) -> None:
        try:
            message = self._form.decode(data)
            if message is not None and self._is_wanted(message):
                self._events.append(Event.of(message, source))
        except MalformedMessageError:
            self.malformed += 1

    def _is_wanted(self, message: EventMessage) -> bool:
        return self._wanted is None or message.tag in self._wanted


def _info(event: Event) -> ServiceInfo | None:
    try:
        info = msgspec.json.decode(event.value, type=ServiceInfo)
    except (msgspec.MsgspecError, TypeError):
        return None
    return info if info.tag == event.tag else None


def _refusal(event: Event) -> Refusal | None:
    if event.key != REFUSED:
        return None
    try:
        return msgspec.json.decode(event.value, type=Refusal)
    except (msgspec.MsgspecError, TypeError):
        return None


def _listed(tags: str | Iterable[str]) -> Iterable[str]:
    return [tags] if isinstance(tags, str) else tags


def _no_service(tag: str, why: str) -> NoServiceError:
    return NoServiceError(
        f"{tag} does not answer: {why}",
        hint="tpool services lists those that do; one that refuses very many commands does not tell of all",
    )
