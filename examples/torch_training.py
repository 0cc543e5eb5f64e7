"""A training loop fed from a stream: frames become PyTorch tensors on the CPU or on a GPU."""

from __future__ import annotations

import argparse
import threading

import numpy as np

import tensor_pool as tp

try:
    import torch
except ImportError:
    torch = None


def feed(out: tp.Producer, stop: threading.Event) -> None:
    random = np.random.default_rng(17)
    while not stop.wait(0.002):
        x = random.standard_normal((64, 8), dtype="float32")
        y = x.sum(axis=1, keepdims=True)
        out.publish(np.hstack([x, y]))  # inputs and target in one tensor


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on frames of a stream.")
    parser.add_argument("--frames", type=int, default=300, help="when to end")
    frames = parser.parse_args().frames
    if torch is None:
        print("skipped: this example needs PyTorch")
        return

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = torch.nn.Linear(8, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    stop = threading.Event()
    with (
        tp.connect(embedded=True) as pool,
        pool.producer("batches", dtype="float32", shape=(64, 9)) as out,
        pool.consumer("batches") as inp,
    ):
        feeder = threading.Thread(target=feed, args=(out, stop))
        feeder.start()
        for _, frame in zip(range(frames), inp, strict=False):
            batch = frame.torch(device)  # a private tensor; checked after the copy
            loss = torch.nn.functional.mse_loss(model(batch[:, :8]), batch[:, 8:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        stop.set()
        feeder.join()
    print(f"loss {float(loss):.4f} after {frames} batches on {device}")


if __name__ == "__main__":
    main()
