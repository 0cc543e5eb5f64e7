"""Frames through iceoryx2, by its Python package."""

from __future__ import annotations

import ctypes
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from links.ends import read_stamp, stamp
from links.plan import PEERS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from links.plan import LinkPlan

# The package has this module's name: look for it where it is installed, not here.
sys.path.insert(0, str(PEERS))
import iceoryx2 as iox2


class _Service:
    """What both ends open: frames, and an event that tells of them."""

    def __init__(self, plan: LinkPlan) -> None:
        iox2.set_log_level(iox2.LogLevel.Error)
        self.node = iox2.NodeBuilder.new().create(iox2.ServiceType.Ipc)
        self.frames = (
            self.node.service_builder(iox2.ServiceName.new(plan.name))
            .publish_subscribe(iox2.Slice[ctypes.c_uint8])
            .enable_safe_overflow(True)
            .subscriber_max_buffer_size(plan.slots)
            .payload_alignment(iox2.Alignment.new(64))
            .open_or_create()
        )
        self.events = (
            self.node.service_builder(iox2.ServiceName.new(f"{plan.name} event")).event().open_or_create()
        )
        self._array_type = ctypes.c_uint64 * plan.words

    def array(self, address: int) -> NDArray[np.uint64]:
        """An array over a frame: faster than by way of the package's slice and its memoryview."""
        return np.frombuffer(self._array_type.from_address(address), np.uint64)


class Iceoryx2Sender:
    """Loans samples; copies into them if the plan says so."""

    def __init__(self, plan: LinkPlan) -> None:
        self._copy = plan.copy
        self._nbytes = plan.frame_bytes
        self._service = _Service(plan)
        self._publisher = (
            self._service.frames.publisher_builder().initial_max_slice_len(plan.frame_bytes).create()
        )
        self._notifier: Any = None
        if plan.wait != "spin":
            self._notifier = self._service.events.notifier_builder().create()
        self._source = np.zeros(plan.words, np.uint64)

    def send(self, number: int) -> None:
        """Sends a frame, and tells of it if anybody sleeps."""
        now_ns = time.monotonic_ns()
        sample = self._publisher.loan_slice_uninit(self._nbytes)
        words = self._service.array(sample.payload_ptr)
        if self._copy:
            stamp(self._source, number, now_ns)
            np.copyto(words, self._source)
        else:
            stamp(words, number, now_ns)
        sample.assume_init().send()
        if self._notifier is not None:
            self._notifier.notify()

    def close(self) -> None:
        """Nothing to do: it ends with the process."""


class Iceoryx2Receiver:
    """Receives samples, spinning or after an event."""

    def __init__(self, plan: LinkPlan) -> None:
        self._copy = plan.copy
        self._service = _Service(plan)
        self._subscriber = self._service.frames.subscriber_builder().create()
        self._listener: Any = None
        self._waitset: Any = None
        if plan.wait != "spin":
            self._listener = self._service.events.listener_builder().create()
        if plan.wait == "waitset":
            self._waitset = iox2.WaitSetBuilder.new().create(iox2.ServiceType.Ipc)
            self._guard = self._waitset.attach_notification(self._listener)

    def receive(self, timeout_s: float) -> tuple[int, int] | None:
        """The next frame; nobody can overwrite it before it is given back."""
        sample = self._subscriber.receive()
        if sample is None:
            sample = self._wait(timeout_s)
            if sample is None:
                return None
        words = self._service.array(sample.payload_ptr)
        return read_stamp(words.copy() if self._copy else words)

    def _wait(self, timeout_s: float) -> Any:
        if self._waitset is not None:
            self._waitset.wait_and_process_with_timeout(iox2.Duration.from_secs_f64(timeout_s))
            self._listener.try_wait()
            return self._subscriber.receive()
        if self._listener is not None:
            self._listener.timed_wait(iox2.Duration.from_secs_f64(timeout_s))
            return self._subscriber.receive()
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            for _ in range(100):  # asking for the time costs as much as asking for a sample
                sample = self._subscriber.receive()
                if sample is not None:
                    return sample
        return None

    def close(self) -> None:
        """Nothing to do: it ends with the process."""
