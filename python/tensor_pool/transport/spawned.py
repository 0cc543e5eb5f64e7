"""A media driver in a process of its own."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import time
import weakref
from dataclasses import asdict
from typing import IO, Any, Final

from tensor_pool import errors
from tensor_pool.closing import Closing
from tensor_pool.transport.media import (
    DEFAULT_OPTIONS,
    MediaDriverOptions,
    media_driver_status,
    resolve_aeron_dir,
)

__all__ = ["SpawnedMediaDriver"]


class SpawnedMediaDriver(Closing):
    """A media driver in a process of its own, which ends when this process does, however that ends.

    Args:
        aeron_dir: An absolute path; `default_aeron_dir()` when not given.
        options: How it runs.
        start_timeout_ms: How long it may take to come up.

    Raises:
        TransportError: It could not start; says why.

    Example:
        >>> from tensor_pool.transport.media import temporary_aeron_dir
        >>> with SpawnedMediaDriver(temporary_aeron_dir()) as driver:
        ...     driver.pid != os.getpid() and driver.is_alive()
        True
    """

    def __init__(
        self,
        aeron_dir: str | os.PathLike[str] | None = None,
        options: MediaDriverOptions = DEFAULT_OPTIONS,
        *,
        start_timeout_ms: float = 20_000,
    ) -> None:
        self.aeron_dir: Final = resolve_aeron_dir(aeron_dir)
        command = [
            sys.executable,
            "-m",
            "tensor_pool.transport.media_main",
            self.aeron_dir,
            json.dumps(asdict(options)),
        ]
        # A session of its own: Ctrl-C in a terminal is for us, who then end it. It ends by itself when its
        # standard input does, which happens even when this process is killed.
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        abandoned = self.aeron_dir if options.delete_dir_on_shutdown else None
        self._finalizer = weakref.finalize(self, _end_process, process, os.getpid(), abandoned)
        self._process = process
        try:
            self._await_start(process, start_timeout_ms)
        except BaseException:
            process.terminate()
            self._finalizer()
            raise
        self.pid: Final = process.pid

    def _await_start(self, process: subprocess.Popen[bytes], timeout_ms: float) -> None:
        assert process.stdout is not None
        line = _read_line(process.stdout, time.monotonic() + timeout_ms / 1e3)
        if line is None:
            raise errors.TransportError(f"the media driver did not come up within {timeout_ms:g} ms")
        try:
            answer: dict[str, Any] = json.loads(line)
        except ValueError:
            raise errors.TransportError(
                f"the media driver's process ended without a word (exit code {process.wait()})"
            ) from None
        if "error" in answer:
            error_class = getattr(errors, answer["error"], errors.TransportError)
            raise error_class(answer["message"], hint=answer["hint"])

    def is_alive(self) -> bool:
        """Whether its process runs."""
        self._check_process()
        return self._process.poll() is None

    def close(self) -> None:
        """Ends it; clients notice within a second. May be called again."""
        self._check_process()
        self._finalizer()

    def _check_process(self) -> None:
        peek = self._finalizer.peek()
        if peek is not None and peek[2][1] != os.getpid():
            raise errors.ForkedProcessError(
                "the media driver's process belongs to the process that this one was forked from",
                hint="use ExternalMediaDriver in the child",
            )


def _read_line(stream: IO[bytes], deadline: float) -> bytes | None:
    """One line, or what came before the end; None when the deadline passes first."""
    line = b""
    while not line.endswith(b"\n"):
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([stream], [], [], left)[0]:
            return None
        chunk = os.read(stream.fileno(), 4096)
        if not chunk:
            break
        line += chunk
    return line


def _end_process(process: subprocess.Popen[bytes], owner_pid: int, aeron_dir: str | None) -> None:
    """Asks, then insists; a forked copy of the owner leaves the process alone.

    A process that was killed could not remove its directory. That is done for it, unless somebody else has
    started a media driver there meanwhile.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    if os.getpid() == owner_pid:
        process.stdin.close()
        for insist in (process.terminate, process.kill):
            try:
                process.wait(timeout=5)
                break
            except subprocess.TimeoutExpired:
                insist()
        process.wait()
        process.stdout.close()
        if aeron_dir is not None:
            left = media_driver_status(aeron_dir)
            if left is not None and left.pid == process.pid:
                shutil.rmtree(aeron_dir, ignore_errors=True)
