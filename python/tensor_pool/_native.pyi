"""The native module: mechanisms without policy. Use the classes of `tensor_pool` where there is one.

Handles raise `ForkedProcessError` in a forked child and `ClosedError` after `close()`. Calls that block let
signals in at least every 100 ms, and end daemon threads with `SystemExit` when the interpreter exits. Element
types are given as the wire numbers them (`tensor_pool.datatypes`).
"""

import os
from collections.abc import Sequence
from typing import Any, Final, Literal, Protocol, Self, final, type_check_only

from numpy.typing import DTypeLike, NDArray
from typing_extensions import Buffer, CapsuleType, disjoint_base

from tensor_pool.datatypes import Dtype
from tensor_pool.pool.frame import FrameInfo

__all__ = [
    # rings
    "DROP_REASONS",
    "BellFd",
    "BellWatcher",
    "Claim",
    "Frame",
    "FrameDescriptor",
    "FramePrefix",
    "FrameProgress",
    "FrameReceiver",
    "FrameSender",
    "Inlet",
    "Outlet",
    "RingAddress",
    "RingKeeper",
    "RingReader",
    "RingWriter",
    "check_not_exiting",
    "crc32c",
    "create_ring",
    "format_region_uri",
    "hot_layouts",
    "parse_region_uri",
    "wait_any",
    # Aeron
    "AeronClient",
    "AeronCounter",
    "AeronDrain",
    "AeronMediaDriver",
    "AeronPublication",
    "AeronSubscription",
    "DescriptorFeed",
    "DescriptorLog",
    "Inbox",
    "Pulse",
    "aeron_counters",
    "aeron_driver_status",
    "aeron_version",
    # the bridge
    "BRIDGE_LOSSES",
    "ChunkReceiver",
    "ChunkSender",
]

# --- Rings ------------------------------------------------------------------------------------------

DROP_REASONS: Final[tuple[str, ...]]
"""The names of all reasons for which a reader drops a frame."""

