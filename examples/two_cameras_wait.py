"""One thread, two cameras: `tensor_pool.wait` sleeps until either of them has a frame."""

from __future__ import annotations

import argparse
import collections
import threading

import numpy as np

import tensor_pool as tp


def film(pool: tp.Pool, stream: str, rate_hz: float, stop: threading.Event) -> None:
    with pool.producer(stream, dtype="uint8", shape=(480, 640), slots=32) as out:
        while not stop.wait(1 / rate_hz):
            out.publish(np.full((480, 640), 7, "uint8"))


def main() -> None:
    parser = argparse.ArgumentParser(description="Wait for two streams at once.")
    parser.add_argument(
        "--frames", type=int, default=200, help="how many of each camera to look at, at least"
    )
    arguments = parser.parse_args()

    seen: collections.Counter[str] = collections.Counter()
    stop = threading.Event()
    with tp.connect(embedded=True) as pool:  # drivers, cameras and reader in one process
        cameras = [
            threading.Thread(target=film, args=(pool, name, rate_hz, stop))
            for name, rate_hz in (("left", 50), ("right", 20))
        ]
        for camera in cameras:
            camera.start()
        readers = [pool.consumer("left"), pool.consumer("right")]
        while min(seen["left"], seen["right"]) < arguments.frames:
            for reader in tp.wait(readers, timeout=0.5):  # those that have a frame
                while (frame := reader.poll()) is not None:
                    with frame as image:
                        seen[reader.name] += int(image[0, 0]) == 7
        stop.set()
        for camera in cameras:
            camera.join()
    print(f"left {seen['left']} frames, right {seen['right']} frames")


if __name__ == "__main__":
    main()
