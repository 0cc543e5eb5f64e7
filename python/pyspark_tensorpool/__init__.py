"""Spark looks for packages with such names and registers their formats by itself."""

from __future__ import annotations

from tensor_pool.pipeline.spark.source import TensorPoolSource as DefaultSource

__all__ = ["DefaultSource"]
