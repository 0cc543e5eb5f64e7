"""An idle media driver and an idle client cost next to nothing."""

from __future__ import annotations

import os
import resource
import time

import pytest

from tensor_pool.transport import AeronClient, EmbeddedMediaDriver


@pytest.mark.quiet
def test_idle_threads_sleep(media_driver: EmbeddedMediaDriver) -> None:
    with AeronClient.connect(media_driver.aeron_dir) as client:
        client.add_subscription("aeron:ipc", 7)
        client.add_publication("aeron:ipc", 8)
        time.sleep(0.3)  # let start-up work end: the measurement is about what follows
        seconds = 2.0
        cpu_before, switches_before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
        time.sleep(seconds)
        share = (time.process_time() - cpu_before) / seconds
        wake_ups = (resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw - switches_before) / seconds
    print(f"idle: {100 * share:.2f} % of one core of {os.cpu_count()}, {wake_ups:.0f} wake-ups a second")
    assert share < 0.10, "busy while idle"
    # Wake-ups do not depend on the machine: about 60 of the client and 350 of the media driver.
    assert wake_ups < 1_000
