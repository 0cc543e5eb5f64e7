"""The native module: mechanisms without policy. Use the classes of `tensor_pool` where there is one.

Handles raise `ForkedProcessError` in a forked child and `ClosedError` after `close()`. Calls that block let
signals in at least every 100 ms. Element types are given as the wire numbers them (`tensor_pool.datatypes`).
"""

import os
from collections.abc import Sequence
from typing import Any, Final, Literal, Self, final

from numpy.typing import NDArray
from typing_extensions import Buffer, CapsuleType

__all__ = [
    "DROP_REASONS",
    "Claim",
    "Frame",
    "FrameDescriptor",
    "FrameProgress",
    "RingAddress",
    "RingReader",
    "RingWriter",
    "crc32c",
    "create_ring",
    "format_region_uri",
    "hot_layouts",
    "parse_region_uri",
    "wait_any",
]

# --- Rings ---

DROP_REASONS: Final[tuple[str, ...]]
"""The names of all reasons for which a reader drops a frame."""

@final
class RingAddress:
    """A ring as it is announced: its numbers and where its files are.

    Args:
        stream_id: Pool stream.
        epoch: Epoch of the files.
        nslots: Slots of the header ring and of every pool, a power of two.
        header_uri: Region URI of the header ring.
        pools: ``(pool_id, stride_bytes, uri)`` of each payload pool.
    """

    def __new__(
        cls,
        *,
        stream_id: int,
        epoch: int,
        nslots: int,
        header_uri: str,
        pools: Sequence[tuple[int, int, str]],
    ) -> Self: ...
    @property
    def stream_id(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def nslots(self) -> int: ...
    @property
    def header_uri(self) -> str: ...
    @property
    def pools(self) -> list[tuple[int, int, str]]: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...

def create_ring(
    directory: str | os.PathLike[str],
    *,
    stream_id: int,
    epoch: int,
    nslots: int,
    pools: Sequence[tuple[int, int]],
    mode: int = 0o600,
    allocate: bool = True,
    require_hugepages: bool = False,
) -> RingAddress:
    """Makes the files of a new ring in an existing directory; leaves nothing behind when it fails.

    Args:
        directory: Where ``header.ring`` and ``<pool_id>.pool`` go.
        stream_id: Pool stream.
        epoch: Epoch, written into every superblock.
        nslots: Number of slots, a power of two.
        pools: ``(pool_id, stride_bytes)``; strides are 64 times a power of two.
        mode: Permission bits, whatever the umask.
        allocate: Take the memory now; otherwise the files are sparse.
        require_hugepages: Refuse unless the directory is on hugetlbfs.

    Raises:
        RegionFullError: There is not enough room.
        RegionError: The numbers make no ring, or a file exists already.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        ...     create_ring(directory, stream_id=1, epoch=1, nslots=8, pools=[(1, 4096)])
        RingAddress(stream 1, epoch 1, 8 slots of 4096 bytes)
    """

@final
class RingWriter:
    """The one writer of a ring. It never waits for readers.

    Args:
        address: The ring.
        base_dirs: Directories below which its files may lie.

    Example:
        >>> import tempfile, numpy as np
        >>> with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        ...     address = create_ring(directory, stream_id=1, epoch=1, nslots=8, pools=[(1, 4096)])
        ...     with RingWriter(address, base_dirs=[directory]) as writer:
        ...         writer.publish(np.zeros((4, 5), "float32"))
        0
    """

    def __new__(cls, address: RingAddress, *, base_dirs: Sequence[str | os.PathLike[str]]) -> Self: ...
    def publish(
        self,
        array: Buffer,
        *,
        dtype: int | None = None,
        timestamp_ns: int | None = None,
        meta_version: int = 0,
        ring: bool = True,
    ) -> int:
        """Copies an array into the next slot, commits it and rings the doorbell; returns its sequence number.

        Arrays that are not contiguous are packed on the way. `dtype` overrides what the elements mean, size
        kept (bytes or bits instead of ``uint8``). `timestamp_ns` defaults to CLOCK_MONOTONIC.

        Raises:
            FrameTooLargeError: No pool is large enough. The frame is dropped; nothing was written.
            TensorLayoutError: The wire has no such element type, or not 1 to 8 dimensions.
            ClaimError: A claim is still open.
        """

    def claim(
        self,
        shape: Sequence[int],
        dtype: int,
        *,
        order: Literal["C", "F"] = "C",
        seq: int | None = None,
        timestamp_ns: int | None = None,
        meta_version: int = 0,
        progress_unit: int = 0,
    ) -> Claim:
        """Takes the next slot (or that of `seq`, above the last) for a tensor that is written in place."""

    def ring(self, wake: int | None = None) -> None:
        """Raises the activity time stamp and wakes up to `wake` sleeping readers, all of them by default."""

    def refresh_activity(self) -> None:
        """Says that the ring is alive, without waking anybody."""

    def prefault(self) -> None:
        """Touches every page now rather than in the first frames."""

    @property
    def next_seq(self) -> int:
        """Sequence number of the next frame."""

    @property
    def max_payload_bytes(self) -> int:
        """Largest payload that fits."""

    @property
    def address(self) -> RingAddress: ...
    @property
    def closed(self) -> bool: ...
    def close(self) -> None:
        """Unmaps the ring. Arrays of open claims stay valid, but can't be committed any more."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_args: object) -> None: ...

@final
class Claim:
    """A slot that is being filled; a writable buffer. Committed or aborted exactly once.

    As a context manager it commits at the end of the block, and aborts when the block raises.
    """

    @property
    def seq(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def finished(self) -> bool: ...
    @property
    def array(self) -> NDArray[Any]:
        """The payload as a writable array, made read-only by `commit` and `abort`. Don't keep views of it."""

    def write_header(self) -> None:
        """Writes the header before the payload is complete, so that readers may follow its progress."""

    def commit(self, *, ring: bool = True) -> int:
        """Publishes the frame and returns its sequence number."""

    def abort(self) -> None:
        """Gives the slot up: no reader will accept it, and its sequence number is skipped."""

    def __enter__(self) -> Self: ...
    def __exit__(self, kind: type[BaseException] | None, *_rest: object) -> None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class RingReader:
    """A reader of a ring. Any number of them may look at the same ring; none of them ever writes.

    Args:
        address: The ring.
        base_dirs: Directories below which its files may lie.
        mode: ``"map"`` gives frames that still lie in shared memory; ``"copy"`` reads with system calls and
            gives private copies, and survives files that shrink.
        relaxed_stride: Accept pool strides that are any multiple of 64.

    Raises:
        RegionError: A file can't be opened, or is not what was announced. Nothing stays mapped then.
    """

    def __new__(
        cls,
        address: RingAddress,
        *,
        base_dirs: Sequence[str | os.PathLike[str]],
        mode: Literal["map", "copy"] = "map",
        relaxed_stride: bool = False,
    ) -> Self: ...
    def poll(self) -> Frame | None:
        """The next frame, or `None` when there is none yet. Never waits."""

    def read(self, seq: int) -> Frame | None:
        """Frame `seq`, or `None` (and a count in `drops`) when it can't be taken."""

    def read_prefix(self, seq: int, filled_bytes: int) -> Frame | None:
        """What is there of frame `seq`, of which the producer has reported `filled_bytes`: provisional."""

    def wait(self, timeout: float) -> bool:
        """Sleeps until the producer rings, for at most `timeout` seconds; did it since the last `poll`?"""

    def seek(self, seq: int) -> None:
        """Goes to frame `seq`; what is passed over does not count as a gap."""

    def newest(self) -> int | None:
        """The highest committed sequence number in the ring."""

    def oldest(self) -> int | None:
        """The lowest committed sequence number that is still there."""

    @property
    def next_seq(self) -> int:
        """Sequence number that `poll` looks for."""

    @property
    def gaps(self) -> int:
        """Sequence numbers that were never found."""

    @property
    def drops(self) -> dict[str, int]:
        """How many frames were dropped, by reason; reasons that never occurred are left out."""

    @property
    def late(self) -> int:
        """How many frames were dropped because the producer was faster."""

    def check_superblocks(self) -> None:
        """Raises `RegionError` when a superblock no longer says what was announced."""

    def liveness(self) -> tuple[int, int]:
        """Process that made the ring, and when it was last said to be alive (CLOCK_MONOTONIC, ns)."""

    @property
    def address(self) -> RingAddress: ...
    @property
    def closed(self) -> bool: ...
    def close(self) -> None:
        """Lets go of the ring. Frames in use keep it mapped."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_args: object) -> None: ...

def wait_any(readers: Sequence[RingReader], timeout: float, /) -> bool:
    """Sleeps until one of the readers' producers rings, at most `timeout` seconds."""

@final
class Frame:
    """One frame: what it is, and a read-only view of its payload (buffer protocol, DLPack).

    A frame in shared memory may be overwritten while it is used. What was computed from it counts only if
    `still_valid` says so *afterwards*; as a context manager the frame asks by itself.

    Example:
        >>> import tempfile, numpy as np
        >>> with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        ...     address = create_ring(directory, stream_id=1, epoch=1, nslots=8, pools=[(1, 4096)])
        ...     writer = RingWriter(address, base_dirs=[directory])
        ...     reader = RingReader(address, base_dirs=[directory])
        ...     _ = writer.publish(np.arange(6, dtype="uint8").reshape(2, 3))
        ...     with reader.poll() as image:
        ...         int(image.sum())
        15
    """

    @property
    def stream_id(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def seq(self) -> int: ...
    @property
    def timestamp_ns(self) -> int: ...
    @property
    def meta_version(self) -> int: ...
    @property
    def dtype(self) -> str:
        """NumPy's name of the element type."""

    @property
    def wire_dtype(self) -> int:
        """The element type as the wire numbers it."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]:
        """In bytes."""

    @property
    def order(self) -> Literal["C", "F"]: ...
    @property
    def nbytes(self) -> int:
        """Length of the payload."""

    @property
    def borrowed(self) -> bool:
        """Is the payload still in shared memory?"""

    @property
    def usable_bytes(self) -> int | None:
        """For a frame that is still being written: how many bytes from the start mean something."""

    @property
    def array(self) -> NDArray[Any]:
        """A read-only array over the payload, without a copy."""

    def still_valid(self) -> bool:
        """Is the payload still the frame's? Ask after using it."""

    def copy(self) -> NDArray[Any]:
        """A private array with the frame's values.

        Raises:
            FrameOverwrittenError: The producer was faster.
        """

    def copy_into(self, out: Buffer) -> bool:
        """Copies the payload's bytes into a writable, contiguous buffer; false when they can't be trusted."""

    def __enter__(self) -> NDArray[Any]: ...
    def __exit__(self, kind: type[BaseException] | None, *_rest: object) -> None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __dlpack__(
        self,
        *,
        stream: None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

# --- Hot messages and small functions ---

@final
class FrameDescriptor:
    """One frame is there (schema 900, template 4), coded by Rust.

    Example:
        >>> FrameDescriptor.decode(FrameDescriptor(stream_id=1, epoch=2, seq=3).encode())
        FrameDescriptor(stream_id=1, epoch=2, seq=3)
    """

    def __new__(
        cls,
        *,
        stream_id: int,
        epoch: int,
        seq: int,
        timestamp_ns: int | None = None,
        meta_version: int | None = None,
        trace_id: int | None = None,
    ) -> Self: ...
    @property
    def stream_id(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def seq(self) -> int: ...
    @property
    def timestamp_ns(self) -> int | None: ...
    @property
    def meta_version(self) -> int | None: ...
    @property
    def trace_id(self) -> int | None: ...
    @staticmethod
    def decode(message: Buffer) -> FrameDescriptor | None:
        """Reads a framed message; `None` when it is something else."""

    def encode(self) -> bytes:
        """The framed message."""

    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...

@final
class FrameProgress:
    """Part of a frame is there (schema 900, template 11), coded by Rust."""

    def __new__(
        cls, *, stream_id: int, epoch: int, seq: int, payload_bytes_filled: int, state: int
    ) -> Self: ...
    @property
    def stream_id(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def seq(self) -> int: ...
    @property
    def payload_bytes_filled(self) -> int: ...
    @property
    def state(self) -> int: ...
    @staticmethod
    def decode(message: Buffer) -> FrameProgress | None:
        """Reads a framed message; `None` when it is something else."""

    def encode(self) -> bytes:
        """The framed message."""

    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...

def crc32c(data: Buffer, crc: int = 0, /) -> int:
    """CRC32C of a contiguous buffer, continuing `crc`.

    Example:
        >>> hex(crc32c(b"123456789"))
        '0xe3069283'
    """

def parse_region_uri(uri: str) -> tuple[str, bool]:
    """Takes a region URI apart: ``(path, require_hugepages)``.

    Example:
        >>> parse_region_uri("shm:file?path=/dev/shm/a|require_hugepages=true")
        ('/dev/shm/a', True)
    """

def format_region_uri(path: str, *, require_hugepages: bool = False) -> str:
    """The region URI of an absolute path."""

def hot_layouts() -> list[tuple[str, int, int, int, list[tuple[str, int, int]]]]:
    """The offsets that Rust uses: message, schema, template, block length and ``(field, offset, size)``."""
