"""The supervisor of a host from its configuration, and how to ask one that runs."""

from __future__ import annotations

import contextlib
import secrets
import time
from typing import TYPE_CHECKING, Final

import msgspec

from tensor_pool.closing import Closing
from tensor_pool.control.config import ControlSection
from tensor_pool.control.declared import Command, Property, reading
from tensor_pool.control.supervisor.agent import SupervisorAgent
from tensor_pool.control.supervisor.config import Setting
from tensor_pool.control.supervisor.journal import Entry
from tensor_pool.control.supervisor.pages import HEALTH, LOG, PageCollector, pages_of_log, pages_of_view
from tensor_pool.control.tags import service_tag
from tensor_pool.driver import DriverSection
from tensor_pool.errors import NoServiceError
from tensor_pool.host.control import ControlClient, Service
from tensor_pool.host.running import RunningAgent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensor_pool.config import Config
    from tensor_pool.control.supervisor.journal import Journal
    from tensor_pool.control.supervisor.view import SupervisorView
    from tensor_pool.runtime import CounterFactory
    from tensor_pool.transport.drain import Drain

__all__ = ["Supervisor", "SupervisorClient"]

_NAME: Final = "supervisor"
_DECISION: Final = "decision"
_DRY_RUN: Final = "dry_run"


class Supervisor(RunningAgent):
    """Watches the streams of this host and moves consumers that can't keep up, from construction to `close`.

    It is a service, too: who commands ``service:supervisor`` may set ``dry_run``, and hears of each decision.

    Args:
        config: The sections ``supervisor``, ``streams``, ``driver``, ``client``, ``shm``, ``agents``,
            ``aeron`` and ``control``.

    Raises:
        NoMediaDriverError: Nobody runs a media driver here.

    Example:
        >>> import tensor_pool as tp
        >>> from tensor_pool.testing import wait_until
        >>> with tp.connect(embedded=True) as pool, pool.producer("camera", dtype="uint8", shape=(4,)):
        ...     config = tp.load_config(overrides={"aeron.dir": pool.aeron_dir}, environ={}, search=False)
        ...     with Supervisor(config) as supervisor:
        ...         wait_until(lambda: [each.name for each in supervisor.view().streams if each.name])
        ['camera']
    """

    def __init__(self, config: Config) -> None:
        self.setting: Final = Setting.of(config)

        def make(drain: Drain, counters: CounterFactory) -> SupervisorAgent:
            self._agent = SupervisorAgent(
                drain.client, self.setting, counters=counters, subscribe=drain.subscribe
            )
            return self._agent

        super().__init__(config, "supervisor", make)
        self._service: Service | None = None
        if config[ControlSection].enabled:
            try:
                self._service = self._open_service(config)
            except BaseException:
                self.close()
                raise
            self._agent.journal.on_decision = self._tell

    def _open_service(self, config: Config) -> Service:
        return Service(
            _NAME,
            instance=config[DriverSection].instance_id,
            properties={
                _DRY_RUN: Property(
                    bool,
                    default=self._agent.dry_run,
                    on_change=self._set_dry_run,
                    doc="Whether decisions are only logged.",
                ),
                "supervisor.streams": reading(int, "Streams that it watches.", 0),
                "supervisor.dead": reading(int, "Streams without a living producer.", 0),
                "supervisor.consumers": reading(int, "Consumers that it watches.", 0),
                "supervisor.slow": reading(int, "Consumers that are slow or stuck.", 0),
                "supervisor.moved": reading(int, "Consumers for which something was decided.", 0),
                "supervisor.decisions": reading(int, "Decisions so far.", 0),
            },
            commands={
                HEALTH: Command(self._tell_health, kind=str, doc="Tells of all streams and consumers."),
                LOG: Command(self._tell_log, kind=str, doc="Tells the last decisions."),
            },
            doc="Watches consumers, and moves those that can't keep up.",
            refresh=self._refresh,
            config=config,
        )

    def _refresh(self, service: Service) -> None:
        view = self.view()
        readings = {
            "streams": len(view.streams),
            "dead": sum(stream.state == "dead" for stream in view.streams),
            "consumers": len(view.consumers),
            "slow": sum(consumer.condition in ("slow", "stuck") for consumer in view.consumers),
            "moved": sum(consumer.remedy != "none" for consumer in view.consumers),
            "decisions": self.journal.decisions,
        }
        for key, value in readings.items():
            service[f"supervisor.{key}"] = value

    def _set_dry_run(self, dry_run: bool) -> None:
        self._agent.dry_run = dry_run

    def _tell(self, entry: Entry) -> None:
        assert self._service is not None
        self._service.tell(_DECISION, msgspec.json.encode(entry).decode())

    def _tell_health(self, request: str) -> None:
        assert self._service is not None
        for page in pages_of_view(self.view(), request):
            self._service.tell(HEALTH, page)

    def _tell_log(self, request: str) -> None:
        assert self._service is not None
        for page in pages_of_log(self.journal.entries(), request):
            self._service.tell(LOG, page)

    def view(self) -> SupervisorView:
        """All streams and consumers, as of the last look."""
        return self._agent.view()

    @property
    def journal(self) -> Journal:
        """What was decided and noticed."""
        return self._agent.journal

    @property
    def dry_run(self) -> bool:
        """Whether decisions are only logged; may be set while it runs."""
        return self._agent.dry_run

    @dry_run.setter
    def dry_run(self, dry_run: bool) -> None:
        self._agent.dry_run = dry_run
        if self._service is not None:
            self._service[_DRY_RUN] = dry_run

    def close(self) -> None:
        """Ends. Consumers stay as they were told. May be called again."""
        if self._service is not None:
            self._service.close()
        super().close()


