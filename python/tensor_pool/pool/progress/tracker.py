"""What a consumer believes of frames that are still being written.

None of it makes a frame available: COMPLETE is no commit, and only a commit counts [WIRE-10.2.2-12].
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import msgspec

from tensor_pool.wire.messages import FrameProgressState

if TYPE_CHECKING:
    from tensor_pool.wire.messages import FrameProgress

__all__ = ["ProgressCounts", "ProgressTracker", "TrackedFrame"]


class TrackedFrame(msgspec.Struct, gc=False):
    """How far a frame is that is being written elsewhere."""

    seq: int
    state: FrameProgressState
    payload_bytes_filled: int
    dropped: bool = False
    """Its progress went backwards or beyond its end: nothing more is believed of it [WIRE-10.2.2-10]."""


class ProgressCounts(msgspec.Struct, gc=False):
    """What was not believed, by reason."""

    regressions: int = 0
    """Frames whose state or bytes went back."""
    overruns: int = 0
    """Frames said to hold more than they can."""
    other_epochs: int = 0
    unknown_states: int = 0
    late: int = 0
    """Messages about frames that are committed or dropped."""


class ProgressTracker:
    """Follows the frames of a stream that are being written, each through STARTED, PROGRESS and COMPLETE.

    Messages may be missing, so a frame may begin with any state; none may go back.

    Args:
        stream_id: The stream; others change nothing.
        max_frames: How many frames are followed; the oldest make room.

    Example:
        >>> from tensor_pool.wire.messages import FrameProgress
        >>> tracker = ProgressTracker(1)
        >>> tracker.set_epoch(5)
        >>> frame = tracker.on_progress(FrameProgress(1, 5, 42, 100, FrameProgressState.PROGRESS))
        >>> frame.payload_bytes_filled
        100
        >>> tracker.on_progress(FrameProgress(1, 5, 42, 50, FrameProgressState.PROGRESS)) is None
        True
        >>> tracker.counts.regressions
        1
    """

    def __init__(self, stream_id: int, *, max_frames: int = 64) -> None:
        self.stream_id = stream_id
        self.counts = ProgressCounts()
        self._max_frames = max_frames
        self._epoch: int | None = None
        self._frames: OrderedDict[int, TrackedFrame] = OrderedDict()
        self._finished_below = 0

    def __len__(self) -> int:
        """How many frames are followed."""
        return len(self._frames)

    def set_epoch(self, epoch: int | None) -> None:
        """Follow another epoch, or none; all frames are forgotten [WIRE-15.2-4]."""
        self._epoch = epoch
        self._frames.clear()
        self._finished_below = 0

    def get(self, seq: int) -> TrackedFrame | None:
        """What is known of a frame, if it may be believed."""
        frame = self._frames.get(seq)
        return None if frame is None or frame.dropped else frame

    def on_progress(
        self, message: FrameProgress, *, values_len_bytes: int | None = None
    ) -> TrackedFrame | None:
        """The frame that moved on, or None when there is nothing new to believe.

        Args:
            message: The message.
            values_len_bytes: The frame's length, where its slot header was already read.
        """
        if message.stream_id != self.stream_id or not self._may_concern(message):
            return None
        frame = self._frames.get(message.seq)
        if frame is None:
            frame = self._follow(message)
        elif frame.dropped:
            self.counts.late += 1
            return None
        elif not self._move(frame, message):
            return None
        if values_len_bytes is not None and message.payload_bytes_filled > values_len_bytes:
            self.counts.overruns += 1
            frame.dropped = True
            return None
        return frame

    def finish(self, seq: int) -> None:
        """Frame `seq` was taken or is gone: it and all before it are no longer followed."""
        self._finished_below = max(self._finished_below, seq + 1)
        for old in [known for known in self._frames if known <= seq]:
            del self._frames[old]

    def _may_concern(self, message: FrameProgress) -> bool:
        if message.epoch != self._epoch:
            self.counts.other_epochs += 1
        elif message.state is FrameProgressState.UNKNOWN:
            self.counts.unknown_states += 1
        elif message.seq < self._finished_below:
            self.counts.late += 1
        else:
            return True
        return False

    def _follow(self, message: FrameProgress) -> TrackedFrame:
        frame = TrackedFrame(message.seq, message.state, message.payload_bytes_filled)
        self._frames[message.seq] = frame
        if len(self._frames) > self._max_frames:
            # The one that came first, not the one with the lowest number: a bogus high number must not be
            # able to push out what is being written now and stay itself.
            self._frames.popitem(last=False)
        return frame

    def _move(self, frame: TrackedFrame, message: FrameProgress) -> bool:
        """Whether the frame went on; one that went back is dropped [WIRE-10.2.2-17]."""
        filled = message.payload_bytes_filled
        if message.state < frame.state or filled < frame.payload_bytes_filled:
            self.counts.regressions += 1
            frame.dropped = True
            return False
        moved = (message.state, filled) != (frame.state, frame.payload_bytes_filled)
        frame.state = message.state
        frame.payload_bytes_filled = filled
        return moved
