"""A frame in a program's hands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from tensor_pool.errors import FrameOverwrittenError

if TYPE_CHECKING:
    from types import TracebackType

    from numpy.typing import NDArray
    from typing_extensions import CapsuleType

    from tensor_pool import _native
    from tensor_pool.closing import Closing

__all__ = ["Frame", "FrameInfo", "FrameLedger"]


class FrameInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a frame besides its values; stays true whatever becomes of them."""

    stream_id: int
    epoch: int
    seq: int
    timestamp_ns: int
    """When it was taken, on the producer's clock; CLOCK_MONOTONIC unless its metadata says otherwise."""
    shape: tuple[int, ...]
    dtype: str
    order: str
    nbytes: int
    meta_version: int
    """Which version of the stream's metadata belongs to it."""
    publish_timestamp_ns: int | None = None
    """When its descriptor was sent, if the producer says so."""
    trace_id: int | None = None


class FrameLedger:
    """Which frames were handed out, and what became of them (decision M17)."""

    __slots__ = ("delivered", "overwritten", "registration", "unjudged", "validated")

    def __init__(self) -> None:
        self.registration: Closing | None = None
        """The ring's memory as a device knows it, once a frame went there."""
        self.delivered = 0
        self.validated = 0
        self.overwritten = 0
        self.unjudged: Frame | None = None

    def forget_ring(self) -> None:
        """The ring is about to be unmapped: devices must not know it any more."""
        registration, self.registration = self.registration, None
        if registration is not None:
            registration.close()

    def judge_last(self) -> None:
        """A frame that the program never asked about is asked about now."""
        last, self.unjudged = self.unjudged, None
        # What became of a frame whose ring was given up can't be known any more.
        if last is not None and not (last.reader is not None and last.reader.closed):
            last.still_valid()


class Frame:
    """One tensor of a stream, where it lies in shared memory: a read-only view that costs nothing.

    The producer never waits. It may overwrite the frame while a program works on it, so what was computed
    counts only if the frame was whole *afterwards*: a ``with`` block asks at its end, `copy` asks by itself,
    and `still_valid` may be asked at any time.

    Example:
        >>> import numpy as np, tensor_pool as tp
        >>> with tp.connect(embedded=True) as pool:
        ...     out = pool.producer("camera-1", dtype="uint8", shape=(2, 3))
        ...     _ = out.publish(np.arange(6, dtype="uint8").reshape(2, 3))
        ...     frame = pool.consumer("camera-1").poll(timeout=5.0)
        ...     with frame as image:
        ...         total = int(image.sum())
        ...     total, frame.info.seq
        (15, 0)
    """

    __slots__ = ("_info", "_judged", "_ledger", "_log", "_native", "_reader")

    def __init__(
        self,
        native: _native.Frame,
        ledger: FrameLedger,
        log: _native.DescriptorLog | None = None,
        reader: _native.RingReader | None = None,
    ) -> None:
        self._native = native
        self._reader = reader
        self._ledger = ledger
        self._log = log
        self._judged = False
        self._info: FrameInfo | None = None

    @property
    def info(self) -> FrameInfo:
        """What is known of the frame besides its values."""
        if self._info is None:
            native = self._native
            # Only who asks pays for it; a descriptor that was missed tells nothing (decision M16).
            descriptor = None if self._log is None else self._log.find(native.epoch, native.seq)
            self._info = FrameInfo(
                stream_id=native.stream_id,
                epoch=native.epoch,
                seq=native.seq,
                timestamp_ns=native.timestamp_ns,
                shape=native.shape,
                dtype=native.dtype,
                order=native.order,
                nbytes=native.nbytes,
                meta_version=native.meta_version,
                publish_timestamp_ns=None if descriptor is None else descriptor.timestamp_ns,
                trace_id=None if descriptor is None else descriptor.trace_id,
            )
        return self._info

    @property
    def seq(self) -> int:
        """The sequence number."""
        return self._native.seq

    @property
    def native(self) -> _native.Frame:
        """The frame of the native module."""
        return self._native

    @property
    def reader(self) -> _native.RingReader | None:
        """What it was read with; for other parts of the library."""
        return self._reader

    @property
    def registration(self) -> Any:
        """The ring's memory as a device knows it; for other parts of the library."""
        return self._ledger.registration

    @registration.setter
    def registration(self, registration: Closing) -> None:
        self._ledger.registration = registration

    @property
    def array(self) -> NDArray[Any]:
        """A read-only array over the values, without a copy; ask `still_valid` after using it."""
        return self._native.array

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the tensor."""
        return self._native.shape

    @property
    def dtype(self) -> str:
        """NumPy's name of the element type."""
        return self._native.dtype

    def still_valid(self) -> bool:
        """Whether the values are still the frame's, and its epoch the stream's."""
        valid = self._native.still_valid()
        self._judge(valid=valid)
        return valid

    def copy(self) -> NDArray[Any]:
        """A private array with the frame's values.

        Raises:
            FrameOverwrittenError: The producer was faster.
        """
        try:
            values = self._native.copy()
        except FrameOverwrittenError:
            self._judge(valid=False)
            raise
        self._judge(valid=True)
        return values

    def torch(self, device: object | None = None, *, copy: bool = True) -> Any:
        """The frame as a PyTorch tensor: a private one by default, which nobody can overwrite.

        Args:
            device: Where the tensor goes, such as ``"cuda"``; the CPU when left out.
            copy: False gives a view of shared memory on the CPU: ask `still_valid` after using it. PyTorch
                can't be told that it must not be written to; writing to it ends the program.

        Raises:
            FrameOverwrittenError: The producer was faster.
            ImportError: PyTorch is not installed.
        """
        from tensor_pool.interop.torch import from_frame  # noqa: PLC0415 - only who asks for it pays for it

        return from_frame(self, device=device, copy=copy)

    def _judge(self, *, valid: bool) -> None:
        if not self._judged:
            self._judged = True
            ledger = self._ledger
            ledger.validated += valid
            ledger.overwritten += not valid
            if ledger.unjudged is self:
                ledger.unjudged = None

    def __enter__(self) -> NDArray[Any]:
        return self._native.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._native.__exit__(kind, error, traceback)
        except FrameOverwrittenError:
            self._judge(valid=False)
            raise
        self._judge(valid=kind is None or self._native.still_valid())

    def __dlpack__(self, **options: Any) -> CapsuleType:
        return self._native.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._native.__dlpack_device__()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        import numpy as np  # noqa: PLC0415 - loaded long before, by the frame itself

        return np.array(self._native.array, dtype=dtype, copy=copy)

    def __repr__(self) -> str:
        native = self._native
        shape = "x".join(map(str, native.shape))
        return f"<Frame {native.seq} of stream {native.stream_id}: {native.dtype} {shape}>"
