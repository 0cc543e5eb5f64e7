"""A host of its own for a test: media driver, SHM driver and programs as real processes."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any, Final

from tensor_pool.closing import Closing
from tensor_pool.config import load_config
from tensor_pool.config.toml_text import toml_value
from tensor_pool.testing.loss import loss_environment
from tensor_pool.testing.namespaces import command_inside
from tensor_pool.transport.counters import read_counters

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tensor_pool.config import Config
    from tensor_pool.pool.pool import Pool

__all__ = ["Cluster", "Process"]

_SHM: Final = "/dev/shm"  # noqa: S108 - shared memory is the point
_PATIENCE_S: Final = 30.0


class Process(Closing):
    """A program that a test started: read what it says, stop it, let it go on, kill it.

    Args:
        arguments: The command line.
        environ: Its environment.
    """

    def __init__(self, arguments: list[str], *, environ: Mapping[str, str]) -> None:
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        """What it wrote to standard error."""
        self._popen = subprocess.Popen(  # noqa: S603 - what a test wants to run
            arguments, stdout=subprocess.PIPE, stderr=self.log, stdin=subprocess.PIPE, env=dict(environ)
        )
        assert self._popen.stdout is not None
        os.set_blocking(self._popen.stdout.fileno(), False)
        self._unread = b""

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._popen.pid

    @property
    def exit_code(self) -> int | None:
        """How it ended; None while it runs."""
        return self._popen.poll()

    def read_line(self, timeout_s: float = _PATIENCE_S) -> str:
        """The next line that it prints.

        Raises:
            AssertionError: None came in time, or it ended; shows what it wrote to standard error.
        """
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._unread:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not self._read(left_s):
                raise AssertionError(f"no line from process {self.pid} ({self.exit_code}):\n{self.errors()}")
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode()

    def _read(self, timeout_s: float) -> bool:
        assert self._popen.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._popen.stdout, selectors.EVENT_READ)
            if not selector.select(timeout_s):
                return True
        data = os.read(self._popen.stdout.fileno(), 65536)
        self._unread += data
        return bool(data)

    def say(self, line: str) -> None:
        """Writes a line to its standard input."""
        assert self._popen.stdin is not None
        self._popen.stdin.write(line.encode() + b"\n")
        self._popen.stdin.flush()

    def errors(self) -> str:
        """What it wrote to standard error."""
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def stop(self) -> None:
        """Stops it with SIGSTOP, as a debugger or a full disk would."""
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """Lets it go on."""
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """Ends it at once, without giving it a chance to clean up."""
        self._popen.kill()
        self._popen.wait()

    def terminate(self, timeout_s: float = _PATIENCE_S) -> int:
        """Asks it to end and waits; its exit code."""
        self._popen.terminate()
        return self.wait(timeout_s)

    def wait(self, timeout_s: float = _PATIENCE_S) -> int:
        """Waits until it has ended; its exit code."""
        try:
            return self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"process {self.pid} does not end:\n{self.errors()}") from None

    def close(self) -> None:
        """Kills it if it still runs; may be called again."""
        if self._popen.poll() is None:
            self.kill()
        for pipe in (self._popen.stdin, self._popen.stdout, self.log):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()


def _as_text(value: Any) -> str:
    """A value as the command line takes it."""
    return value if isinstance(value, str) else toml_value(value)


class Cluster(Closing):
    """Media driver and SHM driver as processes of their own, in directories of their own.

    Args:
        settings: Configuration keys with their values, for all processes.
        driver: Whether to start an SHM driver.
        netns: The network namespace that its processes run in; that of this process when not given. This
            process can connect all the same: what it shares with them are files.
        loss: The part of the UDP messages that come in that the media driver drops, such as 0.05.
        loss_seed: The same seed drops the same messages.

    Raises:
        ConfigError: The loss is no part of one.
        AssertionError: A process did not start; shows what it wrote to standard error.

    Example:
        >>> import numpy as np
        >>> with Cluster() as cluster, cluster.connect() as pool:
        ...     out = pool.producer("camera-1", dtype="uint8", shape=(4,))
        ...     reader = cluster.run_python('''
        ...         inp = pool.consumer("camera-1", wait_s=10)
        ...         print(inp.poll(timeout=10).copy().sum())
        ...     ''')
        ...     _ = out.publish(np.ones(4, "uint8"))
        ...     reader.read_line()
        '4'
    """

    def __init__(
        self,
        settings: Mapping[str, Any] | None = None,
        *,
        driver: bool = True,
        netns: str | None = None,
        loss: float | None = None,
        loss_seed: int = 1,
    ) -> None:
        self.netns: Final = netns
        self._media_environ = loss_environment(loss, seed=loss_seed)
        self._resources = contextlib.ExitStack()
        self.directory = self._resources.enter_context(
            tempfile.TemporaryDirectory(dir=_SHM, prefix="tensor-pool-test-", ignore_cleanup_errors=True)
        )
        self.settings = {
            "aeron.dir": f"{self.directory}/aeron",
            "shm.shm_base_dir": f"{self.directory}/shm",
            "log.level": "warning",
            **(settings or {}),
        }
        os.mkdir(f"{self.directory}/shm", mode=0o700)  # noqa: PTH102 - a string is what the configuration takes
        try:
            self.media = self.start_media()
            self.driver: Process | None = self.start_driver() if driver else None
        except BaseException:
            self.close()
            raise

    @property
    def aeron_dir(self) -> str:
        """The media driver's directory."""
        return str(self.settings["aeron.dir"])

    @property
    def config(self) -> Config:
        """The configuration of all its processes."""
        return load_config(overrides=self.settings, environ={}, search=False)

    def connect(self, **settings: Any) -> Pool:
        """Connects this process; keyword arguments are those of `tensor_pool.connect`."""
        from tensor_pool.host.connection import connect  # noqa: PLC0415 - the kit is for other parts too

        return connect(config=self.config, **settings)

    def media_counter(self, label: str) -> int:
        """What the media driver counts under this label, such as ``NAKs sent`` or ``Retransmits sent``.

        Raises:
            LookupError: It has no such counter; says which it has.
        """
        own = {reading.label: reading.value for reading in read_counters(self.aeron_dir, type_id=0)}
        if label not in own:
            raise LookupError(f"the media driver has no counter {label!r}, only {', '.join(own)}")
        return own[label]

    def start_media(self) -> Process:
        """Starts a media driver and waits until it runs; it becomes `media`."""
        process = self.start("media", "run", environ=self._media_environ)
        process.read_line()
        self.media = process
        return process

    def start_driver(self, *arguments: str, environ: Mapping[str, str] | None = None) -> Process:
        """Starts an SHM driver and waits until it serves; it becomes `driver`."""
        process = self.start("driver", "run", *arguments, environ=environ)
        process.read_line()
        self.driver = process
        return process

    def start(self, *arguments: str, environ: Mapping[str, str] | None = None) -> Process:
        """Starts ``tpool`` with these arguments and the cluster's configuration."""
        command = "from tensor_pool.ops.cli import main; main()"
        settings = [f"--set={key}={_as_text(value)}" for key, value in self.settings.items()]
        return self._start([sys.executable, "-c", command, *arguments, *settings], environ)

    def run_python(
        self, script: str, *, environ: Mapping[str, str] | None = None, driver: bool = True
    ) -> Process:
        """Starts a program; its script finds ``pool`` connected, and ``np``, ``tp`` and ``time`` imported.

        Args:
            script: What it does.
            environ: What to add to its environment.
            driver: Whether it waits for an SHM driver first.
        """
        import textwrap  # noqa: PLC0415 - only here

        head = (
            "import sys, time, numpy as np, tensor_pool as tp\n"
            f"settings = {self.settings!r}\n"
            "config = tp.load_config(overrides=settings, environ={}, search=False)\n"
            "print = __import__('functools').partial(print, flush=True)\n"
            f"pool = tp.connect(config=config, driver={driver})\n"
        )
        return self._start([sys.executable, "-c", head + textwrap.dedent(script)], environ)

    def _start(self, arguments: list[str], environ: Mapping[str, str] | None) -> Process:
        if self.netns is not None:
            arguments = command_inside(self.netns, arguments)
        process = Process(arguments, environ={**os.environ, **(environ or {})})
        self._resources.enter_context(process)
        return process

    def close(self) -> None:
        """Ends everything and removes its files; may be called again."""
        self._resources.close()
