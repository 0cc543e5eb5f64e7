"""Named places where a test lets a process die, stop or fail.

A fault point is a line in a protocol: between two steps that must not be torn apart, or that may be. It does
nothing unless the environment says ``TENSOR_POOL_FAULT=driver.after_create:kill``; ``stop`` and ``raise`` are
the other two actions, and ``:kill:3`` strikes at the third time only. The variable is read once.
"""

from __future__ import annotations

import os
import signal
from typing import Final, Literal, get_args

import msgspec

from tensor_pool.errors import ConfigError

__all__ = ["FAULT_VARIABLE", "Fault", "FaultAction", "InjectedFaultError", "fault_point", "parse_fault"]

FAULT_VARIABLE: Final = "TENSOR_POOL_FAULT"

FaultAction = Literal["kill", "stop", "raise"]


class InjectedFaultError(RuntimeError):
    """Raised at a fault point with the action ``raise``."""


class Fault(msgspec.Struct):
    """What is to happen where, and at which time."""

    point: str
    action: FaultAction
    passes_left: int = 1


def parse_fault(text: str) -> Fault | None:
    """Reads ``POINT:ACTION`` or ``POINT:ACTION:TIMES``; nothing for empty text.

    Raises:
        ConfigError: Anything else. A mistyped fault would never strike, and its test would show nothing.

    Example:
        >>> parse_fault("driver.during_gc:kill:2")
        Fault(point='driver.during_gc', action='kill', passes_left=2)
    """
    if not text:
        return None
    point, _, rest = text.partition(":")
    action, _, times = rest.partition(":")
    if not point or action not in get_args(FaultAction) or not (times or "1").isdecimal():
        raise ConfigError(
            f"{FAULT_VARIABLE}={text!r} names no fault", hint="write POINT:kill, POINT:stop or POINT:raise"
        )
    return Fault(point, action, int(times or 1))  # type: ignore[arg-type] # compared with the literals above


_armed: Final = parse_fault(os.environ.get(FAULT_VARIABLE, ""))


def fault_point(name: str) -> None:
    """Marks a place; does nothing unless it is the one that is armed.

    Example:
        >>> fault_point("nothing.armed")
    """
    if _armed is not None and _armed.point == name:
        strike(_armed)


def strike(fault: Fault) -> None:
    """Carries a fault out when its time has come.

    Raises:
        InjectedFaultError: The action is ``raise``.
    """
    fault.passes_left -= 1
    if fault.passes_left != 0:
        return
    if fault.action == "raise":
        raise InjectedFaultError(f"fault at {fault.point}")
    os.kill(os.getpid(), signal.SIGKILL if fault.action == "kill" else signal.SIGSTOP)
