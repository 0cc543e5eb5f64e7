"""Frames handed to a function, for programs that would rather be called than ask."""

from __future__ import annotations

import argparse
import threading

import numpy as np

import tensor_pool as tp


def main() -> None:
    parser = argparse.ArgumentParser(description="Get frames by callback.")
    parser.add_argument("--frames", type=int, default=100, help="when to end")
    frames = parser.parse_args().frames

    sums: list[int] = []
    done = threading.Event()

    def on_frame(frame: tp.Frame) -> None:  # called by a thread of the library
        with frame as image:
            sums.append(int(image.sum()))
        if len(sums) == frames:
            done.set()

    with (
        tp.connect(embedded=True) as pool,
        pool.producer("meter", dtype="int32", shape=(16,)) as out,
        pool.consumer("meter") as inp,
        inp.on_frame(on_frame) as calls,
    ):
        for n in range(frames):
            out.publish(np.full(16, n, "int32"))
        finished = done.wait(30)
    print(f"{len(sums)} calls, sum {sum(sums)}, all came: {finished}, error: {calls.error}")


if __name__ == "__main__":
    main()
