"""Training sets: Parquet files that a Delta log binds together, written from recordings, read by anything.

Spark writes them (`tensor_pool.pipeline.spark.write_dataset`); nothing here needs Spark.
Reading them needs the extra ``dataset``.

=================  ======================================================================================
`manifest`         what is in a training set, and where it came from
`verify`           compares its files with what the manifest says, and removes what no commit names
`samples`          its samples by number
`order`            the order in which an epoch shows them, and who gets which
`torch`            the same for PyTorch's ``DataLoader``
=================  ======================================================================================
"""

from __future__ import annotations

from tensor_pool.pipeline.dataset.log import load_manifest
from tensor_pool.pipeline.dataset.manifest import Manifest
from tensor_pool.pipeline.dataset.samples import Sample, Samples
from tensor_pool.pipeline.dataset.verify import DatasetCheck, vacuum_dataset, verify_dataset

__all__ = [
    "DatasetCheck",
    "Manifest",
    "Sample",
    "Samples",
    "load_manifest",
    "vacuum_dataset",
    "verify_dataset",
]
