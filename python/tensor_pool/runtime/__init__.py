"""What services are made of: agents and who runs them, clocks, timers, counters, histograms, error log, logs.

Clocks, timers, counters, histograms and the error log are plain state: no thread, no clock inside. The only
module here with a thread is `runner`.
"""

from __future__ import annotations

from tensor_pool.runtime.agent import Agent, CompositeAgent, StopAgent
from tensor_pool.runtime.clock import CachedClock, Clock, FakeClock, SystemClock
from tensor_pool.runtime.counters import Counter, CounterFactory, CounterSet, CounterType, LocalCounters
from tensor_pool.runtime.error_log import ErrorEntry, ErrorLog
from tensor_pool.runtime.histogram import Histogram, HistogramSummary
from tensor_pool.runtime.idle import (
    BackOff,
    Bell,
    Doorbell,
    EventBell,
    IdleName,
    IdleStrategy,
    Sleep,
    Spin,
    Yield,
    make_idle,
)
from tensor_pool.runtime.invoker import AgentInvoker
from tensor_pool.runtime.reasons import ReasonCounters
from tensor_pool.runtime.runner import AgentRunner, ErrorPolicy
from tensor_pool.runtime.timers import Periodic, TimerQueue

__all__ = [
    # agents
    "Agent",
    "AgentInvoker",
    "AgentRunner",
    "CompositeAgent",
    "ErrorPolicy",
    "StopAgent",
    # idle strategies
    "BackOff",
    "Bell",
    "Doorbell",
    "EventBell",
    "IdleName",
    "IdleStrategy",
    "Sleep",
    "Spin",
    "Yield",
    "make_idle",
    # time
    "CachedClock",
    "Clock",
    "FakeClock",
    "Periodic",
    "SystemClock",
    "TimerQueue",
    # what can be seen
    "Counter",
    "CounterFactory",
    "CounterSet",
    "CounterType",
    "ErrorEntry",
    "ErrorLog",
    "Histogram",
    "HistogramSummary",
    "LocalCounters",
    "ReasonCounters",
]
