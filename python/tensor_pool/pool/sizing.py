"""How many slots a ring has and how large they are, from what people know about their frames.

The same arithmetic serves the driver, which gets wishes in a `ResolveStream`, and producers that own their
files.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import msgspec

from tensor_pool.datatypes import MAX_DIMS, Dtype
from tensor_pool.errors import ConfigError
from tensor_pool.wire.shm import SLOT_BYTES, SUPERBLOCK_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "MAX_POOLS",
    "MAX_SLOTS",
    "Geometry",
    "check_pool_sizes",
    "check_slots",
    "choose_geometry",
    "element_bytes",
    "frame_bytes",
    "stride_for",
]

POOL_BUDGET_BYTES: Final = 256 << 20
"""What the pools of a ring may take when nobody says how many slots it has (decision D19)."""
DEFAULT_MAX_SLOTS: Final = 1024
MIN_SLOTS: Final = 8
MAX_SLOTS: Final = 1 << 20
"""What the native rings take: beyond it the header ring alone would pass 256 MiB, a slip and not a wish."""
MAX_POOLS: Final = 64
MIN_STRIDE: Final = 64
MAX_STRIDE: Final = 1 << 31
"""The largest power of two that the u32 of an announce carries."""
SAFETY_FACTOR: Final = 2.0
"""Slots for this many times the frames of a consumer's worst delay [WIRE-15.6-1]."""

_ELEMENT_BYTES: Final = {
    Dtype.UINT16: 2,
    Dtype.INT16: 2,
    Dtype.UINT32: 4,
    Dtype.INT32: 4,
    Dtype.FLOAT32: 4,
    Dtype.UINT64: 8,
    Dtype.INT64: 8,
    Dtype.FLOAT64: 8,
}


class Geometry(msgspec.Struct, frozen=True):
    """The slots of a ring: how many, and how large those of each pool are.

    Example:
        >>> geometry = Geometry(nslots=8, strides=(4096,))
        >>> geometry.pools, geometry.region_bytes
        (((1, 4096),), 34944)
    """

    nslots: int
    strides: tuple[int, ...]

    @property
    def pools(self) -> tuple[tuple[int, int], ...]:
        """Pool ids, counted from 1, with their strides."""
        return tuple(enumerate(self.strides, start=1))

    @property
    def region_bytes(self) -> int:
        """What header ring and pools take, superblocks included."""
        slots = SLOT_BYTES + sum(self.strides)
        return self.nslots * slots + SUPERBLOCK_BYTES * (1 + len(self.strides))

    @property
    def max_frame_bytes(self) -> int:
        """The largest payload that fits."""
        return max(self.strides)


def element_bytes(dtype: Dtype) -> int:
    """The size of an element; types without a size of their own travel as bytes (decision B15).

    Example:
        >>> element_bytes(Dtype.FLOAT32), element_bytes(Dtype.BIT)
        (4, 1)
    """
    return _ELEMENT_BYTES.get(dtype, 1)


def frame_bytes(dtype: Dtype, shape: Sequence[int]) -> int:
    """The bytes of a contiguous tensor.

    Raises:
        ConfigError: Not an element type, not 1 to 8 dimensions, or a negative one.

    Example:
        >>> frame_bytes(Dtype.UINT16, (480, 640))
        614400
    """
    if dtype is Dtype.UNKNOWN:
        raise ConfigError(
            "a shape without an element type", hint="say the dtype too, or max_bytes instead of both"
        )
    if not 1 <= len(shape) <= MAX_DIMS or min(shape) < 0:
        raise ConfigError(
            f"shape {tuple(shape)} can't travel", hint=f"1 to {MAX_DIMS} dimensions, none of them negative"
        )
    return math.prod(shape) * element_bytes(dtype)


def stride_for(nbytes: int) -> int:
    """The smallest stride that holds a payload: 64 times a power of two (decision M12).

    Raises:
        ConfigError: More than 2 GiB.

    Example:
        >>> stride_for(0), stride_for(65), stride_for(614_400)
        (64, 128, 1048576)
    """
    if nbytes > MAX_STRIDE:
        raise ConfigError(
            f"frames of {nbytes:,} bytes do not fit a slot",
            hint=f"a slot has at most {MAX_STRIDE:,} bytes; split the frames",
        )
    return max(MIN_STRIDE, _power_of_two_from(nbytes))