@final
class RingAddress:
    """A ring as it is announced: its numbers and where its files are. Can be pickled and hashed.

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
    def __hash__(self) -> int: ...
    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, Any]]: ...

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

@type_check_only
class _Publication(Protocol):
    """The publication of `tensor_pool.transport`."""

    @property
    def native(self) -> AeronPublication: ...

@final
class RingWriter:
    """The one writer of a ring. It never waits for readers.

    It holds a lock on the ring's header file until it is closed or its process ends. When a process is
    killed, children that it forked meanwhile (without ``exec``) keep the lock until they end too.

    Args:
        address: The ring.
        base_dirs: Directories below which its files may lie.
        descriptors: Where to send a `FrameDescriptor` for each frame, between its commit and the bell; a
            publication of `tensor_pool.transport` or of this module.
        stamp_descriptors: Say in each descriptor when it was sent.
        outlet: Where to count.

    Raises:
        RegionError: A file can't be opened for writing or is not what was announced, or the ring has a
            writer.

    Example:
        >>> import tempfile, numpy as np
        >>> with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        ...     address = create_ring(directory, stream_id=1, epoch=1, nslots=8, pools=[(1, 4096)])
        ...     with RingWriter(address, base_dirs=[directory]) as writer:
        ...         writer.publish(np.zeros((4, 5), "float32"))
        0
    """

    def __new__(
        cls,
        address: RingAddress,
        *,
        base_dirs: Sequence[str | os.PathLike[str]],
        descriptors: AeronPublication | _Publication | None = None,
        stamp_descriptors: bool = False,
        outlet: Outlet | None = None,
    ) -> Self: ...
    def publish(
        self,
        array: Buffer | NDArray[Any],
        dtype: int | None = None,
        timestamp_ns: int | None = None,
        meta_version: int = 0,
        trace_id: int | None = None,
        ring: bool = True,
    ) -> int:
        """Copies an array into the next slot, commits it, tells of it; returns its sequence number.

        Given by position, as in `claim`: five keywords would cost as much as the frame itself.

        Arrays that are not contiguous are packed on the way. `dtype` overrides what the elements mean, size
        kept (bytes or bits instead of ``uint8``). `timestamp_ns` defaults to CLOCK_MONOTONIC.

        Raises:
            FrameTooLargeError: No pool is large enough. The frame is dropped; nothing was written.
            TensorLayoutError: The wire has no such element type, or not 1 to 8 dimensions.
            ClaimError: A claim is still open.
        """

    def claim(
        self,
        shape: Sequence[int] | int,
        dtype: int,
        order: Literal["C", "F"] = "C",
        seq: int | None = None,
        timestamp_ns: int | None = None,
        meta_version: int = 0,
        trace_id: int | None = None,
        progress_unit: int = 0,
    ) -> Claim:
        """Takes the next slot (or that of `seq`, above the last) for a tensor that is written in place."""

    def ring(self, wake: int | None = None) -> None:
        """Raises the activity time stamp and wakes up to `wake` sleeping readers, all of them by default."""

    def refresh_activity(self) -> None:
        """Says that the ring is alive, without waking anybody."""

    def prefault(self, lock: bool = False) -> None:
        """Touches every page now rather than in the first frames; asks for huge pages first.

        Others may publish meanwhile: a thread of its own can do this behind a producer that has begun.

        Args:
            lock: Also keep every page in memory, so that the system never swaps it out.

        Raises:
            RegionFullError: The files are sparse and there is not enough memory (frames would end in a
                SIGBUS), or one was cut off.
            RegionError: The pages can't be locked, mostly because the limit is too low.
        """

    @property
    def next_seq(self) -> int:
        """Sequence number of the next frame."""

    @property
    def descriptor_counts(self) -> tuple[int, int, int]:
        """Descriptors sent, skipped because nobody subscribes, and dropped because nobody keeps up."""

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
    """The next frame of a stream while it is being filled; a writable buffer. Made by `Producer.claim`.

    It is committed or aborted exactly once. As a context manager it publishes the frame at the end of the
    block; when the block raises, the frame is given up and its sequence number skipped.
    """

    @property
    def seq(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def finished(self) -> bool: ...
    @property
    def array(self) -> NDArray[Any]:
        """The payload as a writable array, made read-only by `commit` and `abort`. Don't keep views of it.

        Raises:
            ClaimError: The claim was committed or aborted already.
        """

    def write_header(self) -> None:
        """Writes the header before the payload is complete, so that readers may follow its progress."""

    def commit(self, *, ring: bool = True) -> int:
        """Publishes the frame and returns its sequence number."""

    def abort(self) -> None:
        """Gives the slot up: no reader will accept it, and its sequence number is skipped."""

    def progress(
        self, *, rows: int | None = None, columns: int | None = None, bytes_filled: int | None = None
    ) -> None:
        """Tells consumers how much of the frame is there already; at most as often as they want to hear it.

        Args:
            rows: So many rows (steps of the first dimension) are complete.
            columns: So many columns (steps of the second dimension).
            bytes_filled: So many bytes from the start.

        Raises:
            ClaimError: The slot was not claimed with ``progress=``.
            ValueError: Not exactly one of the three, or more than the frame has.
        """

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, _value: object = None, _traceback: object = None
    ) -> None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Outlet:
    """What a producer's session and its sender share: the ring of the moment, and counts over all rings."""

    def __new__(cls) -> Self: ...
    @property
    def writer(self) -> RingWriter | None:
        """Where frames go now."""

    @writer.setter
    def writer(self, writer: RingWriter | None) -> None: ...
    @property
    def observed(self) -> bool:
        """Whether Python is told of every frame, and rings the doorbell."""

    @observed.setter
    def observed(self, observed: bool) -> None: ...
    def on_metadata_change(self) -> None:
        """Has the next frame ask for the version of the metadata."""

    @property
    def frames(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def too_large(self) -> int: ...
    @property
    def aborted(self) -> int: ...
    @property
    def descriptors_sent(self) -> int: ...
    @property
    def descriptors_skipped(self) -> int: ...
    @property
    def descriptors_dropped(self) -> int: ...
    @property
    def published_ns(self) -> int:
        """When the last frame was published, CLOCK_MONOTONIC."""

@disjoint_base
class FrameSender:
    """The part of a `Producer` that runs for every frame."""

    def __new__(cls, outlet: Outlet, *, realtime: bool = False) -> Self: ...
    def publish(
        self,
        array: Buffer | NDArray[Any],
        *,
        dtype: DTypeLike | Dtype | None = None,
        timestamp_ns: int | None = None,
        trace_id: int | None = None,
        progress: bool = False,
    ) -> int:
        """Copies an array into the stream and returns its sequence number.

        Args:
            array: Anything with a buffer: NumPy arrays, bytes, memoryviews. Copied before the call returns.
            dtype: What the elements mean, where the buffer doesn't tell; their size stays.
            timestamp_ns: When it was taken; now when left out.
            trace_id: Travels with the frame's descriptor.
            progress: Tell consumers also when the copy begins and ends, for those who wait for that.

        Raises:
            FrameTooLargeError: Larger than every pool of the stream. Counted, nothing is written.
            TensorLayoutError: The wire has no such element type, or not 1 to 8 dimensions.
            LeaseLostError: There is no lease, and none came in time.
            ClosedError: The producer was closed.
        """

    def claim(
        self,
        shape: Sequence[int] | int,
        dtype: DTypeLike | Dtype,
        *,
        order: Literal["C", "F"] = "C",
        timestamp_ns: int | None = None,
        trace_id: int | None = None,
        progress: bool | Literal["rows", "columns"] | None = None,
    ) -> Claim:
        """The next slot, to be filled in place: no copy at all.

        Args:
            shape: The frame's shape; one number is one dimension.
            dtype: The frame's element type.
            order: Memory order of its array.
            timestamp_ns: When it was taken; now when left out.
            trace_id: Travels with the frame's descriptor.
            progress: Let consumers follow while it is filled (`Claim.progress`): in rows, in columns, or in
                bytes (True).

        Raises:
            FrameTooLargeError: Larger than every pool of the stream.
            ClaimError: All slots are claimed.
            LeaseLostError: There is no lease, and none came in time.
            ClosedError: The producer was closed.
        """

@final
class RingReader:
    """A reader of a ring. Any number of them may look at the same ring; none of them ever writes.

    Args:
        address: The ring.
        base_dirs: Directories below which its files may lie.
        mode: ``"map"`` gives frames that still lie in shared memory; ``"copy"`` reads with system calls and
            gives private copies, and survives files that shrink.
        relaxed_stride: Accept pool strides that are any multiple of 64.
        inlet: Where to count what becomes of its frames.

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
        inlet: Inlet | None = None,
    ) -> Self: ...
    def poll(self) -> Frame | None:
        """The next frame, or `None` when there is none yet. Never waits."""

    def has_next(self) -> bool:
        """Whether there is something for `poll`; takes nothing and counts nothing.

        Looks into one slot, and further ahead only when the doorbell rang since the last look. When there is
        nothing, only a later ring ends a `wait`, as after `poll`.
        """

    def read(self, seq: int) -> Frame | None:
        """Frame `seq`, or `None` (and a count in `drops`) when it can't be taken."""

    def read_prefix(self, seq: int, filled_bytes: int) -> FramePrefix | None:
        """What is there of frame `seq`, of which the producer has reported `filled_bytes`.

        `None` when nothing can be had, which is always so in copy mode.
        """

    def wait(self, timeout: float, spin: float = 0.0) -> bool:
        """Waits until the producer rings, for at most `timeout` seconds; did it since the last `poll`?

        Args:
            timeout: The longest wait in seconds.
            spin: For how many of them, at first, to look at the doorbell again and again rather than sleep.
                That takes a core and saves the time of waking up, some 10 us.

        Raises:
            ClosedError: It was closed or revoked, perhaps meanwhile.
        """

    def ahead_of(self, last: int) -> int | None:
        """Where to go on behind frame `last`, taken last, if the next ones would be overwritten in use."""

    def seek(self, seq: int, *, seen: bool = False) -> None:
        """Goes to frame `seq`; what is passed over does not count as a gap.

        Args:
            seq: It may be far from being written.
            seen: It was in the ring, or the one before it. Who goes there is not to wait for it for ever
                should that have been a lie.
        """

    def newest(self) -> int | None:
        """The highest committed sequence number in the ring, of those that are believed."""

    @property
    def unread(self) -> int:
        """How many frames are lost to who reads no more, also of those that were overwritten before."""

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

    def payload_mappings(self) -> list[tuple[int, int, int]]:
        """Pool id, address and bytes of each payload pool as it is mapped here; none in copy mode.

        For making the memory known to a device (CUDA's ``cudaHostRegister``, with its read-only flag). The
        memory stays mapped while this reader is open or one of its frames, or an array of one, lives: undo
        the registration before.
        """

    def check_files(self) -> None:
        """Raises `RegionError` when a file is no longer what was announced: its superblock, its length."""

    def liveness(self) -> tuple[int, int]:
        """Process that made the ring, and when it was last said to be alive (CLOCK_MONOTONIC, ns)."""

    @property
    def address(self) -> RingAddress: ...
    @property
    def closed(self) -> bool: ...
    def close(self) -> None:
        """Lets go of the ring. Frames in use keep it mapped."""

    def revoke(self) -> None:
        """Like `close`, and the ring is not believed any more: its epoch is over.

        Frames that lie in it answer `still_valid` with false and raise `FrameOverwrittenError`, without
        looking at the ring again. Arrays that were made of them stay mapped. Private copies (mode
        ``"copy"``) depend on no ring and stay valid.
        """

    def __enter__(self) -> Self: ...
    def __exit__(self, *_args: object) -> None: ...

@final
class Inlet:
    """What a consumer's session and its receiver share: the ring of the moment, and counts over all rings."""

    def __new__(cls) -> Self: ...
    @property
    def reader(self) -> RingReader | None:
        """Where frames come from now."""

    @reader.setter
    def reader(self, reader: RingReader | None) -> None: ...
    @property
    def descriptors(self) -> DescriptorLog | None:
        """Where frames find what only descriptors tell."""

    @descriptors.setter
    def descriptors(self, log: DescriptorLog | None) -> None: ...
    @property
    def registration(self) -> Any:
        """The ring's memory as a device knows it, once a frame went there."""

    @registration.setter
    def registration(self, registration: Any) -> None: ...
    @property
    def guided(self) -> bool:
        """Whether more than the ring decides what comes next: then `FrameReceiver._poll_guided` is asked."""

    @guided.setter
    def guided(self, guided: bool) -> None: ...
    @property
    def delivered(self) -> int: ...
    @property
    def validated(self) -> int: ...
    @property
    def overwritten(self) -> int: ...
    @property
    def skipped(self) -> int: ...
    @property
    def resyncs(self) -> int: ...
    @property
    def last_seq(self) -> int | None: ...

@disjoint_base
class FrameReceiver:
    """The part of a `Consumer` that runs for every frame."""

    def __new__(
        cls, inlet: Inlet, *, spin: float = 0.0, punctual: bool = False, max_gap: int = 0
    ) -> Self: ...
    def poll(self, timeout: float | None = None) -> Frame | None:
        """The next frame, or None when none comes within `timeout` seconds (at once when left out).

        Raises:
            ClosedError: The consumer or its pool was closed.
            ConfigError: `timeout` is no number; or all frames go to a callback.
            NoMediaDriverError: The media driver ended, and the connection with it.
            NoStreamError: The stream's authority does not let this consumer use shared memory.
        """

    def reserve(self) -> None:
        """From now on all frames are for the calling thread, and `poll` fails in others.

        Raises:
            ConfigError: They are for another one.
        """

    def release(self) -> None:
        """From now on frames are for whoever asks first, if they were for the calling thread."""

    def check_reserved(self) -> None:
        """Raises `ConfigError` in any other thread than the one that all frames are for."""

    def deliver(self, frame: Frame, catch_up: bool) -> Frame:
        """Counts a frame on its way to the program; `catch_up`: looks, now and then, how far behind it is."""

    def judge_last(self) -> None:
        """Asks whether the frame that was handed out last was whole to the end, if the program did not."""

    def wait_for_ring(self, timeout: float) -> bool:
        """Waits for the doorbell of the ring of the moment, at most `timeout` and 0.1 s; did it ring?"""

@final
class RingKeeper:
    """Says that a ring is alive, for who owns its files, whether or not a producer is attached.

    Args:
        address: The ring.
        base_dirs: Directories below which its files may lie.

    Raises:
        RegionError: A file can't be opened for writing, or is not what was announced.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        ...     address = create_ring(directory, stream_id=1, epoch=1, nslots=8, pools=[(1, 4096)])
        ...     with RingKeeper(address, base_dirs=[directory]) as keeper:
        ...         keeper.refresh()
    """

    def __new__(cls, address: RingAddress, *, base_dirs: Sequence[str | os.PathLike[str]]) -> Self: ...
    def refresh(self) -> None:
        """Raises the activity time stamps of the ring and of all pools to now; wakes nobody.

        Raises:
            RegionError: A file was cut off.
        """

    @property
    def address(self) -> RingAddress: ...
    @property
    def closed(self) -> bool: ...
    def close(self) -> None:
        """Lets go of the ring."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_args: object) -> None: ...

def wait_any(readers: Sequence[RingReader], timeout: float, /, spin: float = 0.0) -> bool:
    """Like `RingReader.wait`, for the first of several readers' producers that rings.

    The kernel waits for up to 128 of them at once. Beyond, and before Linux 5.16, they are looked at in turns
    of a millisecond, which costs some CPU time and delays the wake-up by up to that.
    """

@final
class BellWatcher:
    """A native thread that makes file descriptors readable when producers ring, for event loops.

    One thread serves all readers of a process; beyond 127 it waits for them in short turns.

    Args:
        look_interval_ns: How often to look into the rings for frames that nobody rang for: not all producers
            ring.

    Example:
        >>> import select, tempfile
        >>> with tempfile.TemporaryDirectory(dir="/dev/shm") as directory, BellWatcher() as watcher:
        ...     address = create_ring(directory, stream_id=1, epoch=1, nslots=8, pools=[(1, 4096)])
        ...     writer = RingWriter(address, base_dirs=[directory])
        ...     reader = RingReader(address, base_dirs=[directory])
        ...     bell = watcher.watch(reader)
        ...     _ = writer.publish(b"frame")
        ...     bool(select.select([bell], [], [], 5.0)[0]), bell.clear(), reader.poll().nbytes
        (True, None, 5)
    """

    def __new__(cls, *, look_interval_ns: int = 20_000_000) -> Self: ...
    def watch(self, reader: RingReader, fd: int | None = None) -> BellFd:
        """A file descriptor that becomes readable when the reader's producer rings.

        It is readable at once when the bell rang since the reader's last `poll`.

        Args:
            reader: The reader.
            fd: An eventfd of the caller's (``EFD_NONBLOCK``, no semaphore) to make readable instead of a new
                one, so that event loops keep one number while readers come and go. It is duplicated and stays
                the caller's.

        Raises:
            ClosedError: The reader or the watcher was closed.
            ValueError: `fd` is no such eventfd.
            TransportError: The process has too many open files, or none with the number `fd`.
        """

    @property
    def closed(self) -> bool: ...
    def close(self) -> None:
        """Ends the thread. All its file descriptors become readable, so that nobody waits for ever."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_args: object) -> None: ...

@final
class BellFd:
    """A file descriptor that is readable after a bell rang; made by `BellWatcher.watch`.

    Call `clear`, then `poll` the reader until it gives nothing, then wait again. It keeps the ring mapped:
    close it with its reader.
    """

    def fileno(self) -> int:
        """The number of the file descriptor, which belongs to this object: don't close or read it."""

    def clear(self) -> None:
        """Makes it unreadable until the next ring."""

    @property
    def closed(self) -> bool: ...
    def close(self) -> None:
        """Watches the ring no more."""

@final
class Frame:
    """One tensor of a stream, where it lies in shared memory: a read-only view that costs nothing.

    The producer never waits. It may overwrite the frame while a program works on it, so what was computed
    counts only if the frame was whole *afterwards*: a ``with`` block asks at its end, `copy` asks by itself,
    and `still_valid` may be asked at any time. Supports the buffer protocol and DLPack.

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
    def info(self) -> FrameInfo:
        """What is known of the frame besides its values."""

    @property
    def descriptor(self) -> FrameDescriptor | None:
        """What its descriptor said, if that was received."""

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
        """Length of the payload. A producer may append padding, so it may be more than `array` has."""

    @property
    def borrowed(self) -> bool:
        """Is the payload still in shared memory?"""

    @property
    def array(self) -> NDArray[Any]:
        """A read-only array over the values, without a copy; ask `still_valid` after using it."""

    @property
    def unmarked_array(self) -> NDArray[Any]:
        """Like `array`, but not marked read-only, for libraries that know no such mark.

        The memory is read-only all the same, unless the frame is a private copy: writing to it ends the
        program.
        """

    @property
    def reader(self) -> RingReader:
        """What it was read with; for other parts of the library."""

    @property
    def registration(self) -> Any:
        """The ring's memory as a device knows it; for other parts of the library."""

    @registration.setter
    def registration(self, registration: Any) -> None: ...
    def still_valid(self) -> bool:
        """Whether the values are still the frame's, and its epoch the stream's."""

    def copy(self) -> NDArray[Any]:
        """A private array with the frame's values.

        Raises:
            FrameOverwrittenError: The producer was faster.
        """

    def copy_into(self, out: Buffer) -> bool:
        """Copies the payload into a writable, contiguous buffer; false when the copy can't be trusted.

        The buffer must have room for all elements. What the payload has behind them is copied as far as it
        fits.
        """

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

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]: ...
    def __enter__(self) -> NDArray[Any]: ...
    def __exit__(
        self, kind: type[BaseException] | None, _value: object = None, _traceback: object = None
    ) -> None: ...
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

