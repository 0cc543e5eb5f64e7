"""How fast frames reach a GPU: from a registered mapping, from ordinary memory, from pinned memory.

Needs PyTorch with CUDA; run it by hand: ``python bench/gpu_copies.py``.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import numpy as np
import torch

import tensor_pool as tp

if TYPE_CHECKING:
    from collections.abc import Callable

SIZES = (1 << 20, 8 << 20, 64 << 20)


def gigabytes_a_second(copy: Callable[[], object], nbytes: int, *, seconds: float = 1.0) -> float:
    """How fast `copy` moves `nbytes`, repeated for a while."""
    copy()
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        copy()
        count += 1
    return count * nbytes / (time.perf_counter() - start) / 1e9


def measure(nbytes: int) -> dict[str, float]:
    """One size, three ways; the values on the GPU are compared first."""
    values = np.random.default_rng(1).integers(0, 255, nbytes, dtype="uint8")
    with tp.connect(embedded=True) as pool:
        pool.producer("gpu", dtype="uint8", shape=(nbytes,), slots=8).publish(values)
        frame = pool.consumer("gpu").poll(timeout=5.0)
        tensor = frame.torch(device="cuda")
        assert np.array_equal(tensor.cpu().numpy(), values), "the GPU has other values"
        registered = gigabytes_a_second(lambda: frame.torch(device="cuda"), nbytes)
        known = frame.registration.pools
    pageable_source = torch.from_numpy(values.copy())
    pinned_source = pageable_source.pin_memory()

    def to_gpu(source: torch.Tensor) -> torch.Tensor:
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
    """All sizes, a line of JSON each."""
    for nbytes in SIZES:
        print(json.dumps(measure(nbytes)))


if __name__ == "__main__":
    main()
