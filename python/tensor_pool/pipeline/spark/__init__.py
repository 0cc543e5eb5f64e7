"""Tensors in Spark: recordings and live streams as tables, computing where tensors lie.

Needs the extra ``spark`` and Java 17 or 21. Commonly imported as ``tps``::

    from tensor_pool.pipeline import spark as tps

    spark = tps.session("local[*]")
    df = spark.read.format("tensorpool").load("recordings/")
    means = tps.map_tensors(df, lambda tensor: float(tensor.mean()), "mean double")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensor_pool.pipeline.lazy import lazy_names
from tensor_pool.pipeline.spark.session import session  # at once: its module is called like it
from tensor_pool.pipeline.spark.source import register

if TYPE_CHECKING:
    from tensor_pool.pipeline.spark.dataset import dataset_sink, read_dataset, write_dataset
    from tensor_pool.pipeline.spark.functions import map_tensors, tensor, tensor_udf
    from tensor_pool.pipeline.spark.resolve import TensorUnavailableError, load_tensor
    from tensor_pool.pipeline.spark.workers import check_workers

__all__ = [
    "TensorUnavailableError",
    "check_workers",
    "dataset_sink",
    "load_tensor",
    "map_tensors",
    "read_dataset",
    "register",
    "session",
    "tensor",
    "tensor_udf",
    "write_dataset",
]

__getattr__ = lazy_names(
    __name__,
    {
        "TensorUnavailableError": "tensor_rows",
        "check_workers": "workers",
        "dataset_sink": "dataset",
        "load_tensor": "resolve",
        "map_tensors": "functions",
        "read_dataset": "dataset",
        "tensor": "functions",
        "tensor_udf": "functions",
        "write_dataset": "dataset",
    },
)
