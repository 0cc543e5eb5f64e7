"""Network namespaces for tests: hosts with a network of their own on one machine, made with ``ip``."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import secrets
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Final

from tensor_pool.errors import ConfigError

__all__ = ["command_inside", "ip", "make_namespace", "remove_namespace", "remove_stale", "why_not"]

_OUR_NAME: Final = re.compile(r"tpool-test-(\d+)-[0-9a-f]{6}")
_USUAL_PATH: Final = "/usr/sbin:/sbin:/usr/bin:/bin"
"""Where `ip` is; the path of people who aren't root often lacks the first two."""
_IP_TIMEOUT_S: Final = 20.0


def _ip_program() -> str | None:
    return shutil.which("ip") or shutil.which("ip", path=_USUAL_PATH)


def ip(*arguments: str) -> str:
    """Runs ``ip`` with these arguments; what it prints.

    Raises:
        ConfigError: There is no ``ip``, or it failed; says what it said.
    """
    program = _ip_program()
    if program is None:
        raise ConfigError("there is no program named ip", hint="apt-get install iproute2")
    done = subprocess.run(  # noqa: S603 - a system's own program, without a shell
        [program, *arguments], capture_output=True, text=True, check=False, timeout=_IP_TIMEOUT_S
    )
    if done.returncode != 0:
        raise ConfigError(
            f"ip {' '.join(arguments)}: {done.stderr.strip() or f'status {done.returncode}'}",
            hint="network namespaces and veth need root (CAP_SYS_ADMIN and CAP_NET_ADMIN)",
        )
    return done.stdout


def command_inside(namespace: str, arguments: list[str]) -> list[str]:
    """A command line that runs another one in a network namespace, as the same process.

    Example:
        >>> command_inside("camera-host", ["true"])[1:]
        ['netns', 'exec', 'camera-host', 'true']
    """
    return [_ip_program() or "ip", "netns", "exec", namespace, *arguments]


def make_namespace() -> str:
    """Makes a namespace with a loopback that is up; its name, which says whose it is.

    Raises:
        ConfigError: It could not be made; says why.
    """
    name = f"tpool-test-{os.getpid()}-{secrets.token_hex(3)}"
    ip("netns", "add", name)
    try:
        ip("-n", name, "link", "set", "lo", "up")
    except BaseException:
        remove_namespace(name)
        raise
    return name


def remove_namespace(name: str) -> None:
    """Removes a namespace with its devices; one that is gone already is no error."""
    with contextlib.suppress(ConfigError):
        ip("netns", "delete", name)


def remove_stale() -> list[str]:
    """Removes what processes that were killed left behind: namespaces, and programs that run in them.

    Returns:
        The names of the namespaces that were removed.
    """
    # A line is a name, for namespaces with an id followed by that.
    names = [line.split()[0] for line in ip("netns", "list").splitlines() if line.strip()]
    stale = [name for name in names if _is_stale(name)]
    for name in stale:
        with contextlib.suppress(ConfigError):  # somebody else was quicker
            for pid in ip("netns", "pids", name).split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
        remove_namespace(name)
    return stale


def _is_stale(name: str) -> bool:
    ours = _OUR_NAME.fullmatch(name)
    return ours is not None and not Path(f"/proc/{ours[1]}").exists()


@functools.cache
def why_not(*, switch: bool = False) -> str | None:
    """Why this machine can't have hosts in namespaces; None when it can. Tries it once a process.

    Args:
        switch: Whether they need a bridge device too.
    """
    try:
        remove_stale()
        namespace = make_namespace()
        try:
            ip("-n", namespace, "link", "add", "near", "type", "veth", "peer", "name", "far")
            if switch:
                ip("-n", namespace, "link", "add", "switch", "type", "bridge")
            ip("netns", "exec", namespace, "true")
        finally:
            remove_namespace(namespace)
    except (ConfigError, OSError, subprocess.TimeoutExpired) as error:
        return f"no network namespaces here: {error}"
    return None