@final
class FramePrefix:
    """A private copy of what there is of a frame that its producer is still writing.

    Provisional: the rest may never come, and the producer may give the frame up. `state` tells what became of
    it.
    """

    @property
    def seq(self) -> int: ...
    @property
    def usable_bytes(self) -> int:
        """How many bytes from the start mean something; the rest of the array is zero."""

    @property
    def nbytes(self) -> int:
        """Length of the whole payload."""

    @property
    def dtype(self) -> str:
        """NumPy's name of the element type."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]:
        """In bytes."""

    @property
    def array(self) -> NDArray[Any]:
        """A read-only array of the whole shape."""

    def state(self) -> Literal["in_progress", "committed", "gone"]:
        """What became of the frame."""

    def __buffer__(self, flags: int, /) -> memoryview: ...

# --- Hot messages and small functions ---------------------------------------------------------------

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

def check_not_exiting() -> None:
    """Ends this thread, by `SystemExit`, when the interpreter is about to end: for loops below native calls.

    Example:
        >>> check_not_exiting()
    """

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

# --- Aeron ------------------------------------------------------------------------------------------

def aeron_version() -> str:
    """The version of Aeron that is built in, such as ``1.54.0``."""

def aeron_driver_status(aeron_dir: str, timeout_ns: int) -> tuple[int, int, int, int, bool]:
    """What the media driver of a directory says about itself.

    Returns:
        Process id, start and last heartbeat (milliseconds since 1970; the heartbeat is -1 after a clean end),
        the nanoseconds of silence after which it drops a client, and whether it showed life within
        `timeout_ns`.

    Raises:
        NoMediaDriverError: The directory has no media driver's file, or one that can't be read.
    """

def aeron_counters(aeron_dir: str) -> list[tuple[int, int, int, int, int, bytes, str]]:
    """All counters of the media driver of a directory, dead or alive.

    Returns:
        Counter id, type id, value, registration id, owning client, key (112 bytes) and label of each.

    Raises:
        NoMediaDriverError: As for `aeron_driver_status`.
    """

@final
class AeronMediaDriver:
    """A media driver on threads of this process; runs from construction to `close`.

    Args:
        aeron_dir: The Aeron directory, an absolute path.
        dir_delete_on_start: Replace what a dead driver left, instead of refusing.
        dir_delete_on_shutdown: Remove the directory at a clean end.
        threading_mode: ``shared``, ``shared_network`` or ``dedicated``.
        idle_strategy: Aeron's name of an idle strategy, for all threads.
        idle_arguments: Its arguments in Aeron's form.
        timer_interval_ns: How often time-outs are looked at.
        client_liveness_ns: Silence after which a client is dropped.
        publication_connection_ns: Silence after which a receiver on another host is not there.
        untethered_window_limit_ns: How long an untethered subscriber may hold back a publication.
        untethered_linger_ns: How long it then stays in its place.
        untethered_resting_ns: How long it rests before it may join again.
        term_buffer_bytes: Bytes of one term of a UDP publication.
        ipc_term_buffer_bytes: Bytes of one term of an IPC publication.
        sparse_terms: Whether terms take memory only when written.
        counter_values_bytes: Bytes for the values of counters, 128 each.

    Raises:
        TransportError: A live driver serves the directory, it holds other files, or Aeron refuses a value.
    """

    def __new__(
        cls,
        *,
        aeron_dir: str,
        dir_delete_on_start: bool,
        dir_delete_on_shutdown: bool,
        threading_mode: str,
        idle_strategy: str,
        idle_arguments: str | None,
        timer_interval_ns: int,
        client_liveness_ns: int | None,
        publication_connection_ns: int | None,
        untethered_window_limit_ns: int | None,
        untethered_linger_ns: int | None,
        untethered_resting_ns: int | None,
        term_buffer_bytes: int | None,
        ipc_term_buffer_bytes: int | None,
        sparse_terms: bool | None,
        counter_values_bytes: int | None,
    ) -> AeronMediaDriver: ...
    @property
    def aeron_dir(self) -> str:
        """The Aeron directory."""

    @property
    def closed(self) -> bool:
        """Whether it was closed."""

    def close(self) -> None:
        """Ends it; its clients notice within a second."""

@final
class AeronClient:
    """A client of a media driver.

    Args:
        aeron_dir: The media driver's directory.
        name: Shown by Aeron's tools; at most 100 bytes.
        connect_timeout_ns: How long to wait for a live media driver.
        driver_timeout_ns: Silence after which the media driver is dead.
        keepalive_interval_ns: How often to show life and look for the driver's.
        idle_sleep_ns: The longest sleep of the client's own thread.

    Raises:
        NoMediaDriverError: There is none in time.
    """

    def __new__(
        cls,
        *,
        aeron_dir: str,
        name: str,
        connect_timeout_ns: int,
        driver_timeout_ns: int,
        keepalive_interval_ns: int,
        idle_sleep_ns: int,
    ) -> AeronClient: ...
    @property
    def aeron_dir(self) -> str:
        """The media driver's directory."""

    @property
    def client_id(self) -> int:
        """The id under which the media driver knows it."""

    @property
    def closed(self) -> bool:
        """Whether it was closed, or lost its media driver."""

    def check(self) -> None:
        """Raises why the client can't be used any more, if so."""

    def take_errors(self) -> list[tuple[int, str]]:
        """Code and text of what its thread ran into since the last call, at most 64."""

    def add_publication(self, channel: str, stream_id: int, timeout_ns: int) -> AeronPublication:
        """Adds an exclusive publication.

        Raises:
            ChannelError: Aeron refuses the channel.
            NoMediaDriverError: The media driver died, or does not answer in time.
        """

    def add_subscription(
        self, channel: str, stream_id: int, max_message_bytes: int, max_total_bytes: int, timeout_ns: int
    ) -> AeronSubscription:
        """Adds a subscription.

        Messages in pieces are put together up to `max_message_bytes` each and `max_total_bytes` in all.
        """

    def add_counter(self, type_id: int, key: bytes, label: str, timeout_ns: int) -> AeronCounter:
        """Adds a counter; the key has at most 112 bytes, the label 380."""

    def close(self) -> None:
        """Closes it and everything made through it."""

