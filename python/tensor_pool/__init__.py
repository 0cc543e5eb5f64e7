"""Zero-copy tensors between processes over shared memory and Aeron.

Errors are here at once; everything else loads when it is first used, so that ``import tensor_pool`` costs a
few milliseconds and pulls in neither NumPy nor msgspec.

Example:
    >>> import tensor_pool as tp
    >>> tp.Dtype.FLOAT32.name
    'FLOAT32'
"""

from __future__ import annotations

import sys

from tensor_pool.errors import (
    AeronClientLostError,
    AttachRefusedError,
    BackPressureError,
    ChannelError,
    ClaimError,
    ClosedError,
    CommandRefusedError,
    ConfigError,
    ForkedProcessError,
    FrameError,
    FrameOverwrittenError,
    FrameTooLargeError,
    LeaseLostError,
    MalformedMessageError,
    MetadataError,
    NoDriverError,
    NoMediaDriverError,
    NoServiceError,
    NoStreamError,
    RegionError,
    RegionFullError,
    RegionUriError,
    SchemaError,
    TensorLayoutError,
    TensorPoolError,
    TransportError,
)

TYPE_CHECKING = False  # what typing.TYPE_CHECKING is, without ten milliseconds of importing typing
if TYPE_CHECKING:
    from typing import Any, Final

    from tensor_pool._native import (
        Claim,
        RingAddress,
        RingReader,
        RingWriter,
        create_ring,
        wait_any,
    )
    from tensor_pool.config import Config, load_config
    from tensor_pool.datatypes import Dtype, MajorOrder
    from tensor_pool.host.bridge import bridge
    from tensor_pool.host.connection import connect
    from tensor_pool.host.control import ControlClient, Service
    from tensor_pool.host.discovery import discover
    from tensor_pool.host.limiter import rate_limiter
    from tensor_pool.pool.consumer import Consumer
    from tensor_pool.pool.frame import Frame
    from tensor_pool.pool.pool import Pool
    from tensor_pool.pool.producer import Producer
    from tensor_pool.pool.waiting import wait

    __version__: str

__all__ = [
    "AeronClientLostError",
    "__version__",
    # tensors
    "Dtype",
    "MajorOrder",
    # the pool
    "Consumer",
    "Frame",
    "Pool",
    "Producer",
    "bridge",
    "connect",
    "discover",
    "rate_limiter",
    "wait",
    # services
    "ControlClient",
    "Service",
    # rings
    "Claim",
    "RingAddress",
    "RingReader",
    "RingWriter",
    "create_ring",
    "wait_any",
    # configuration
    "Config",
    "load_config",
    # errors
    "TensorPoolError",
    "ConfigError",
    "SchemaError",
    "MalformedMessageError",
    "MetadataError",
    "TransportError",
    "NoMediaDriverError",
    "ChannelError",
    "BackPressureError",
    "NoDriverError",
    "AttachRefusedError",
    "LeaseLostError",
    "NoStreamError",
    "NoServiceError",
    "CommandRefusedError",
    "RegionError",
    "RegionUriError",
    "RegionFullError",
    "FrameError",
    "FrameTooLargeError",
    "FrameOverwrittenError",
    "TensorLayoutError",
    "ClaimError",
    "ClosedError",
    "ForkedProcessError",
]

_LAZY: Final = {
    "Claim": "tensor_pool._native",
    "Consumer": "tensor_pool.pool.consumer",
    "ControlClient": "tensor_pool.host.control",
    "Pool": "tensor_pool.pool.pool",
    "Producer": "tensor_pool.pool.producer",
    "bridge": "tensor_pool.host.bridge",
    "discover": "tensor_pool.host.discovery",
    "connect": "tensor_pool.host.connection",
    "rate_limiter": "tensor_pool.host.limiter",
    "Service": "tensor_pool.host.control",
    "wait": "tensor_pool.pool.waiting",
    "Config": "tensor_pool.config",
    "Dtype": "tensor_pool.datatypes",
    "Frame": "tensor_pool.pool.frame",
    "MajorOrder": "tensor_pool.datatypes",
    "RingAddress": "tensor_pool._native",
    "RingReader": "tensor_pool._native",
    "RingWriter": "tensor_pool._native",
    "create_ring": "tensor_pool._native",
    "load_config": "tensor_pool.config",
    "wait_any": "tensor_pool._native",
}
"""Public names and the modules that define them, imported when the name is first used."""


def _require_little_endian(byte_order: str) -> None:
    """Refuse machines whose words are not the wire's: superblocks and slots are mapped, not converted."""
    if byte_order != "little":
        raise ImportError(
            f"tensor_pool needs a little-endian machine, this one is {byte_order}-endian: "
            "its shared memory is read and written in place, in little-endian words"
        )


_require_little_endian(sys.byteorder)


def _installed_version() -> str:
    from importlib import metadata  # noqa: PLC0415 - costs more than everything else here together

    try:
        return metadata.version("shm-tensor-pool")
    except metadata.PackageNotFoundError:  # a source tree on the path, not installed
        return "0+unknown"


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value: Any = _installed_version()
    elif name in _LAZY:
        from importlib import import_module  # noqa: PLC0415 - see _installed_version

        value = getattr(import_module(_LAZY[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
