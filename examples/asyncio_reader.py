"""Frames in asyncio: `async for`, beside other tasks of the same loop, without a thread of its own."""

from __future__ import annotations

import argparse
import asyncio

import numpy as np

import tensor_pool as tp


async def produce(out: tp.Producer, frames: int) -> None:
    for n in range(frames):
        out.publish(np.full((480, 640), n % 256, "uint8"))  # never waits for consumers
        await asyncio.sleep(0.01)


async def read(inp: tp.Consumer, frames: int) -> int:
    total = 0
    count = 0
    async for frame in inp:
        with frame as image:
            total += int(image[0, 0])
        count += 1
        if count == frames:
            break
    return total


async def run(frames: int) -> None:
    with (
        tp.connect(embedded=True) as pool,
        pool.producer("camera-1", dtype="uint8", shape=(480, 640)) as out,
        pool.consumer("camera-1") as inp,
    ):
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(read(inp, frames))
            tasks.create_task(produce(out, frames))
        print(f"sum of the first pixels: {reading.result()}")
        print(inp.stats)


def main() -> None:
    parser = argparse.ArgumentParser(description="Read frames in an event loop.")
    parser.add_argument("--frames", type=int, default=200, help="when to end")
    asyncio.run(run(parser.parse_args().frames))


if __name__ == "__main__":
    main()
