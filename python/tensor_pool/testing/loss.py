"""Loss by Aeron's own hand: a media driver that drops a part of what it receives."""

from __future__ import annotations

from typing import Final

from tensor_pool.errors import ConfigError

__all__ = ["loss_environment"]

_ALL_MESSAGES: Final = 0xFFF
"""One bit for each type of Aeron's messages: a network loses them alike."""
_MAX_SEED: Final = 2**48 - 1


def loss_environment(rate: float | None, *, seed: int = 1) -> dict[str, str]:
    """The environment of a media driver (of Aeron's C driver, which ours is) that loses UDP messages.

    It drops what comes in, each message on its own, so that the peer's driver needs a rate of its own for
    loss in the other direction. Shared memory and IPC lose nothing.

    Args:
        rate: The part to lose, from 0 up to and without 1; None loses nothing.
        seed: The same seed drops the same messages, counted from the start of the driver.

    Raises:
        ConfigError: The rate or the seed is out of its range.

    Example:
        >>> loss_environment(0.05)["AERON_UDP_CHANNEL_INCOMING_INTERCEPTORS"]
        'loss'
        >>> loss_environment(None)
        {}
    """
    if not 0 <= seed <= _MAX_SEED:
        raise ConfigError(f"the seed of the loss is {seed}", hint=f"a number from 0 to {_MAX_SEED}")
    if rate is None:
        return {}
    if not 0 <= rate < 1:
        raise ConfigError(f"the loss is {rate}", hint="a part from 0 up to and without 1, such as 0.05")
    return {
        "AERON_UDP_CHANNEL_INCOMING_INTERCEPTORS": "loss",
        "AERON_UDP_CHANNEL_TRANSPORT_BINDINGS_LOSS_ARGS": (
            f"rate={rate:.9f}|seed={seed}|recv-msg-mask={_ALL_MESSAGES:#x}"
        ),
    }