def choose_geometry(
    *,
    dtype: Dtype | None = None,
    shape: Sequence[int] = (),
    max_frame_bytes: int | None = None,
    pools: Sequence[int] = (),
    nslots: int | None = None,
    rate_hz: float | None = None,
    consumer_latency_s: float | None = None,
    safety_factor: float = SAFETY_FACTOR,
) -> Geometry:
    """The geometry that fits what is known.

    Slot sizes come from `pools`, else `max_frame_bytes`, else `dtype` and `shape`. Their number is `nslots`,
    else what `rate_hz` and `consumer_latency_s` ask for, else the largest power of two up to 1024 that keeps
    the pools within 256 MiB, at least 8 (decision D19).

    Args:
        dtype: Element type of the frames.
        shape: Their shape.
        max_frame_bytes: The largest payload.
        pools: Slot sizes, 64 times a power of two each.
        nslots: Slots, a power of two.
        rate_hz: Frames a second.
        consumer_latency_s: How long the slowest consumer may hold a frame.
        safety_factor: How many times that long the ring lasts.

    Raises:
        ConfigError: Numbers that make no ring, or nothing that says how large frames are.

    Example:
        >>> choose_geometry(dtype=Dtype.UINT16, shape=(480, 640))
        Geometry(nslots=256, strides=(1048576,))
        >>> choose_geometry(max_frame_bytes=1000, rate_hz=100, consumer_latency_s=0.5).nslots
        128
    """
    strides = _strides(dtype, shape, max_frame_bytes, pools)
    if nslots is not None:
        check_slots(nslots)
    elif rate_hz is not None and consumer_latency_s is not None:
        nslots = _slots_for_rate(rate_hz, consumer_latency_s, safety_factor)
    else:
        nslots = _default_slots(strides)
    return Geometry(nslots=nslots, strides=strides)


def _strides(
    dtype: Dtype | None, shape: Sequence[int], max_frame_bytes: int | None, pools: Sequence[int]
) -> tuple[int, ...]:
    if pools:
        return check_pool_sizes(pools)
    if max_frame_bytes is None:
        if dtype is None or not shape:
            raise ConfigError(
                "nothing says how large frames are", hint="give dtype and shape, or max_bytes, or pools"
            )
        max_frame_bytes = frame_bytes(dtype, shape)
    if max_frame_bytes < 0:
        raise ConfigError(f"frames of {max_frame_bytes} bytes", hint="a size from 0")
    return (stride_for(max_frame_bytes),)


def check_pool_sizes(pools: Sequence[int]) -> tuple[int, ...]:
    """Slot sizes in their order.

    Raises:
        ConfigError: Too many, twice the same, or one that no slot can have.

    Example:
        >>> check_pool_sizes([4096, 64])
        (64, 4096)
    """
    if len(pools) > MAX_POOLS:
        raise ConfigError(f"{len(pools)} pools", hint=f"a stream has at most {MAX_POOLS}")
    for stride in pools:
        if not MIN_STRIDE <= stride <= MAX_STRIDE or stride.bit_count() != 1:
            nearest = _nearest(stride, MIN_STRIDE, MAX_STRIDE)
            raise ConfigError(
                f"pool slots of {stride} bytes",
                hint=f"64 times a power of two, at most {MAX_STRIDE:,}: {nearest}",
            )
    if len(set(pools)) != len(pools):
        raise ConfigError(f"pools {tuple(pools)} repeat a slot size", hint="give each size once")
    return tuple(sorted(pools))


def check_slots(nslots: int) -> None:
    """Makes sure that a ring can have so many slots.

    Raises:
        ConfigError: It can't.

    Example:
        >>> check_slots(8)
    """
    if not 1 <= nslots <= MAX_SLOTS or nslots.bit_count() != 1:  # [WIRE-3-1]
        raise ConfigError(
            f"{nslots} slots", hint=f"a power of two up to {MAX_SLOTS:,}: {_nearest(nslots, 1, MAX_SLOTS)}"
        )


def _slots_for_rate(rate_hz: float, latency_s: float, safety_factor: float) -> int:
    frames = rate_hz * latency_s * safety_factor
    if not 0 <= frames <= MAX_SLOTS:
        raise ConfigError(
            f"{rate_hz:g} frames/s held for {latency_s:g} s need {frames:,.0f} slots",
            hint=f"a ring has at most {MAX_SLOTS:,}",
        )
    return max(MIN_SLOTS, _power_of_two_from(math.ceil(frames)))


def _default_slots(strides: tuple[int, ...]) -> int:
    fitting = POOL_BUDGET_BYTES // sum(strides)
    return min(DEFAULT_MAX_SLOTS, max(MIN_SLOTS, _power_of_two_up_to(fitting)))


def _nearest(number: int, least: int, most: int) -> str:
    """The powers of two beside a number, for a hint.

    Example:
        >>> _nearest(10, 1, 1024), _nearest(0, 1, 1024)
        ('8 or 16', '1')
    """
    beside = {_power_of_two_up_to(number), _power_of_two_from(number)}
    return " or ".join(map(str, sorted({min(max(each, least), most) for each in beside})))


def _power_of_two_from(number: int) -> int:
    return 1 << max(0, number - 1).bit_length()


def _power_of_two_up_to(number: int) -> int:
    return 1 << (number.bit_length() - 1) if number > 0 else 1
