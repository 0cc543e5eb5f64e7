"""A slow frame, followed while it is written: a rolling shutter, or a long computation."""

from __future__ import annotations

import argparse
import threading
import time

import tensor_pool as tp

ROWS, COLUMNS = 400, 1000


def expose(out: tp.Producer, frames: int) -> None:
    for _ in range(frames):
        with out.claim((ROWS, COLUMNS), "uint16", progress="rows") as slot:
            for row in range(0, ROWS, 40):
                slot.array[row : row + 40] = row
                slot.progress(rows=row + 40)  # told to consumers as often as they want to hear it
                time.sleep(0.01)


def main() -> None:
    parser = argparse.ArgumentParser(description="Follow frames while they are written.")
    parser.add_argument("--frames", type=int, default=20, help="when to end")
    frames = parser.parse_args().frames

    with (
        tp.connect(embedded=True) as pool,
        pool.producer("scanner", dtype="uint16", shape=(ROWS, COLUMNS)) as out,
        pool.consumer("scanner", progress=True) as inp,
    ):
        scanner = threading.Thread(target=expose, args=(out, frames))
        scanner.start()
        prefixes = whole = 0
        while whole < frames:
            prefix = inp.poll_progress(timeout=0.02)
            if prefix is not None:  # provisional: a private copy of the rows that are there
                prefixes += 1
            while (frame := inp.poll()) is not None:  # certain: the frame is committed
                with frame as image:
                    whole += int(image[-1, -1]) == ROWS - 40
        scanner.join()
    print(f"{whole} whole frames, looked at {prefixes} times before they were")


if __name__ == "__main__":
    main()
