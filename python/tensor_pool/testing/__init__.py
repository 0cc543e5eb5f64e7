"""A kit for testing programs that use the pool: real drivers, real processes, real shared memory."""

from __future__ import annotations

from tensor_pool.testing.cluster import Cluster, Process
from tensor_pool.testing.stuck import StuckReport, measure_stuck_consumers
from tensor_pool.testing.waiting import wait_until

__all__ = ["Cluster", "Process", "StuckReport", "measure_stuck_consumers", "wait_until"]
