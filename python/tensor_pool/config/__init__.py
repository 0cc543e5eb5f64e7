"""Configuration: ``defaults < tensor-pool.toml < TENSOR_POOL__SECTION__KEY < command line``.

Values are checked when they are read, unknown keys are refused, every value remembers where it comes from.

Example:
    >>> config = load_config(environ={}, search=False)
    >>> config.streams.descriptor_stream_id
    1100
"""

from __future__ import annotations

from tensor_pool.config.layers import Origin
from tensor_pool.config.loading import Config, Entry, Problem, check_file, load_config
from tensor_pool.config.sections import (
    AeronSection,
    AgentsSection,
    LogSection,
    MediaDriverMode,
    Section,
    ShmSection,
    StreamsSection,
)

__all__ = [
    "Config",
    "load_config",
    "check_file",
    "Entry",
    "Origin",
    "Problem",
    # sections
    "Section",
    "AeronSection",
    "AgentsSection",
    "LogSection",
    "MediaDriverMode",
    "ShmSection",
    "StreamsSection",
]
