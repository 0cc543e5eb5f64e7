"""What a program says of a stream that it wants to publish, checked, as the driver is asked for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tensor_pool.datatypes import Dtype, MajorOrder, wire_dtype
from tensor_pool.errors import ConfigError
from tensor_pool.pool.arguments import (
    check_choice,
    check_count,
    check_flag,
    check_name,
    check_pools,
    check_positive,
    check_shape,
    check_stream,
)
from tensor_pool.pool.sessions.lease import StreamWish
from tensor_pool.pool.sizing import MAX_SLOTS, check_pool_sizes, check_slots, frame_bytes
from tensor_pool.wire.messages import Role

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import DTypeLike

__all__ = ["producer_wish"]

_ORDERS: Final = {"C": MajorOrder.ROW, "F": MajorOrder.COLUMN}
_MOST_BYTES: Final = 2**31
"""The largest payload: pool strides have 32 bits on the wire."""
_MOST_RATE_HZ: Final = (2**32 - 2) / 1000
"""Rates travel in thousandths, in 32 bits of which the last value means none."""


def producer_wish(
    stream: str | int,
    *,
    name: str = "",
    dtype: DTypeLike | Dtype | None = None,
    shape: Sequence[int] | None = None,
    max_bytes: int | None = None,
    slots: int | None = None,
    pools: Sequence[int] | None = None,
    rate_hz: float | None = None,
    consumer_latency_s: float | None = None,
    order: str = "C",
    hugepages: bool | None = None,
) -> StreamWish:
    """The arguments of `Pool.producer` that the driver hears of.

    Raises:
        ConfigError: One of them makes no sense, or two contradict each other.

    Example:
        >>> producer_wish("camera-1", dtype="uint16", shape=(480, 640), slots=8).nslots
        8
    """
    if shape is not None and dtype is None:
        raise ConfigError(
            f"shape={shape!r:.80} without a dtype", hint="give dtype= too, or max_bytes= instead of both"
        )
    wish = StreamWish(
        role=Role.PRODUCER,
        **{**check_stream(stream), **check_name(name, stream=stream)},
        dtype=Dtype.UNKNOWN if dtype is None else wire_dtype(dtype),
        major_order=_ORDERS[check_choice("order", order, list(_ORDERS))],
        shape=check_shape(shape),
        max_frame_bytes=check_count("max_bytes", max_bytes, least=0, most=_MOST_BYTES),
        nslots=check_count("slots", slots, least=1, most=MAX_SLOTS),
        rate_hz=check_positive("rate_hz", rate_hz, most=_MOST_RATE_HZ),
        consumer_latency_s=check_positive("consumer_latency_s", consumer_latency_s, most=1e6),
        pools=check_pools(pools, most_bytes=_MOST_BYTES),
        require_hugepages=None if hugepages is None else check_flag("hugepages", hugepages),
    )
    if wish.nslots is not None:
        check_slots(wish.nslots)
    if wish.pools:
        check_pool_sizes(wish.pools)
    _check_sizes_agree(wish)
    _check_pace_is_whole(wish)
    return wish


def _check_sizes_agree(wish: StreamWish) -> None:
    """Whoever says two sizes says which frames there will be: the slots must hold all of them."""
    sizes: dict[str, Any] = {}
    if wish.pools:
        sizes[f"pools={list(wish.pools)}"] = max(wish.pools)
    if wish.max_frame_bytes is not None:
        sizes[f"max_bytes={wish.max_frame_bytes}"] = wish.max_frame_bytes
    if wish.shape:
        sizes[f"dtype and shape={wish.shape}"] = frame_bytes(wish.dtype, wish.shape)
    (deciding, room), *others = sizes.items() or [("", 0)]
    for said, nbytes in others:
        if nbytes > room:
            raise ConfigError(
                f"{deciding} has no room for the {nbytes:,} bytes of {said}",
                hint="leave one of them out, or let the first one be as large",
            )


def _check_pace_is_whole(wish: StreamWish) -> None:
    """How long each frame is needed says nothing about slots without how fast they come."""
    if wish.consumer_latency_s is not None and wish.rate_hz is None and wish.nslots is None:
        raise ConfigError(
            f"consumer_latency_s={wish.consumer_latency_s:g} without rate_hz chooses no number of slots",
            hint="give rate_hz= too, or slots=, or leave it out",
        )
