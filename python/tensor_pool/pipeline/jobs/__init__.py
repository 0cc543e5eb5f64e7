"""Jobs over recordings: each a function of a table, with a typed result and a report.

Needs the extra ``spark``. What the functions take is a table of the format ``tensorpool``::

    from tensor_pool.pipeline import jobs, spark as tps

    df = tps.session().read.format("tensorpool").load("recordings/")
    print(jobs.quality(df).verdict)

=================  ===================================================================================
`quality`          what is missing, late, repeated or damaged, with a verdict
`latency`          how long after they were taken frames were recorded
`statistics`       numbers of every frame, and whether they drift
`lineage`          which frames of which streams belong together
`thumbnails`       some frames of each stream as pictures, and a contact sheet
`training_set`     frames as a training set with splits
`monitor`          a streaming query that tells how streams are, and raises alarms
`run_job`          runs one of them over a recording and writes its report
`work_on_frames`   draws or measures exactly some frames
`PipelineService`  does so when events name them
=================  ===================================================================================

Names are imported when they are used, so that listing the jobs needs no Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tensor_pool.pipeline.jobs.chosen_frames import work_on_frames
    from tensor_pool.pipeline.jobs.drift import DriftLimits
    from tensor_pool.pipeline.jobs.frames_result import FrameOutcome, FramesResult
    from tensor_pool.pipeline.jobs.latency_job import LatencyResult, latency
    from tensor_pool.pipeline.jobs.lineage_job import LineageResult, lineage
    from tensor_pool.pipeline.jobs.monitor_job import Monitor, monitor
    from tensor_pool.pipeline.jobs.monitor_windows import Alarm, MonitorLimits, MonitorWindow
    from tensor_pool.pipeline.jobs.pipeline_service import PipelineService
    from tensor_pool.pipeline.jobs.quality_job import QualityResult, quality
    from tensor_pool.pipeline.jobs.registry import JOBS
    from tensor_pool.pipeline.jobs.report.files import write_report
    from tensor_pool.pipeline.jobs.running import run_job
    from tensor_pool.pipeline.jobs.statistics_job import frame_table, statistics
    from tensor_pool.pipeline.jobs.statistics_result import StatisticsResult
    from tensor_pool.pipeline.jobs.thumbnails_job import ThumbnailsResult, thumbnails
    from tensor_pool.pipeline.jobs.training_set_job import TrainingSetResult, training_set
    from tensor_pool.pipeline.jobs.verdicts import Limit, QualityLimits

__all__ = [
    "JOBS",
    "Alarm",
    "DriftLimits",
    "FrameOutcome",
    "FramesResult",
    "LatencyResult",
    "Limit",
    "LineageResult",
    "Monitor",
    "MonitorLimits",
    "MonitorWindow",
    "PipelineService",
    "QualityLimits",
    "QualityResult",
    "StatisticsResult",
    "ThumbnailsResult",
    "TrainingSetResult",
    "frame_table",
    "latency",
    "lineage",
    "monitor",
    "quality",
    "run_job",
    "statistics",
    "thumbnails",
    "training_set",
    "work_on_frames",
    "write_report",
]

_MODULES: Final = {
    "chosen_frames": ("work_on_frames",),
    "drift": ("DriftLimits",),
    "frames_result": ("FrameOutcome", "FramesResult"),
    "latency_job": ("LatencyResult", "latency"),
    "lineage_job": ("LineageResult", "lineage"),
    "monitor_job": ("Monitor", "monitor"),
    "monitor_windows": ("Alarm", "MonitorLimits", "MonitorWindow"),
    "pipeline_service": ("PipelineService",),
    "quality_job": ("QualityResult", "quality"),
    "registry": ("JOBS",),
    "report.files": ("write_report",),
    "running": ("run_job",),
    "statistics_job": ("frame_table", "statistics"),
    "statistics_result": ("StatisticsResult",),
    "thumbnails_job": ("ThumbnailsResult", "thumbnails"),
    "training_set_job": ("TrainingSetResult", "training_set"),
    "verdicts": ("Limit", "QualityLimits"),
}
_WHERE: Final = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
