"""A camera: 100 pictures a second, drawn in shared memory, with metadata.

tpool up                             in one terminal
python examples/camera.py            in a second one
python examples/viewer.py            in a third one
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import tensor_pool as tp

HEIGHT, WIDTH = 1080, 1920


def main() -> None:
    parser = argparse.ArgumentParser(description="Publish pictures at a fixed rate.")
    parser.add_argument("--stream", default="camera-1")
    parser.add_argument("--rate", type=float, default=100.0, help="pictures a second")
    parser.add_argument("--seconds", type=float, default=60.0, help="when to end")
    arguments = parser.parse_args()

    ramp = np.arange(WIDTH).astype("uint8")
    with (
        tp.connect() as pool,
        pool.producer(
            arguments.stream,
            dtype="uint8",
            shape=(HEIGHT, WIDTH),
            rate_hz=arguments.rate,
            consumer_latency_s=0.2,  # a consumer may hold a frame for so long
            metadata={"exposure_ms": 5.0, "serial": "A-17"},
        ) as out,
    ):
        start = time.monotonic()
        for number in range(1, round(arguments.rate * arguments.seconds) + 1):
            with out.claim((HEIGHT, WIDTH), "uint8") as slot:
                np.add(ramp, slot.seq % 256, out=slot.array)  # no copy: drawn where readers look
            if slot.seq == 10 * int(arguments.rate):
                out.metadata["exposure_ms"] = 8.0  # frames from here on belong to the new version
            due = start + number / arguments.rate
            time.sleep(max(0.0, due - time.monotonic()))
        print(out.stats)


if __name__ == "__main__":
    main()
