"""Frames as PyTorch tensors, on the CPU and on CUDA devices."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tensor_pool.errors import FrameOverwrittenError
from tensor_pool.interop.cuda import HostRegistration

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tensor_pool.interop.cuda import MappedReader

__all__ = ["BorrowedFrame", "from_frame"]


class BorrowedFrame(Protocol):
    """What is needed of a frame."""

    registration: Any
    """Where the registration of its reader's mappings is kept: one for all frames of a consumer."""

    @property
    def seq(self) -> int:
        """Its sequence number."""
        ...

    @property
    def array(self) -> NDArray[Any]:
        """Its values where they lie."""
        ...

    @property
    def reader(self) -> MappedReader | None:
        """What it was read with."""
        ...

    def copy(self) -> NDArray[Any]:
        """A private array of its values."""
        ...

    def still_valid(self) -> bool:
        """Whether it was whole until now."""
        ...


def from_frame(frame: BorrowedFrame, *, device: object | None = None, copy: bool = True) -> Any:
    """A frame as a tensor; see `tensor_pool.Frame.torch`.

    Raises:
        ImportError: PyTorch is not installed.
        RuntimeError: The device is not there.
        FrameOverwrittenError: The producer was faster.
    """
    torch = _import_torch()
    if device is None or torch.device(device).type == "cpu":
        return torch.from_numpy(frame.copy() if copy else _as_writable(frame.array))
    _register(torch, frame, device)
    source = torch.from_numpy(_as_writable(frame.array))
    # The copy on the device is the private one; it counts only if the frame was whole when it was done.
    tensor = source.to(device, non_blocking=True, copy=True)
    torch.cuda.current_stream(tensor.device).synchronize()
    if not frame.still_valid():
        raise FrameOverwrittenError(
            f"frame {frame.seq} was overwritten while it was copied to {device}",
            hint="use more slots, or take frames sooner",
        )
    return tensor


def _register(torch: Any, frame: BorrowedFrame, device: object) -> None:
    """Makes the memory known to CUDA with the first frame of a ring; costs milliseconds, once."""
    known = frame.registration
    if frame.reader is None or (known is not None and known.reader is frame.reader):
        return
    _check_device(torch, device)
    if known is not None:
        known.close()
    frame.registration = HostRegistration(torch, frame.reader)


def _as_writable(array: NDArray[Any]) -> NDArray[Any]:
    """The same memory without the mark "read-only", which PyTorch does not know and would warn of."""
    if array.size == 0:
        return array.copy()
    address = array.__array_interface__["data"][0]
    nbytes = (
        sum((n - 1) * stride for n, stride in zip(array.shape, array.strides, strict=True)) + array.itemsize
    )
    memory = (ctypes.c_char * nbytes).from_address(address)
    memory.owner = array  # keeps the mapping alive as long as the tensor
    return np.ndarray(array.shape, array.dtype, memory, strides=array.strides)


def _check_device(torch: Any, device: object) -> None:
    if torch.device(device).type == "cuda" and not torch.cuda.is_available():
        raise RuntimeError(
            f"frame.torch(device={str(device)!r}) needs a CUDA device, and PyTorch sees none; "
            "try: frame.torch() for the CPU, or a PyTorch built for your driver"
        )


def _import_torch() -> Any:
    try:
        import torch  # noqa: PLC0415 - only who asks for it pays for it
    except ImportError as e:
        raise ImportError("frame.torch() needs PyTorch; try: pip install torch") from e
    return torch