@final
class AeronCounter:
    """A number in the media driver's shared memory; made by `AeronClient.add_counter`."""

    @property
    def counter_id(self) -> int:
        """Its number, unique while it exists."""

    @property
    def closed(self) -> bool:
        """Whether it was closed."""

    def add(self, amount: int) -> int:
        """Adds to the value and gives the new one."""

    def set(self, value: int) -> None:
        """Sets the value."""

    def get(self) -> int:
        """The value."""

    def close(self) -> None:
        """Frees it."""

@final
class AeronPublication:
    """An exclusive publication; made by `AeronClient.add_publication`."""

    def offer(self, message: bytes | bytearray | memoryview) -> int:
        """Sends a message of any length up to `max_message_bytes`, from any contiguous buffer.

        Returns:
            The stream's new position; or -1 when nobody subscribes, -2 when subscribers do not keep up, -3
            when the log is being rotated, -5 at the stream's end.

        Raises:
            TransportError: The message is too long.
            NoMediaDriverError: The media driver died.
        """

    def try_claim(self, message: bytes | bytearray | memoryview) -> int:
        """Like `offer`, in one piece of at most `max_payload_bytes`."""

    @property
    def channel(self) -> str:
        """The channel."""

    @property
    def stream_id(self) -> int:
        """The Aeron stream id."""

    @property
    def session_id(self) -> int:
        """Tells it from other publications of the stream."""

    @property
    def max_message_bytes(self) -> int:
        """The longest message that `offer` takes."""

    @property
    def max_payload_bytes(self) -> int:
        """The longest message that `try_claim` takes."""

    @property
    def term_bytes(self) -> int:
        """Bytes of one term."""

    @property
    def connected(self) -> bool:
        """Whether anybody subscribes."""

    @property
    def position(self) -> int:
        """The position behind the last message."""

    @property
    def counts(self) -> tuple[int, int, int, int, int, int]:
        """Messages and bytes sent; attempts without subscribers, without room; rotations; other failures."""

    @property
    def closed(self) -> bool:
        """Whether it was closed."""

    def close(self) -> None:
        """Closes it."""

    def revoke(self) -> None:
        """Closes it, and has the media driver forget what was not sent yet; may be called again."""

