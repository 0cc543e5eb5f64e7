"""What our connections call themselves at the media driver, so that people find the process behind one."""

from __future__ import annotations

import os
import re
from typing import Final

__all__ = ["client_name", "read_client_name"]

_MOST_BYTES: Final = 100
"""Aeron's own limit."""
_LABEL: Final = re.compile(r" name=(?:(.*) )?tensor-pool (\d+) version=", re.DOTALL)


def client_name(name: str | None) -> str:
    """The name of a connection of this process: what a program calls it, and the process id.

    A long one is shortened; one that Aeron would refuse stays as it is, and is refused.

    Example:
        >>> client_name("camera") == f"camera tensor-pool {os.getpid()}"
        True
    """
    process = f"tensor-pool {os.getpid()}"
    if not name:
        return process
    encoded = name.encode("utf-8", "surrogatepass")
    if len(encoded) > _MOST_BYTES:
        return name
    room = _MOST_BYTES - len(process) - 1
    return f"{encoded[:room].decode('utf-8', 'ignore')} {process}"


def read_client_name(label: str) -> tuple[int, str | None] | None:
    """Process id and name of a connection, by the label of its heartbeat; None where it isn't one of ours.

    Example:
        >>> read_client_name("client-heartbeat: id=3 name=tensor-pool 4711 version=1.54.0 commit=x")
        (4711, None)
        >>> read_client_name("client-heartbeat: id=4 name=aeron-stat version=1.54.0 commit=x")
    """
    found = _LABEL.search(label)
    if found is None:
        return None
    name = found[1]
    # A text of a peer stays on its line, whatever is in it.
    return int(found[2]), name if name is None or name.isprintable() else ascii(name)
