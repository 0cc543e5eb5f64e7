"""The jobs by name, known without importing any of them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tensor_pool.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["JOBS", "Job", "job"]


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job that runs over a recording.

    Its function takes a table of the format ``tensorpool``, the directory of the report if `writes_files`,
    and keywords; it returns a struct with ``report()`` and ``has_problems``.
    """

    name: str
    summary: str
    reads_tensors: bool
    function: str
    """``module:function``."""
    options: tuple[str, ...] = ()
    """Keywords of the function that can be given on the command line."""
    frame_options: tuple[str, ...] | None = None
    """Those that count where single frames are asked for; None when the job takes none."""
    writes_files: bool = False
    takes_recording: bool = False
    """Its function also takes ``recording``, for what is beside the rows."""

    def load(self) -> Callable[..., Any]:
        """The function; imports what it needs."""
        module, _, name = self.function.partition(":")
        found: Callable[..., Any] = getattr(import_module(module), name)
        return found

    def check_options(self, given: Iterable[str], *, of_frames: bool = False) -> None:
        """Looks whether these are options of this job.

        Args:
            given: Their names.
            of_frames: Whether single frames are asked for.

        Raises:
            ConfigError: One is not, or the job takes no single frames.
        """
        options = self.frame_options if of_frames else self.options
        if options is None:
            able = [each.name for each in JOBS.values() if each.frame_options is not None]
            raise ConfigError(
                f"the job {self.name} takes no single frames", hint=f"those that do: {', '.join(able)}"
            )
        unknown = [key for key in given if key not in options]
        if unknown:
            raise ConfigError(
                f"the job {self.name} takes no {', '.join(unknown)}" + (" for frames" if of_frames else ""),
                hint=f"it takes {', '.join(options) or 'no options of its own'}",
            )


_HERE: Final = "tensor_pool.pipeline.jobs"
_LISTED: Final = (
    Job(
        name="quality",
        summary="What is missing, late, repeated or damaged, with a verdict.",
        reads_tensors=False,
        function=f"{_HERE}.quality_job:quality",
        options=("read_bytes",),
        takes_recording=True,
    ),
    Job(
        name="latency",
        summary="How long after they were taken frames were recorded.",
        reads_tensors=False,
        function=f"{_HERE}.latency_job:latency",
        options=("windows",),
    ),
    Job(
        name="statistics",
        summary="Numbers of every frame, and whether they drift.",
        reads_tensors=True,
        function=f"{_HERE}.statistics_job:statistics",
        options=("windows",),
        frame_options=(),
    ),
    Job(
        name="lineage",
        summary="Which frames of which streams belong together, by trace ids.",
        reads_tensors=False,
        function=f"{_HERE}.lineage_job:lineage",
    ),
    Job(
        name="thumbnails",
        summary="Some frames of each stream as pictures, and a contact sheet.",
        reads_tensors=True,
        function=f"{_HERE}.thumbnails_job:thumbnails",
        options=("count", "size", "contrast"),
        frame_options=("size",),
        writes_files=True,
    ),
    Job(
        name="training-set",
        summary="Frames as a training set with splits; tells what is in it.",
        reads_tensors=True,
        function=f"{_HERE}.training_set_job:training_set",
        options=("splits", "by", "every", "dataset"),
        writes_files=True,
    ),
)
JOBS: Final = {each.name: each for each in _LISTED}
"""In the order in which they are listed."""


def job(name: str) -> Job:
    """The job of this name.

    Raises:
        ConfigError: There is none.

    Example:
        >>> job("quality").reads_tensors
        False
    """
    try:
        return JOBS[name]
    except KeyError:
        raise ConfigError(f"there is no job {name!r}", hint=f"there are {', '.join(JOBS)}") from None