@final
class AeronSubscription:
    """A subscription; made by `AeronClient.add_subscription`."""

    def poll(self, limit: int) -> list[tuple[bytes, int, int]]:
        """The messages of up to `limit` fragments, each with its session id and the position behind it."""

    def receive(self, limit: int) -> list[bytes]:
        """The messages of up to `limit` fragments."""

    @property
    def connected(self) -> bool:
        """Whether any publication is heard."""

    def images(self) -> list[tuple[int, int, int, int, str]]:
        """Session id, join time (monotonic nanoseconds), join position, correlation id and source of each."""

    def join_time_ns(self, session_id: int) -> int | None:
        """When the publication of a session became available."""

    def take_image_events(self) -> list[tuple[bool, tuple[int, int, int, int, str]]]:
        """Images that came (true) and went (false) since the last call."""

    @property
    def abandoned_messages(self) -> int:
        """Messages in several pieces that were begun and given up."""

    @property
    def closed(self) -> bool:
        """Whether it was closed."""

    def close(self) -> None:
        """Closes it."""

# --- Receiving and showing life whatever Python does -------------------------------------------------

@final
class AeronDrain:
    """A native thread that polls subscriptions and sends keepalives, whatever Python does meanwhile.

    It never touches Python: a program that computes, sleeps or holds the interpreter's lock for seconds
    neither loses messages nor holds others back.

    Args:
        name: Of the thread; tools show the first 15 bytes.
        shortest_pause_ns: Its pause after a turn that brought something; doubles while nothing comes.
        longest_pause_ns: The longest pause, and so the longest time until a message is noticed.

    Raises:
        TransportError: A pause of no time, pauses in the wrong order, or a name with a NUL byte.

    Example:
        >>> drain = AeronDrain(name="example", shortest_pause_ns=100_000, longest_pause_ns=10_000_000)
        >>> drain.wake()
        >>> drain.wait(1.0), drain.wait(0.0)
        (True, False)
        >>> drain.close()
    """

    def __new__(cls, *, name: str, shortest_pause_ns: int, longest_pause_ns: int) -> Self: ...
    def inbox(
        self,
        subscription: AeronSubscription,
        *,
        max_messages: int,
        max_bytes: int,
        accept: Sequence[tuple[int, int]] | None = None,
        quiet: Sequence[tuple[int, int]] = ...,
        texts: Sequence[bytes] | None = None,
    ) -> Inbox:
        """Polls a subscription into bounded memory from now on.

        Args:
            subscription: What to poll. It stays open for others when the inbox is closed, and the inbox says
                so when it is closed by others.
            max_messages: The most messages that wait; more are lost and counted.
            max_bytes: The most bytes that wait, all messages together.
            accept: ``(schema id, template id)`` of the messages to keep; others are counted and dropped.
                None keeps everything.
            quiet: Those of `accept` that wake nobody: they are there when somebody looks.
            texts: Only messages of `accept` whose first text, right behind the block, is one of these.
        """

    def descriptors(self, subscription: AeronSubscription) -> DescriptorFeed:
        """Polls a stream of frame descriptors from now on; the feed closes the subscription with itself.

        One feed serves all streams of a process that share a descriptor stream. What it receives wakes
        nobody and does not speed the drain up: consumers wait for the doorbell.
        """

    def pulse(
        self,
        publication: AeronPublication,
        message: bytes,
        *,
        period_ns: int,
        timestamp_offset: int | None = None,
    ) -> Pulse:
        """Sends a message at once and then every `period_ns`, until the pulse is stopped or forgotten.

        A message that is refused is offered again for half a period, then counted as failed.

        Args:
            publication: Where to send it.
            message: What to send.
            period_ns: How often.
            timestamp_offset: Where in the message the time of sending goes, as a little-endian unsigned
                64-bit number of CLOCK_MONOTONIC nanoseconds.

        Raises:
            TransportError: The time stamp does not fit into the message, or the message is too long.
        """

    def hurry(self, duration_ns: int) -> None:
        """Polls at the shortest pause for that long: an answer is expected."""

    def wait(self, timeout: float) -> bool:
        """Sleeps until a message comes into any inbox or `wake` is called; tells whether that happened.

        What came since the last call ends this one at once, and so does what a `take` left behind. Messages
        that nobody ever takes don't: they wake once. For one thread at a time.

        Raises:
            ClosedError: It was closed, perhaps meanwhile.
        """

    def wake(self) -> None:
        """Ends a `wait`, or the next one."""

    @property
    def rounds(self) -> int:
        """How often the thread has looked at everything."""

    @property
    def closed(self) -> bool:
        """Whether it was closed."""

    def close(self) -> None:
        """Ends the thread. Inboxes still give what they hold; pulses stop."""

