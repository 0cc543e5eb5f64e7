"""An SHM driver in a process of its own, to be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

_SCRIPT = """
import json, sys
from tensor_pool.config import load_config
from tensor_pool.driver import Driver
aeron_dir, overrides = sys.argv[1], json.loads(sys.argv[2])
driver = Driver(load_config(overrides=overrides, environ={}, search=False), aeron_dir=aeron_dir)
print("serving", flush=True)
sys.stdin.read()
driver.close()
"""

SMALL = {
    "driver.default_nslots": 8,
    "driver.default_pools": [4096],
    "driver.announce_interval_ms": 200,
    "driver.epoch_min_age_ms": 1_000,
}
"""Small rings, and what a dead driver left counts as stale after parts of a second (three announces)."""


class DriverProcess:
    """A process that serves from construction on.

    Args:
        aeron_dir: The media driver's directory.
        base: Where regions go.
        fault: What `TENSOR_POOL_FAULT` says.
        overrides: Configuration by path.
    """

    def __init__(self, aeron_dir: str, base: Path, *, fault: str = "", **overrides: Any) -> None:
        import json

        settings = SMALL | {"shm.shm_base_dir": str(base)} | overrides
        self.process = subprocess.Popen(
            [sys.executable, "-c", _SCRIPT, aeron_dir, json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TENSOR_POOL_FAULT": fault},
        )

    def wait_serving(self) -> DriverProcess:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "serving\n", self.process.communicate()[1]
        return self

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.wait_killed()

    def lives_on(self, seconds: float) -> bool:
        """Waits for its end; true when it still runs after that."""
        try:
            self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return True
        return False

    def wait_killed(self) -> None:
        """Waits for a death that a signal or a fault brings."""
        assert self.process.wait(timeout=30) == -signal.SIGKILL
        self.process.communicate()

    def close(self) -> None:
        """Ends it cleanly if it still runs."""
        if self.process.poll() is None:
            self.process.communicate(timeout=30)

    def __enter__(self) -> Self:
        return self.wait_serving()

    def __exit__(self, *_args: object) -> None:
        try:
            self.close()
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise
