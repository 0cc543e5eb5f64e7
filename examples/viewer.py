"""A viewer of `camera.py`: looks at each picture where it lies, then says what became of them."""

from __future__ import annotations

import argparse
import time

import tensor_pool as tp


def main() -> None:
    parser = argparse.ArgumentParser(description="Look at the pictures of a stream.")
    parser.add_argument("--stream", default="camera-1")
    parser.add_argument("--frames", type=int, default=3000, help="when to end")
    parser.add_argument("--slow", type=float, default=0.0, help="seconds to spend on each picture")
    arguments = parser.parse_args()

    with tp.connect() as pool, pool.consumer(arguments.stream) as inp:
        brightness = 0.0
        overwritten = 0
        for count in range(1, arguments.frames + 1):
            frame = inp.poll(timeout=10.0)
            if frame is None:
                print("no picture for ten seconds")
                break
            try:
                with frame as image:  # a read-only view; checked when the block ends
                    mean = float(image[::8, ::8].mean())
                    time.sleep(arguments.slow)
                brightness += mean
            except tp.FrameOverwrittenError:
                overwritten += 1  # too slow: what was computed is thrown away
            if count % 100 == 0:
                settings = inp.metadata.at(frame.info.meta_version)  # what held when it was taken
                exposure = settings["exposure_ms"] if settings else "?"
                print(f"frame {frame.seq}: brightness {mean:.1f}, exposure {exposure} ms")
        print(f"mean brightness {brightness / max(1, count - overwritten):.1f}")
        print(inp.stats)


if __name__ == "__main__":
    main()
