"""How fast frames reach a GPU: from a registered mapping, from ordinary memory, from pinned memory.

Needs PyTorch with CUDA; run it by hand: ``python bench/gpu_copies.py``.
"""

from __future__ import annotations

import json
import time

import numpy as np

import tensor_pool as tp

SIZES = (1 << 20, 8 << 20, 64 << 20)


def gigabytes_a_second(copy, nbytes: int, *, seconds: float = 1.0) -> float:
    copy()
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        copy()
        count += 1
    return count * nbytes / (time.perf_counter() - start) / 1e9


def measure(nbytes: int) -> dict[str, float]:
    import torch

    values = np.random.default_rng(1).integers(0, 255, nbytes, dtype="uint8")
    with tp.connect(embedded=True) as pool:
        with pool.producer("gpu", dtype="uint8", shape=(nbytes,), slots=8) as out:
            inp = pool.consumer("gpu")
            out.publish(values)
            frame = inp.poll(timeout=5.0)
            tensor = frame.torch(device="cuda")
            assert np.array_equal(tensor.cpu().numpy(), values), "the GPU has other values"
            registered = gigabytes_a_second(lambda: frame.torch(device="cuda"), nbytes)
            known = frame.registration.pools
    pageable_source = torch.from_numpy(values.copy())
    pinned_source = pageable_source.pin_memory()

    def to_gpu(source):
        moved = source.to("cuda", non_blocking=True)
        torch.cuda.current_stream().synchronize()
        return moved

    return {
        "bytes": nbytes,
        "pools known to CUDA": known,
        "frame GB/s": round(registered, 2),
        "pageable GB/s": round(gigabytes_a_second(lambda: to_gpu(pageable_source), nbytes), 2),
        "pinned GB/s": round(gigabytes_a_second(lambda: to_gpu(pinned_source), nbytes), 2),
    }


def main() -> None:
    for nbytes in SIZES:
        print(json.dumps(measure(nbytes)))


if __name__ == "__main__":
    main()