@final
class Inbox:
    """The messages of a subscription that wait to be taken; made by `AeronDrain.inbox`."""

    def take(self, limit: int) -> list[tuple[bytes, int, int]]:
        """The next messages, each with its session id and the position behind it.

        Looks at the subscription itself when it holds fewer than `limit`, so that nobody waits for the
        drain's next turn.

        Raises:
            ClosedError: Nothing is left, and the inbox, its subscription or the drain was closed.
            NoMediaDriverError: Nothing is left, and the media driver died.
        """

    def __len__(self) -> int:
        """How many messages wait."""

    @property
    def received(self) -> int:
        """Messages kept so far."""

    @property
    def ignored(self) -> int:
        """Messages that `accept` does not name."""

    @property
    def overflowed(self) -> int:
        """Messages lost because the inbox was full; the newest are lost, what waits is kept."""

    @property
    def closed(self) -> bool:
        """Whether nothing more can come: it, its subscription or the drain was closed, or the client lost."""

    def close(self) -> None:
        """Forgets what waits and takes no more."""

@final
class DescriptorFeed:
    """A stream of descriptors that a drain polls; made by `AeronDrain.descriptors`."""

    def follow(self, stream_id: int, capacity: int) -> DescriptorLog:
        """A log of the newest `capacity` descriptors of one stream, filled from now on.

        Raises:
            ClosedError: The feed, its subscription or the drain was closed, or the client is lost.
        """

    @property
    def ignored(self) -> int:
        """Messages that were no descriptors, or of streams that nobody follows."""

    @property
    def closed(self) -> bool:
        """Whether nothing more can come."""

    def close(self) -> None:
        """Closes the feed and its subscription; logs keep what they have."""

