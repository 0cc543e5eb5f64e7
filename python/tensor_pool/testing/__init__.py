"""A kit for testing programs that use the pool: real drivers, real processes, real shared memory."""

from __future__ import annotations

from tensor_pool.testing.cluster import Cluster, Process
from tensor_pool.testing.loss import loss_environment
from tensor_pool.testing.network import Host, TwoHosts
from tensor_pool.testing.relay import LinkConditions, Relay, RelayCounts, free_udp_endpoint
from tensor_pool.testing.stuck import StuckReport, measure_stuck_consumers
from tensor_pool.testing.waiting import wait_until

__all__ = [
    "Cluster",
    "Process",
    "Host",
    "TwoHosts",
    "LinkConditions",
    "Relay",
    "RelayCounts",
    "loss_environment",
    "StuckReport",
    "measure_stuck_consumers",
    "free_udp_endpoint",
    "wait_until",
]
