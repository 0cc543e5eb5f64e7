"""Commands to services, and what services tell of themselves.

Everything travels as `EventMessage` on two shared Aeron streams: commands on one, and on the other accepted
commands and status. A service is found by its tag, ``service:NAME`` or ``service:NAME:INSTANCE``.
"""

from tensor_pool.control.declared import Command, Property, reading
from tensor_pool.control.values import FrameRef

__all__ = ["Command", "FrameRef", "Property", "reading"]
