"""`tensor_pool.rate_limiter`: a limiter that keeps running, and that can be commanded."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from tensor_pool.closing import Closing
from tensor_pool.control.config import ControlSection
from tensor_pool.control.declared import Property, reading
from tensor_pool.control.tags import service_tag
from tensor_pool.errors import ConfigError, TensorPoolError
from tensor_pool.host.connection import configured, connect
from tensor_pool.host.control import Service
from tensor_pool.limiting.lane import LimiterLane
from tensor_pool.limiting.slots import RateSlots
from tensor_pool.limiting.stats import LimiterStats, Tally
from tensor_pool.pool.arguments import check_count, check_stream
from tensor_pool.pool.sizing import MAX_SLOTS

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from tensor_pool.config import Config
    from tensor_pool.pool.pool import Pool

__all__ = ["RateLimiter", "rate_limiter"]

_LOG: Final = logging.getLogger(__name__)
_SERVICE: Final = "limiter"
_RETRY_S: Final = 1.0


def rate_limiter(
    source: str | int,
    dest: str | int,
    *,
    max_rate_hz: float,
    slots: int | None = None,
    instance: str = "",
    aeron_dir: str | os.PathLike[str] | None = None,
    config: Config | str | os.PathLike[str] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> RateLimiter:
    """Publishes a stream again as another one, with at most so many frames a second, until it is closed.

    Args:
        source: Name or id of the stream to read; it may appear later.
        dest: Name or id of the stream to publish, as its only producer.
        max_rate_hz: Frames a second; 0 for all.
        slots: How many frames the ring of `dest` holds; as many as that of `source` when left out.
        instance: Which limiter it is to those who command it, where there are several.
        aeron_dir: The directory of this host's media driver; as `tensor_pool.connect` takes it.
        config: A configuration, or the path of a ``tensor-pool.toml``; found as usual when left out.
        settings: Configuration keys with their values.

    Raises:
        ConfigError: That is no rate, no stream, or twice the same one.
        NoDriverError: This host has no driver; the text says how to start one.

    Example:
        >>> import numpy as np, tensor_pool as tp
        >>> with tp.connect(embedded=True) as pool:
        ...     out = pool.producer("camera", dtype="uint8", shape=(4,))
        ...     preview = tp.rate_limiter("camera", "preview", max_rate_hz=10, aeron_dir=pool.aeron_dir)
        ...     with preview, pool.consumer("preview", wait_s=5.0) as inp:
        ...         for value in range(50):
        ...             _ = out.publish(np.full(4, value, "uint8"))
        ...         passed = [inp.poll(timeout=5.0).seq]
        ...         while passed[-1] < 49:  # the newest when a slot opens, so the last one for sure
        ...             passed.append(inp.poll(timeout=5.0).seq)
        ...         len(passed) < 5
        True
    """
    return RateLimiter(
        configured(config, aeron_dir, settings),
        source,
        dest,
        max_rate_hz=max_rate_hz,
        slots=slots,
        instance=instance,
    )


class RateLimiter(Closing):
    """A rate limiter that is built anew when its media driver or its connection is lost.

    Unless ``control.enabled`` is false it is the service ``service:limiter``, whose property ``max_rate_hz``
    may be set while it runs.

    Args:
        config: The sections ``streams``, ``client``, ``aeron`` and ``control``.
        source: Name or id of the stream to read.
        dest: Name or id of the stream to publish.
        max_rate_hz: Frames a second; 0 for all.
        slots: How many frames the ring of `dest` holds; as many as that of `source` when left out.
        instance: Which limiter it is to those who command it, where there are several.

    Raises:
        ConfigError: That is no rate, no stream, or twice the same one.
        NoDriverError: This host has no driver.
    """

    def __init__(
        self,
        config: Config,
        source: str | int,
        dest: str | int,
        *,
        max_rate_hz: float,
        slots: int | None = None,
        instance: str = "",
    ) -> None:
        if check_stream(source) == check_stream(dest):
            raise ConfigError(f"stream {source} would be published into itself", hint="another destination")
        self.source: Final = source
        self.dest: Final = dest
        self._config = config
        self._slots = RateSlots(max_rate_hz)
        self._nslots = check_count("slots", slots, least=1, most=MAX_SLOTS)
        self._tally = Tally()
        self._own = contextlib.ExitStack()
        self._pool: Pool | None = None
        self._lane: LimiterLane | None = None
        self.restarts = 0
        """How often a lost connection was made anew."""
        self.error: BaseException | None = None
        """Why nothing passes at the moment; what ended it, once it no longer runs."""
        self.tag: Final = _tag(instance)
        """Who it is to those who command it."""
        self._open()
        try:
            self._service = self._serve(instance) if config[ControlSection].enabled else None
        except BaseException:
            self._own.close()
            raise
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"limit {source}", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether it was not closed."""
        return self._thread.is_alive()

    @property
    def max_rate_hz(self) -> float:
        """How many frames a second may pass; 0 for all. Another one counts from the next frame on."""
        return self._slots.max_rate_hz

    @max_rate_hz.setter
    def max_rate_hz(self, max_rate_hz: float) -> None:
        self._set_rate(max_rate_hz)
        if self._service is not None:
            self._service["max_rate_hz"] = float(max_rate_hz)

    @property
    def stats(self) -> LimiterStats:
        """What became of the frames so far."""
        tally, lane = self._tally, self._lane
        return LimiterStats(
            frames_seen=tally.seen,
            frames_passed=tally.passed,
            frames_thinned=tally.thinned,
            frames_torn=tally.torn,
            frames_overtaken=tally.overtaken,
            rate_hz=tally.rate_hz(time.monotonic_ns()),
            max_rate_hz=self._slots.max_rate_hz,
            source_epoch=None if lane is None else lane.source_epoch,
            stream_id=None if lane is None else lane.stream_id,
            epoch=None if lane is None else lane.epoch,
            restarts=self.restarts,
            error=None if self.error is None else _words(self.error),
        )

    def close(self) -> None:
        """Gives both streams back and ends. May be called again."""
        self._stop.set()
        self._wake()
        self._thread.join()
        if self._service is not None:
            self._service.close()
        self._own.close()

    # --- the thread ---------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._limit()
        except Exception as e:
            self.error = e
            _LOG.exception("the rate limiter of stream %s ended", self.source)

    def _limit(self) -> None:
        while not self._stop.is_set():
            try:
                if self._pool is None or not self._pool.is_connected:
                    self._open_anew()
                assert self._lane is not None
                self._lane.turn()
                self.error = None
            except (TensorPoolError, OSError) as e:
                self._on_error(e)

    def _open(self) -> None:
        with contextlib.ExitStack() as opening:
            self._pool = opening.enter_context(connect(config=self._config, name=self.tag))
            self._lane = opening.enter_context(
                LimiterLane(
                    self._pool,
                    self.source,
                    self.dest,
                    slots=self._slots,
                    tally=self._tally,
                    nslots=self._nslots,
                )
            )
            self._own = opening.pop_all()

    def _open_anew(self) -> None:
        self._lane = None
        self._own.close()
        self._open()
        self.restarts += 1
        _LOG.warning("the rate limiter of stream %s was built anew", self.source)

    def _on_error(self, error: TensorPoolError | OSError) -> None:
        if self.error is None or _words(self.error) != _words(error):
            _LOG.error("nothing of stream %s passes to %s: %s", self.source, self.dest, error)
        self.error = error
        self._stop.wait(_RETRY_S)

    def _wake(self) -> None:
        lane = self._lane
        if lane is not None:
            lane.wake()

    # --- the service --------------------------------------------------------------------------------------

    def _serve(self, instance: str) -> Service:
        return Service(
            _SERVICE,
            instance=instance,
            doc=f"Publishes stream {self.source} as {self.dest}, with at most so many frames a second.",
            properties={
                "max_rate_hz": Property(
                    float,
                    default=float(self.max_rate_hz),
                    on_change=self._set_rate,
                    least=0,
                    doc="Frames a second that pass; 0 for all.",
                ),
                "frames_in": reading(int, "Frames of the source."),
                "frames_out": reading(int, "Frames that passed."),
                "source": reading(str, "What is read.", str(self.source)),
                "dest": reading(str, "What is published.", str(self.dest)),
            },
            refresh=self._refresh,
            config=self._config,
        )

    def _set_rate(self, max_rate_hz: float) -> None:
        self._slots.set_rate(max_rate_hz)
        self._wake()

    def _refresh(self, service: Service) -> None:
        service["frames_in"] = self._tally.seen
        service["frames_out"] = self._tally.passed


def _tag(instance: str) -> str:
    try:
        return service_tag(_SERVICE, instance)
    except ValueError as e:
        raise ConfigError(str(e), hint="an instance such as 'left'") from None


def _words(error: BaseException) -> str:
    return error.message if isinstance(error, TensorPoolError) else str(error)
