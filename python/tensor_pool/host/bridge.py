"""`tensor_pool.bridge`: from a configuration to a bridge that keeps running."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from tensor_pool.bridging.config import BridgeSection, check_bridge
from tensor_pool.bridging.counting import StandstillCounters
from tensor_pool.bridging.service import Bridge
from tensor_pool.closing import Closing
from tensor_pool.control.config import ControlSection
from tensor_pool.control.declared import Property, reading
from tensor_pool.driver.config import DriverSection
from tensor_pool.errors import ChannelError, TensorPoolError
from tensor_pool.host import aeron as host_aeron
from tensor_pool.host.connection import configured, connect
from tensor_pool.host.control import Service
from tensor_pool.pool.config import ClientSection
from tensor_pool.transport import AeronCounters

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from tensor_pool.bridging.service import MappingStats
    from tensor_pool.config import Config
    from tensor_pool.pool.pool import Pool
    from tensor_pool.transport import AeronClient

__all__ = ["BridgeService", "bridge"]

_LOG: Final = logging.getLogger(__name__)
_LOOK_S: Final = 0.2
_RETRY_S: Final = 1.0
_GIVEN_BACK_S: Final = 5.0
_MAX_TEXT: Final = 1_000


def bridge(
    aeron_dir: str | os.PathLike[str] | None = None,
    *,
    config: Config | str | os.PathLike[str] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> BridgeService:
    """Carries streams between hosts, as the section ``bridge`` says, until it is closed.

    Args:
        aeron_dir: The directory of this host's media driver; as `tensor_pool.connect` takes it.
        config: A configuration, or the path of a ``tensor-pool.toml``; found as usual when left out.
        settings: Configuration keys with their values.

    Raises:
        ConfigError: Something in the section ``bridge`` contradicts something else; the text has the numbers.
        NoDriverError: This host has no driver; the text says how to start one.

    Example:
        >>> import numpy as np, tensor_pool as tp
        >>> from tensor_pool.testing import wait_until
        >>> mapping = {"source_stream_id": 10_000, "dest_stream_id": 50_000}
        >>> settings = {
        ...     "bridge.instance_id": "example",
        ...     "bridge.payload_channel": "aeron:udp?endpoint=127.0.0.1:20121",
        ...     "bridge.control_channel": "aeron:udp?endpoint=127.0.0.1:20122",
        ...     "bridge.mappings": [mapping],
        ... }
        >>> with tp.connect(embedded=True) as pool, tp.bridge(pool.aeron_dir, settings=settings) as bridge:
        ...     out = pool.producer(10_000, dtype="uint8", shape=(4,))
        ...     _ = wait_until(lambda: bridge.stats[-1].received.epoch)
        ...     _ = out.publish(np.arange(4, dtype="uint8"))
        ...     pool.consumer(50_000).poll(timeout=5.0).copy().tolist()
        [0, 1, 2, 3]
    """
    return BridgeService(configured(config, aeron_dir, settings))


class BridgeService(Closing):
    """A bridge that is built anew when its media driver or its connection is lost.

    Args:
        config: The sections ``bridge``, ``streams``, ``client`` and ``aeron``.

    Raises:
        ConfigError: Something in the section ``bridge`` contradicts something else.
        NoDriverError: This host has no driver.
    """

    def __init__(self, config: Config) -> None:
        check_bridge(config)
        self._config = config
        self._section = config[BridgeSection]
        self._own = contextlib.ExitStack()
        self._pool: Pool | None = None
        self._client: AeronClient | None = None
        self._bridge: Bridge | None = None
        self._notice_client: AeronClient | None = None
        self._notice: StandstillCounters | None = None
        self._silence_s = config[ClientSection].announce_freshness_ms / 1000
        self.restarts = 0
        """How often it was built anew."""
        self.error: BaseException | None = None
        """Nothing ends it but `close`; why it can't work at the moment."""
        self._is_wanted = True
        self._open_soon()
        self._stop = threading.Event()
        self._watching = threading.Thread(target=self._watch, name="bridge watch", daemon=True)
        self._watching.start()
        self._service = self._serve() if config[ControlSection].enabled else None

    @property
    def is_running(self) -> bool:
        """Whether it was not closed."""
        return not self._stop.is_set()

    @property
    def stats(self) -> list[MappingStats]:
        """What became of each mapping since the bridge was last built."""
        running = self._bridge
        return [] if running is None else running.stats

    def close(self) -> None:
        """Gives destinations back and ends. May be called again."""
        if self._service is not None:
            self._service.close()
        self._stop.set()
        self._watching.join()
        self._own.close()

    def _serve(self) -> Service:
        def switch(on: bool) -> None:
            self._is_wanted = on

        return Service(
            "bridge",
            instance=self._section.instance_id,
            doc="Carries streams between hosts.",
            properties={
                "bridge.enable": Property(bool, default=True, on_change=switch, doc="Whether it carries."),
                "bridge.active": reading(bool, "Whether it carries now."),
                "bridge.mappings": reading(int, "Streams it carries.", len(self._section.resolved_mappings)),
                "bridge.frames_sent": reading(int, "Frames sent since it was last built."),
                "bridge.frames_received": reading(int, "Frames received since it was last built."),
                "bridge.lost": reading(int, "Frames that were given up on either side."),
                "bridge.restarts": reading(int, "How often it was built anew."),
                "bridge.error": reading(str, "Why something is not carried."),
            },
            refresh=self._refresh,
            config=self._config,
        )

    def _refresh(self, service: Service) -> None:
        stats = self.stats
        sent = [each.sent for each in stats if each.sent is not None]
        received = [each.received for each in stats if each.received is not None]
        service["bridge.active"] = self._bridge is not None and self.error is None
        service["bridge.frames_sent"] = sum(each.frames for each in sent)
        service["bridge.frames_received"] = sum(each.frames for each in received)
        service["bridge.lost"] = sum(sum(each.dropped.values()) for each in sent) + sum(
            sum(each.frames_lost.values()) for each in received
        )
        service["bridge.restarts"] = self.restarts
        errors = ["" if self.error is None else _words(self.error), *(each.error or "" for each in stats)]
        service["bridge.error"] = "; ".join(dict.fromkeys(filter(None, errors)))[:_MAX_TEXT]

    def _open_soon(self) -> None:
        """Bears that the media driver has not given back yet what a bridge had that ended just now."""
        deadline = time.monotonic() + _GIVEN_BACK_S
        while True:
            try:
                return self._open()
            except ChannelError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_LOOK_S)

    def _open(self) -> None:
        section, driver = self._section, self._config[DriverSection]
        with contextlib.ExitStack() as opening:
            self._pool = opening.enter_context(
                connect(config=self._config, name=f"bridge {section.instance_id}")
            )
            self._client = opening.enter_context(host_aeron.connect(self._config.aeron, name="bridge"))
            self._bridge = opening.enter_context(
                Bridge(
                    self._pool,
                    self._client,
                    self._config.streams,
                    section,
                    driver.profiles,
                    lease_s=driver.lease_ns / 1e9,
                    fresh_s=self._silence_s,
                )
            )
            self._own = opening.pop_all()

    def _watch(self) -> None:
        pause_s = _LOOK_S
        with contextlib.ExitStack() as notice:
            while not self._stop.wait(pause_s):
                if not self._is_wanted:
                    self._rest(notice)
                    continue
                trouble = self._trouble()
                if trouble is None:
                    self._look_for_driver()
                    continue
                pause_s = _RETRY_S
                try:
                    self._own.close()
                    self._tell(trouble if self.error is None else _words(self.error), notice)
                    self._open()
                except (TensorPoolError, OSError) as e:
                    if self.error is None:
                        _LOG.error("the bridge stands still: %s", e)
                    self.error = e
                    self._tell(_words(e), notice)
                    continue
                self.restarts += 1
                self.error = None
                pause_s = _LOOK_S
                notice.close()
                self._notice = None
                _LOG.warning("the bridge was built anew")

    def _rest(self, notice: contextlib.ExitStack) -> None:
        """Carries nothing, and gives its destinations back, until it is told otherwise."""
        if self._bridge is not None:
            self._own.close()
            self._bridge = None
            self._tell("it was switched off by a command", notice)

    def _trouble(self) -> str | None:
        """Why the bridge has to be built anew, if so."""
        if self._client is None or self._client.closed or self._pool is None or not self._pool.is_connected:
            return "the connection to the media driver is lost"
        if self._bridge is None or not self._bridge.works:
            return "a part of the bridge has ended"
        return None

    def _look_for_driver(self) -> None:
        """A driver that dies leaves the bridge without streams; it goes on when there is one again."""
        assert self._pool is not None
        assert self._bridge is not None
        if self._pool.driver_silence_s > self._silence_s:
            try:  # one that serves nobody says nothing by itself
                self._pool.driver_status(timeout_s=_LOOK_S)
            except TensorPoolError as e:
                self._bridge.trouble = e.message
                return
        self._bridge.trouble = None

    def _tell(self, text: str, notice: contextlib.ExitStack) -> None:
        """Says to others why there is no bridge, as far as there is a media driver to say it through."""
        try:
            if self._notice is None or self._notice_client is None or self._notice_client.closed:
                notice.close()
                self._notice = None
                self._notice_client = notice.enter_context(
                    host_aeron.connect(self._config.aeron, name="bridge that stands still")
                )
                self._notice = notice.enter_context(
                    StandstillCounters(
                        self._section.instance_id,
                        AeronCounters(self._notice_client),
                        self._section.resolved_mappings,
                    )
                )
            self._notice.tell(text)
        except (TensorPoolError, OSError) as e:
            _LOG.debug("nobody can be told that the bridge stands still: %s", e)


def _words(error: BaseException) -> str:
    return error.message if isinstance(error, TensorPoolError) else str(error)