class SupervisorClient(Closing):
    """Asks the supervisor of this host. For one thread at a time.

    Args:
        config: The sections ``control``, ``streams``, ``driver`` and ``aeron``.

    Raises:
        NoMediaDriverError: Nobody runs a media driver here.

    Example:
        >>> import tensor_pool as tp
        >>> with tp.connect(embedded=True) as pool:
        ...     config = tp.load_config(overrides={"aeron.dir": pool.aeron_dir}, environ={}, search=False)
        ...     with Supervisor(config), SupervisorClient(config) as asking:
        ...         asking.view().is_authority, asking.log()
        (False, [])
    """

    def __init__(self, config: Config) -> None:
        self._tag = service_tag(_NAME, config[DriverSection].instance_id)
        self._control = ControlClient(tags=[self._tag], config=config)

    def view(self, *, timeout_s: float = 2.0) -> SupervisorView:
        """All streams and consumers.

        Raises:
            NoServiceError: No supervisor answers.
        """
        view = self._ask(HEALTH, timeout_s).view
        if view is None:
            raise _no_supervisor()
        return view

    def log(self, *, timeout_s: float = 2.0) -> list[Entry]:
        """The last decisions and what was noticed, oldest first.

        Raises:
            NoServiceError: No supervisor answers.
        """
        return self._ask(LOG, timeout_s).entries

    def decisions(self, *, timeout_s: float | None = None) -> Iterator[Entry]:
        """Entries of the log as they are made, until none came for so long; None for ever."""
        for event in self._control.events(timeout_s=timeout_s):
            if event.key == _DECISION:
                with contextlib.suppress(msgspec.MsgspecError, TypeError):  # somebody else's words
                    yield msgspec.json.decode(event.value, type=Entry)

    def close(self) -> None:
        """Ends the connection. May be called again."""
        self._control.close()

    def _ask(self, key: str, timeout_s: float) -> PageCollector:
        request = secrets.token_hex(8)
        collector = PageCollector(request)
        deadline = time.monotonic() + timeout_s
        try:
            self._control.send(self._tag, key, request, timeout_s=timeout_s)
        except NoServiceError as e:
            raise _no_supervisor() from e
        for event in self._control.events(timeout_s=timeout_s):
            # The echo of the question has the same key.
            if event.key == key and collector.add(event.value):
                return collector
            if time.monotonic() > deadline:
                break
        raise _no_supervisor()


def _no_supervisor() -> NoServiceError:
    return NoServiceError(
        "no supervisor answers here",
        hint="`tpool supervisor run` starts one; control.enabled = false keeps it from answering",
    )
