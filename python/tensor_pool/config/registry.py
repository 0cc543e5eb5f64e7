"""Which sections there are: the one place to name a new one.

Sections are named as text and imported when they are used, because the services that own most of them lie
above this package, and because a client does not carry the configuration code of a server.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tensor_pool.config.sections import Section

__all__ = ["SECTIONS", "section_type"]

SECTIONS: Final = {
    "aeron": "tensor_pool.config.sections:AeronSection",
    "streams": "tensor_pool.config.sections:StreamsSection",
    "shm": "tensor_pool.config.sections:ShmSection",
    "client": "tensor_pool.pool.config:ClientSection",
    "driver": "tensor_pool.driver.config:DriverSection",
    "bridge": "tensor_pool.bridging.config:BridgeSection",
    "discovery": "tensor_pool.discovery.config:DiscoverySection",
    "control": "tensor_pool.control.config:ControlSection",
    "supervisor": "tensor_pool.control.supervisor.config:SupervisorSection",
    "agents": "tensor_pool.config.sections:AgentsSection",
    "log": "tensor_pool.config.sections:LogSection",
}
"""Section names and the structs that describe them, in the order in which people read them."""


def section_type(name: str) -> type[Section]:
    """The struct of a section.

    Raises:
        KeyError: There is no such section.

    Example:
        >>> section_type("log").__name__
        'LogSection'
    """
    module, _, struct = SECTIONS[name].partition(":")
    found: type[Section] = getattr(import_module(module), struct)
    return found
