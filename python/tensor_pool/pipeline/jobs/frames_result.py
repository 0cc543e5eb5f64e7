"""What jobs found that were asked for some frames, one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from tensor_pool.pipeline.jobs.report.model import KeyFigure, Picture, Report, Table

__all__ = ["FrameOutcome", "FramesResult"]

_COMMON: Final = ("frame", "stream", "time", "dtype", "shape", "reason")
_EMPTY: Final[tuple[Any, ...]] = ("", None, [])
_MOST_PICTURES: Final = 24


class FrameOutcome(msgspec.Struct, kw_only=True):
    """What became of one frame."""

    frame: str
    """``STREAM/EPOCH/SEQ``, as it was asked for."""
    stream: str = ""
    """Its name; empty for a frame that is not there."""
    time: str | None = None
    dtype: str = ""
    shape: list[int] = []
    values: dict[str, Any] = {}
    """What was asked for: the file of a picture, or numbers."""
    reason: str = ""
    """Why there is nothing; empty when there is."""

    @property
    def is_done(self) -> bool:
        """Whether there is what was asked for."""
        return not self.reason

    def flat(self) -> dict[str, Any]:
        """Everything on one level, without what is empty; first what a line may be cut behind.

        Example:
            >>> FrameOutcome(frame="1/3/42", stream="camera", values={"mean": 7.5}).flat()
            {'frame': '1/3/42', 'mean': 7.5, 'stream': 'camera'}
        """
        told = {"frame": self.frame, **self.values} | {name: getattr(self, name) for name in _COMMON}
        return {name: value for name, value in told.items() if name in self.values or value not in _EMPTY}


class FramesResult(msgspec.Struct, kw_only=True):
    """What became of frames that were asked for, in their order."""

    job: str
    frames: list[FrameOutcome]
    done: int = 0
    failed: int = 0

    @property
    def has_problems(self) -> bool:
        """Whether a frame is not there, or nothing could be made of it."""
        return bool(self.failed)

    def report(self) -> Report:
        """What to show of it."""
        keys = dict.fromkeys(key for each in self.frames for key in each.values)
        pictures = [
            Picture(title=f"{each.stream} {each.frame}", png=Path(each.values["file"]).read_bytes())
            for each in self.frames
            if "file" in each.values
        ]
        failed = [f"{each.frame}: {each.reason}" for each in self.frames if not each.is_done]
        return Report(
            job=self.job,
            title="Frames that were asked for",
            summary=f"{self.done:,} of {len(self.frames):,} frames.",
            figures=[
                KeyFigure("done", f"{self.done:,}"),
                KeyFigure("failed", f"{self.failed:,}", tone="bad" if self.failed else "ok"),
            ],
            plots=list(pictures[:_MOST_PICTURES]),
            tables=[
                Table(
                    title="Frames",
                    columns=(*_COMMON[:-1], *keys, *(_COMMON[-1:] if failed else ())),
                    rows=[each.flat() for each in self.frames],
                )
            ],
            notes=[f"{self.failed} of {len(self.frames)} frames: {'; '.join(failed[:5])}"] if failed else [],
        )