@final
class DescriptorLog:
    """What the descriptors of one stream said lately; made by `DescriptorFeed.follow`. Forgetting it ends it.

    Only the epoch of `set_epoch` is kept; before one was set, the highest that was seen. Descriptors of
    earlier epochs are ignored, those of later ones dropped, and both are counted.
    """

    def find(self, epoch: int, seq: int) -> FrameDescriptor | None:
        """What was said of a frame; looks at the stream itself when nothing was."""

    def after(self, epoch: int, seq: int | None) -> FrameDescriptor | None:
        """The first frame above `seq` of which something was said; with None, the oldest that is kept."""

    def ordinal(self, epoch: int, seq: int) -> int | None:
        """How many frames were described before one that is kept, those that are forgotten too."""

    def set_epoch(self, epoch: int, *, awaited_from: int | None = None) -> None:
        """Follows an epoch. What was kept of it stays, everything else is forgotten.

        Frames from `awaited_from` on that are asked for their descriptor before it has come wait a moment.
        """

    @property
    def stream_id(self) -> int:
        """The stream."""

    @property
    def newest(self) -> FrameDescriptor | None:
        """The descriptor with the highest sequence number."""

    @property
    def highest_epoch(self) -> int | None:
        """The highest epoch that any descriptor of the stream named."""

    @property
    def received(self) -> int:
        """Descriptors of the epoch that is followed."""

    @property
    def lower_epochs(self) -> int:
        """Descriptors of earlier epochs, ignored."""

    @property
    def higher_epochs(self) -> int:
        """Descriptors of later epochs, dropped: the announce of a new epoch is on its way."""

    @property
    def regressions(self) -> int:
        """Sequence numbers that went back within one publication and epoch; a repeated one has not."""

    @property
    def closed(self) -> bool:
        """Whether it was closed."""

    def close(self) -> None:
        """Keeps nothing more."""

