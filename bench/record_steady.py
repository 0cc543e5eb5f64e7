"""Two minutes of recording at 0.8 of what the disk takes for good: nothing may be lost.

The disk's rate is the mean of a plain writer which syncs as often as the recorder does. Disks of virtual
machines have quick and slow stretches, which are told too; the writer's files stay until the end, as removing
gigabytes keeps a disk busy for a while.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import numpy as np
from results import MIB, Results, progress
from steady_camera import STREAM, Plan, steady_camera

from tensor_pool.pipeline.record import Recorder
from tensor_pool.pipeline.record.options import RecorderOptions
from tensor_pool.testing import Cluster, wait_until

SIZE: Final = 4 * MIB
SHARE: Final = 0.8
SLOTS: Final = 64
KEPT: Final = 4096 * MIB
"""What is on the disk at a time; older segments are removed."""
STRETCHES: Final = 8
_DEFAULTS: Final = RecorderOptions()
_FILES: Final = KEPT // _DEFAULTS.segment_bytes


def disk_rate(directory: Path, seconds: float) -> float:
    """Bytes a second of a plain writer; leaves files behind."""
    progress(f"the disk's synced rate over {seconds:.0f} s")
    frame = np.random.default_rng(1).integers(0, 256, SIZE, np.uint8)
    rates: list[float] = []
    for stretch in range(STRETCHES):
        written = 0
        started = time.monotonic()
        while time.monotonic() - started < seconds / STRETCHES:
            path = directory / f"{written // _DEFAULTS.segment_bytes % _FILES}.plain"
            path.unlink(missing_ok=True)
            with path.open("wb", buffering=0) as file:
                for _ in range(_DEFAULTS.segment_bytes // _DEFAULTS.sync_bytes):
                    for _ in range(_DEFAULTS.sync_bytes // SIZE):
                        written += file.write(frame)
                    os.fdatasync(file.fileno())
        rates.append(written / (time.monotonic() - started))
        progress(f"stretch {stretch + 1} of {STRETCHES}: {rates[-1] / 1e6:.0f} MB/s")
    return sum(rates) / len(rates)


def measure(results: Results, directory: Path, seconds: float) -> None:
    """Records at a share of the disk's rate."""
    rate = disk_rate(directory, seconds / 3)
    os.sync()
    rate_hz = rate * SHARE / SIZE
    progress(f"{seconds:.0f} s of recording at {rate_hz:.0f} Hz x {SIZE // MIB} MiB")
    with Cluster() as host, host.connect() as pool:
        settings = {key: str(value) for key, value in host.settings.items()}
        plan = Plan(settings=settings, rate_hz=rate_hz, size=SIZE, slots=SLOTS)
        with (
            steady_camera(plan) as go,
            Recorder(pool, [STREAM], directory / "recording", keep_bytes=KEPT) as recorder,
        ):
            go.set()
            wait_until(lambda: recorder.progress[STREAM].frames, timeout_s=30)
            started, backlog = time.monotonic(), 0
            while time.monotonic() - started < seconds:
                time.sleep(0.1)
                backlog = max(backlog, recorder.progress[STREAM].backlog_bytes)
            done = recorder.progress[STREAM]
            recorded = done.nbytes / (time.monotonic() - started)
    results.add("disk, plain writer", rate / 1e6, "MB/s")
    results.add("recorded", recorded / 1e6, "MB/s")
    results.add("recorded, of the disk's rate", recorded / rate, "", at_least=SHARE * 0.98)
    results.add("frames", done.frames, "")
    results.add("largest backlog", backlog / MIB, "MiB")
    results.add("frames lost or dropped", done.lost + done.dropped, "", at_most=0)


def main() -> int:
    """Measures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--dir", type=Path, default=Path(".build"), help="on the disk to be measured")
    args = parser.parse_args()
    results = Results(Path(__file__).stem)
    with tempfile.TemporaryDirectory(prefix="tensor-pool-bench-", dir=args.dir) as name:
        measure(results, Path(name), args.seconds)
    return results.finish()


if __name__ == "__main__":
    sys.exit(main())
