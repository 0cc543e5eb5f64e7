"""Training sets made without Spark, for tests of those who read them."""

from __future__ import annotations

import numpy as np

from tensor_pool.pipeline.dataset.files import SplitFiles
from tensor_pool.pipeline.dataset.log import DatasetLog
from tensor_pool.pipeline.dataset.manifest import Commit
from tensor_pool.pipeline.dataset.options import DatasetOptions
from tensor_pool.pipeline.dataset.report import merge_reports
from tensor_pool.pipeline.dataset.schema import dataset_schema
from tensor_pool.pipeline.dataset.splits import hash_splits
from tensor_pool.pipeline.record.place import Place


def frame_row(seq, stream="camera-1", epoch=1):
    """A row as Spark has it, without its tensor."""
    return {
        "stream_id": 10_000,
        "stream_name": stream,
        "epoch": epoch,
        "seq": seq,
        "timestamp_ns": seq,
        "event_time": None,
        "recorded_time": None,
        "meta_version": 0,
        "trace_id": None,
    }


def make_dataset(path, frames=range(100), *, splits=None, query=None, batch=None, side=4, **layout):
    """A training set of squares that are full of their numbers, in one commit; what the manifest says."""
    options = DatasetOptions(splits=splits or hash_splits({"train": 1.0}), **layout)
    place = Place(path)
    with SplitFiles(place, dataset_schema(), options) as files:
        for seq in frames:
            files.add(frame_row(seq), np.full((side, side), seq, "uint16"))
        report = files.finish()
    commit = Commit(options=options, report=merge_reports([report]), query=query, batch=batch)
    return DatasetLog(place).commit(commit, dataset_schema())