@final
class Pulse:
    """A message that goes out by itself; made by `AeronDrain.pulse`. Forgetting it stops it."""

    @property
    def sent(self) -> int:
        """Messages sent."""

    @property
    def failed(self) -> int:
        """Periods in which no message could be sent."""

    @property
    def last_sent_ns(self) -> int | None:
        """When the last message was sent, in monotonic nanoseconds."""

    @property
    def stopped(self) -> bool:
        """Whether it was stopped, or its drain closed."""

    def stop(self) -> None:
        """Sends no more; when this returns the last message is out."""

# --- The bridge -------------------------------------------------------------------------------------

BRIDGE_LOSSES: Final[tuple[str, ...]]
"""The names of all reasons for which chunks are not used and frames are given up."""

@final
class ChunkSender:
    """Sends frames of one stream in chunks, from where they lie; never part of a frame that was overwritten.

    Args:
        publication: Where chunks go.
        stream_id: The stream on the bridge.
        mtu: Bytes of a packet: a chunk fits into one.
        chunk_bytes: The longest slice of a payload, where the packet has room for it.
        newer: Speak the newer dialect, with room for trace ids and checksums.
        checksums: Send one with each frame, in the newer dialect.

    Raises:
        ConfigError: Nothing fits.
    """

    def __new__(
        cls,
        publication: AeronPublication,
        *,
        stream_id: int,
        mtu: int,
        chunk_bytes: int,
        newer: bool = False,
        checksums: bool = False,
    ) -> Self: ...
    def send(
        self, frame: Frame, *, trace_id: int | None = None, patience_s: float = 0.0
    ) -> Literal["torn", "too_large", "not_connected", "back_pressured"] | None:
        """Sends a frame; None, or why it was not sent as a whole.

        Args:
            frame: As it was polled.
            trace_id: Sent along in the newer dialect.
            patience_s: How long to wait for a receiver that does not keep up.

        Raises:
            TransportError: The publication is closed or lost.
        """

    def relay(
        self, consumer: FrameReceiver, *, duration_s: float, patience_s: float, max_payload_bytes: int
    ) -> (
        tuple[int, int | None, Literal["torn", "too_large", "not_connected", "back_pressured"] | None] | None
    ):
        """Sends the frames of a consumer as they come, without the interpreter; without trace ids.

        Args:
            consumer: Whose frames.
            duration_s: For how long, at most half a second; ends sooner where one is not sent as a whole.
            patience_s: How long to wait for a receiver that does not keep up.
            max_payload_bytes: Longer ones are ``too_large``.

        Returns:
            The epoch, the last number if there was a frame, and why that one was not sent as a whole. None
            where there is no ring to take frames from: `FrameReceiver.poll` knows what to do then.

        Raises:
            TransportError: The publication is closed or lost.
        """

    @property
    def max_payload_bytes(self) -> int:
        """The longest payload that can be sent."""

    @property
    def slices(self) -> tuple[int, int]:
        """Bytes of the first slice of a frame, and of the others."""

    @property
    def counts(self) -> tuple[int, int, int]:
        """Frames sent as a whole, chunks, and bytes of whole frames."""

@final
class ChunkReceiver:
    """Puts the frames of many streams together from chunks, straight into the slots of rings.

    A frame is shown as a whole or not at all. What is missing, late, contradicts itself or lies is counted.

    Args:
        subscription: Where chunks come from.
    """

    def __new__(cls, subscription: AeronSubscription) -> Self: ...
    def add_stream(
        self,
        stream_id: int,
        *,
        frames: int,
        total_bytes: int,
        timeout_ns: int,
        chunk_bytes: int,
        payload_bytes: int,
    ) -> None:
        """Takes chunks of a stream from now on; nothing before `announce` and `set_ring`.

        Args:
            stream_id: The stream on the bridge.
            frames: How many are put together at a time.
            total_bytes: How many bytes they may have together; one is always put together.
            timeout_ns: How long its chunks may take, from the first to the last.
            chunk_bytes: The longest slice that is taken.
            payload_bytes: The longest payload that is taken.
        """

    def announce(self, stream_id: int, epoch: int, pools: Sequence[tuple[int, int]]) -> None:
        """What the source says of a stream: its epoch, and number and stride of each pool."""

    def set_ring(self, stream_id: int, writer: RingWriter | None) -> None:
        """Where the frames of a stream go from now on; those that are not whole are given up."""

    def receive(
        self,
        duration_s: float,
        *,
        limit: int,
        yields: int,
        shortest_pause_s: float,
        longest_pause_s: float,
    ) -> int:
        """Takes chunks for so long, and gives up frames that take too long; how many chunks there were.

        Args:
            duration_s: How long, at most half a second.
            limit: How many chunks are taken before others may look at the receiver.
            yields: How often to give the CPU away while nothing comes, before the first sleep.
            shortest_pause_s: The first sleep; each following one is twice as long.
            longest_pause_s: The longest sleep: how late a chunk may be noticed.
        """

    def prefix(self, stream_id: int, seq: int) -> int | None:
        """Bytes of a frame that came from its start on; None when nothing of it is being put together."""

    def stats(self, stream_id: int) -> dict[str, Any] | None:
        """What became of the chunks and frames of a stream."""

    @property
    def strangers(self) -> tuple[int, int]:
        """Packets that are no chunks, and chunks of other streams."""
