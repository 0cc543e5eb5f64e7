"""What hosts and drivers are called where nobody gave them a name."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tensor_pool.discovery.config import DiscoverySection
from tensor_pool.driver.config import DriverSection
from tensor_pool.host import aeron as host_aeron

if TYPE_CHECKING:
    from tensor_pool.config import Config
    from tensor_pool.pool.discovering import FoundStream

__all__ = ["driver_name", "is_elsewhere"]

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_MARK: Final = re.compile(r"-[0-9a-f]{8}\Z")


def driver_name(config: Config) -> str:
    """What this host's driver is called in answers of discovery.

    Machines made from one image have one host name, and their streams would hide each other. So where neither
    the driver nor the host was named, the name also says which media driver of which boot it is; that stays
    the same when the driver starts again.

    Example:
        >>> from tensor_pool.config import load_config
        >>> config = load_config(overrides={"discovery.host": "lab-3"}, environ={}, search=False)
        >>> driver_name(config)
        'lab-3'
    """
    named = config[DriverSection].instance_id or config[DiscoverySection].host
    return named or f"{config[DiscoverySection].host_name}{_mark(config)}"


def is_elsewhere(config: Config, stream: FoundStream) -> bool:
    """Whether a stream is on another host than this one, as far as names tell."""
    section = config[DiscoverySection]
    if stream.host not in {"", section.host_name}:
        return True
    mark = _MARK.search(stream.driver_instance_id)
    if mark is None or stream.driver_instance_id != f"{stream.host}{mark.group()}":
        return False  # a name that somebody gave
    return mark.group() != _mark(config)


def _mark(config: Config) -> str:
    # Who shares a media driver shares a host in all that matters: shared memory ends there too.
    place = os.path.realpath(host_aeron.aeron_dir(config.aeron))
    try:
        boot = _BOOT_ID.read_text()
    except OSError:
        boot = ""
    return f"-{hashlib.sha256(f'{boot}{place}'.encode()).hexdigest()[:8]}"
