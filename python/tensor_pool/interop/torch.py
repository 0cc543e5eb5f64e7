"""Frames as PyTorch tensors, on the CPU and on CUDA devices."""

from __future__ import annotations

from typing import Any, Protocol

from tensor_pool.errors import FrameOverwrittenError

__all__ = ["from_frame"]


class BorrowedFrame(Protocol):
    """What is needed of a frame."""

    @property
    def seq(self) -> int:
        """Its sequence number."""
        ...

    def copy(self) -> Any:
        """A private array of its values."""
        ...

    def still_valid(self) -> bool:
        """Whether it was whole until now."""
        ...


def from_frame(frame: BorrowedFrame, *, device: object | None = None, copy: bool = True) -> Any:
    """A frame as a tensor; see `tensor_pool.Frame.torch`.

    Raises:
        ImportError: PyTorch is not installed.
        FrameOverwrittenError: The producer was faster.
    """
    torch = _import_torch()
    if device is None or str(device) == "cpu":
        return torch.from_numpy(frame.copy()) if copy else torch.from_dlpack(frame)
    # The copy to the device is the private one; it counts only if the frame was whole when it was done.
    tensor = torch.from_dlpack(frame).to(device, copy=True)
    torch.cuda.current_stream(tensor.device).synchronize()
    if not frame.still_valid():
        raise FrameOverwrittenError(
            f"frame {frame.seq} was overwritten while it was copied to {device}",
            hint="use more slots, or take frames sooner",
        )
    return tensor


def _import_torch() -> Any:
    try:
        import torch  # noqa: PLC0415 - only who asks for it pays for it
    except ImportError as e:
        raise ImportError(
            "frame.torch() needs PyTorch, which is not installed; try: pip install torch"
        ) from e
    return torch
