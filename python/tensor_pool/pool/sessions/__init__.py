"""The control plane of a program: one agent for all its streams, one session for each of them."""

from __future__ import annotations

import logging

from tensor_pool.runtime.repeats import limit_repeats

# What they warn of is mostly what somebody else sent, and anybody may send anything.
for _module in ("consumer", "session", "producer"):
    limit_repeats(logging.getLogger(f"{__name__}.{_module}"))
