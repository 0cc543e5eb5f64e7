"""Waiting for several streams at once."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Final

from tensor_pool import _native
from tensor_pool.errors import ClosedError, ConfigError
from tensor_pool.pool.arguments import check_consumers, check_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tensor_pool.pool.consumer import Consumer

__all__ = ["wait"]

_SLICE_S: Final = 0.1
_UNMAPPED_SLICE_S: Final = 0.02


def wait(consumers: Iterable[Consumer], timeout: float | None = None) -> list[Consumer]:
    """Waits until any of several consumers has a frame; those that do, none after `timeout` seconds.

    Args:
        consumers: Whose frames.
        timeout: How long to wait; for ever when left out.

    Raises:
        ClosedError: One of them was closed.
        ConfigError: Something else than consumers, or no time; or all frames of one go to a callback.

    Example:
        >>> import numpy as np, tensor_pool as tp
        >>> with tp.connect(embedded=True) as pool, pool.producer("b", dtype="uint8", shape=(4,)) as out:
        ...     first, second = pool.consumer("a"), pool.consumer("b")
        ...     _ = out.publish(np.zeros(4, "uint8"))
        ...     tp.wait([first, second], timeout=5.0) == [second]
        True
    """
    awaited = check_consumers(consumers)
    if timeout is None and not awaited:
        raise ConfigError(
            "timeout=None and no consumer: nothing would ever end that", hint="give one of both"
        )
    deadline = time.monotonic() + (math.inf if timeout is None else check_seconds("timeout", timeout))
    while True:
        for consumer in awaited:
            consumer.check_open()
            consumer.check_reserved()
        mapped = [(consumer, consumer.session.reader) for consumer in awaited]
        readers = [reader for _, reader in mapped if reader is not None]
        try:
            ready = [consumer for consumer in awaited if consumer.has_frame()]
            left_s = deadline - time.monotonic()
            if ready or left_s <= 0:
                return ready
            all_mapped = len(readers) == len(mapped)
            _native.wait_any(readers, min(left_s, _SLICE_S if all_mapped else _UNMAPPED_SLICE_S))
        except ClosedError:
            continue  # a ring was replaced meanwhile
