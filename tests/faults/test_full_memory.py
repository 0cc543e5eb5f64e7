"""Shared memory that is full, as users meet it; reliability 10."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pool_hosts import quick_host
from tensor_pool.errors import AttachRefusedError
from tensor_pool.testing import wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """Four MiB of shared memory."""
    directory = tmp_path / "small"
    directory.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m,mode=700", "none", str(directory)]
    mounted = subprocess.run(command, check=False, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"can't mount: {mounted.stderr}")
    try:
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


def test_is_refused_when_a_stream_is_made_and_never_later(small: Path) -> None:
    """Who has its memory keeps it, whatever fills the rest; there is no SIGBUS, and room is used again."""
    with quick_host(shm__shm_base_dir=str(small)) as host, host.connect() as pool:
        with pytest.raises(AttachRefusedError, match="no room"):
            pool.producer("large", max_bytes=1 << 20, slots=64)
        out = pool.producer("fits", max_bytes=1 << 14, slots=16)
        inp = pool.consumer("fits", wait_s=5)
        with pytest.raises(OSError, match="No space left"):
            (small / "filler").write_bytes(bytes(8 << 20))
        for value in range(64):
            out.publish(np.full(1 << 14, value, "uint8"))
            with inp.poll(timeout=5) as values:
                assert int(values[-1]) == value
        with pytest.raises(AttachRefusedError):
            pool.producer("no more", max_bytes=1 << 14, slots=16)
        assert sorted(path.name for path in small.glob("tensorpool-*/default/*/*")) == [str(out.epoch)]
        (small / "filler").unlink()
        again = wait_until(lambda: pool.producer("no more", max_bytes=1 << 14, slots=16))
        assert again.publish(np.zeros(4, "uint8")) == 0
