"""A service that works on frames of a recording which events name, with a session of Spark that stays."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tensor_pool.closing import Closing
from tensor_pool.control.config import ControlSection
from tensor_pool.control.declared import Command, reading
from tensor_pool.control.values import FrameRef
from tensor_pool.errors import TensorPoolError
from tensor_pool.host.connection import configured
from tensor_pool.host.control import Service
from tensor_pool.pipeline.jobs.absent_frames import absence, has_stream, yet_to_come
from tensor_pool.pipeline.jobs.chosen_frames import work_on_frames
from tensor_pool.pipeline.jobs.growing_recording import GrowingRecording
from tensor_pool.pipeline.jobs.registry import JOBS
from tensor_pool.pipeline.jobs.report.files import output_directory
from tensor_pool.pipeline.jobs.request_queue import NotYetError, RequestQueue
from tensor_pool.pipeline.jobs.running import plain_errors, run_job

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession

    from tensor_pool.config import Config
    from tensor_pool.control.declared import Property
    from tensor_pool.pipeline.jobs.frames_result import FrameOutcome
    from tensor_pool.pipeline.jobs.request_queue import Request

__all__ = ["PipelineService"]

_FRAME_JOBS: Final = {"thumbnail": "thumbnails", "statistics": "statistics"}
"""Commands that take a frame, and the jobs that do them."""
_RUN: Final = "run"


class PipelineService(Closing):
    """Draws and measures frames that others name, and runs jobs over a recording when told to.

    A command is accepted at once and done later, in its turn. The outcome is an event of the service with the
    correlation id of the command: ``thumbnail.done`` or ``thumbnail.failed``, with a text in JSON.

    Args:
        spark: The session, which stays the caller's.
        recording: A directory or a URI; it may grow meanwhile.
        out: The directory of pictures and reports.
        instance: Which one, where there are several: ``service:pipeline:2``.
        most_waiting: Commands beyond so many unfinished ones are refused.
        wait_s: How long to wait for frames that are newer than all that is recorded.
        size: The longer side of pictures, in pixels.
        on_outcome: Called with the key and the text of each outcome, on a thread of the service.
        aeron_dir: The directory of this host's media driver.
        config: A configuration, or the path of a ``tensor-pool.toml``; found as usual when left out.
        settings: Configuration keys with their values.

    Raises:
        ConfigError: Services are switched off here, or the directory can't be written to.
        RegionError: There is no recording.
        NoMediaDriverError: Nobody runs a media driver here.

    Example:
        >>> with PipelineService(tps.session(), "recordings", "report") as service:  # doctest: +SKIP
        ...     print(service.tag)
        service:pipeline
    """

    def __init__(
        self,
        spark: SparkSession,
        recording: str | os.PathLike[str],
        out: str | os.PathLike[str],
        *,
        instance: str = "",
        most_waiting: int = 100,
        wait_s: float = 90.0,
        size: int | None = None,
        on_outcome: Callable[[str, str], object] = lambda _key, _text: None,
        aeron_dir: str | os.PathLike[str] | None = None,
        config: Config | str | os.PathLike[str] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        found = configured(config, aeron_dir, settings)
        found[ControlSection].require_enabled()
        self._spark = spark
        self._grown = GrowingRecording(recording)
        self._out = output_directory(out)
        self._options = {} if size is None else {"size": size}
        self._on_outcome = on_outcome
        self._group = f"pipeline service {id(self)}"
        self.error: BaseException | None = None
        """What ended it, unless it was closed."""
        self._service: Service | None = None
        self._queue = RequestQueue(
            self._work,
            self._tell,
            together=_FRAME_JOBS,
            prepare=self._prepare,
            most=most_waiting,
            wait_s=wait_s,
        )
        try:
            self._service = Service(
                "pipeline",
                instance=instance,
                properties=_properties(str(recording)),
                commands=self._commands(),
                refresh=self._refresh,
                doc="Works on frames of a recording, and runs jobs over it.",
                config=found,
            )
        except BaseException:
            self._queue.close()
            raise
        self.tag: Final = self._service.tag
        """Who it is to others."""

    @property
    def is_running(self) -> bool:
        """Whether it takes commands; not any more when Spark is gone."""
        return self.error is None

    def close(self) -> None:
        """Ends: what is being done is cut off, and what waits fails. May be called again."""
        self._queue.close(hurry=self._cut_off)
        if self._service is not None:
            self._service.close()

    def _commands(self) -> dict[str, Command]:
        docs = {"thumbnail": "Draws a frame.", "statistics": "Tells the numbers of a frame."}
        of_frames = {
            key: Command(
                lambda frame, number, key=key: self._queue.put(key, frame, number),
                kind=FrameRef,
                check=self._check_frame,
                takes_correlation_id=True,
                doc=docs[key],
            )
            for key in _FRAME_JOBS
        }
        run = Command(
            lambda name, number: self._queue.put(_RUN, name, number),
            kind=str,
            choices=tuple(JOBS),
            takes_correlation_id=True,
            doc="Runs a job over the whole recording.",
        )
        return {**of_frames, _RUN: run}

    def _check_frame(self, frame: FrameRef) -> None:
        """Refuses at once what can't come right.

        Raises:
            ValueError: The recording has no such stream.
        """
        recording = self._grown.now()
        if not has_stream(recording, frame.stream_id):
            raise ValueError(absence(recording, frame).text)

    def _prepare(self) -> None:
        """The first query takes ten times as long as others: it is over before somebody waits for it."""
        # Of this thread: what it does can be cut off, and nothing else of the session.
        self._spark.sparkContext.setJobGroup(self._group, "commands", interruptOnCancel=True)
        recording = self._grown.now()
        for stream in recording.values():
            for segment in stream.segments()[:1]:
                frame = FrameRef(segment.stream_ids[0], segment.first_epoch, segment.first_seq)
                work_on_frames(self._spark, "statistics", recording, [frame], self._out)
                return

    def _work(self, requests: list[Request]) -> list[Any]:
        key, value = requests[0].key, requests[0].value
        try:
            if key == _RUN:
                return [self._run(value)]
            return self._frames(_FRAME_JOBS[key], [request.value for request in requests])
        except Exception as e:
            self._look_after_spark(e)
            if self.error is not None:
                raise self.error from e
            raise

    def _frames(self, name: str, frames: list[FrameRef]) -> list[Any]:
        recording = self._grown.now()
        found: list[Any] = []
        there: list[FrameRef] = []
        for frame in frames:
            absent = yet_to_come(recording, frame)
            found.append(None if absent is None else NotYetError(absent.text))
            there += [frame] if absent is None else []
        if not there:
            return found
        options = self._options if name == "thumbnails" else {}
        with plain_errors():
            result = work_on_frames(self._spark, name, recording, there, self._out, options=options)
        outcomes = iter(result.frames)
        return [_told(next(outcomes)) if each is None else each for each in found]

    def _run(self, name: str) -> dict[str, Any]:
        finished = run_job(self._spark, name, self._grown.place, self._out)
        return {
            "job": name,
            "summary": finished.report.summary,
            "has_problems": finished.result.has_problems,
            **msgspec.to_builtins(finished.written),
        }

    def _tell(self, request: Request, told: Any, is_done: bool) -> None:
        key = f"{request.key}.{'done' if is_done else 'failed'}"
        if not is_done:
            about = {"job": request.value} if request.key == _RUN else {"frame": str(request.value)}
            told = {**about, "reason": told}
        text = msgspec.json.encode(told).decode()
        if self._service is not None:
            self._service.tell(key, text, correlation_id=request.correlation_id)
        self._on_outcome(key, text)

    def _refresh(self, service: Service) -> None:
        service["waiting"] = self._queue.unfinished
        service["done"], service["failed"] = self._queue.done, self._queue.failed

    def _cut_off(self) -> None:
        with contextlib.suppress(Exception):  # Spark may be gone, or going
            self._spark.sparkContext.cancelJobGroup(self._group)

    def _look_after_spark(self, failure: Exception) -> None:
        """Without Java nothing can be done any more, and somebody has to start this again."""
        try:
            has_ended = self._spark.sparkContext._jsc.sc().isStopped()  # noqa: SLF001 - nothing else tells
        except Exception:  # nobody is there to ask
            has_ended = True
        if has_ended:
            ended = TensorPoolError("Spark has ended; start this again")
            self.error = ended.with_traceback(failure.__traceback__)


def _told(outcome: FrameOutcome) -> dict[str, Any] | TensorPoolError:
    return outcome.flat() if outcome.is_done else TensorPoolError(outcome.reason)


def _properties(recording: str) -> dict[str, Property]:
    return {
        "recording": reading(str, "What it works on.", recording),
        "waiting": reading(int, "Commands that were accepted and are not finished."),
        "done": reading(int, "Commands that were done."),
        "failed": reading(int, "Commands that were accepted and could not be done."),
    }
