"""Frames as PyTorch tensors, on the CPU and on CUDA devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensor_pool.errors import FrameOverwrittenError
from tensor_pool.interop.cuda import HostRegistration

if TYPE_CHECKING:
    from tensor_pool._native import Frame

__all__ = ["from_frame"]


def from_frame(frame: Frame, *, device: object | None = None, copy: bool = True) -> Any:
    """A frame as a tensor; see `tensor_pool.Frame.torch`.

    Raises:
        ImportError: PyTorch is not installed.
        RuntimeError: The device is not there.
        FrameOverwrittenError: The producer was faster.
    """
    torch = _import_torch()
    if device is None or torch.device(device).type == "cpu":
        return torch.from_numpy(frame.copy()) if copy else _view(torch, frame)
    _register(torch, frame, device)
    source = _view(torch, frame)
    # The copy on the device is the private one; it counts only if the frame was whole when it was done.
    tensor = source.to(device, non_blocking=True, copy=True)
    torch.cuda.current_stream(tensor.device).synchronize()
    if not frame.still_valid():
        raise FrameOverwrittenError(
            f"frame {frame.seq} was overwritten while it was copied to {device}",
            hint="use more slots, or take frames sooner",
        )
    return tensor


def _register(torch: Any, frame: Frame, device: object) -> None:
    """Makes the memory known to CUDA with the first frame of a ring; costs milliseconds, once."""
    known = frame.registration
    if known is not None and known.reader is frame.reader:
        return
    _check_device(torch, device)
    if known is not None:
        known.close()
    frame.registration = HostRegistration(torch, frame.reader)


def _view(torch: Any, frame: Frame) -> Any:
    """A tensor over the frame's memory. PyTorch does not know "read-only", and warns where it is said."""
    array = frame.unmarked_array
    return torch.from_numpy(array if array.size else array.copy())


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
