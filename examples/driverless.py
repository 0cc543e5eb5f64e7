"""Without an SHM driver: the producer owns its files and announces them, consumers follow the announces."""

from __future__ import annotations

import argparse

import numpy as np

import tensor_pool as tp
from tensor_pool.transport import EmbeddedMediaDriver


def main() -> None:
    parser = argparse.ArgumentParser(description="Pass frames without an SHM driver.")
    parser.add_argument("--frames", type=int, default=100, help="when to end")
    frames = parser.parse_args().frames

    with (
        EmbeddedMediaDriver.temporary() as media,  # messages still travel through Aeron
        tp.connect(media.aeron_dir, driver=False) as pool,
        pool.producer(10_000, dtype="int64", shape=(4,), name="counter", attach=False) as out,
        pool.consumer(10_000, attach=False, wait_s=10.0) as inp,
    ):
        total = 0
        for n in range(frames):
            out.publish(np.full(4, n, "int64"))
            frame = inp.poll(timeout=10.0)
            assert frame is not None
            total += int(frame.copy()[0])
        print(f"{inp.stats.delivered} frames of {inp.metadata.name or inp.stream_id}, sum {total}")


if __name__ == "__main__":
    main()
