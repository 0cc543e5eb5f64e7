"""Frames as PyTorch tensors; the parts that need a GPU run where there is one."""

from __future__ import annotations

import numpy as np
import pytest

import tensor_pool as tp
from tensor_pool.testing import wait_until


def test_without_pytorch_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with (
        tp.connect(embedded=True) as pool,
        pool.producer("a", dtype="uint8", shape=(4,), slots=8) as out,
    ):
        out.publish(np.zeros(4, "uint8"))
        with pytest.raises(ImportError, match="pip install torch"):
            pool.consumer("a").poll(timeout=5.0).torch()


def test_an_unmarked_array_is_the_same_memory_and_keeps_it_mapped():
    with tp.connect(embedded=True) as pool:
        out = pool.producer("a", dtype="int32", shape=(2, 3, 4), slots=8)
        out.publish(np.arange(24, dtype="int32").reshape(2, 3, 4))
        frame = pool.consumer("a").poll(timeout=5.0)
        view, values = frame.unmarked_array, frame.array
        assert (view.flags.writeable, values.flags.writeable) == (True, False)
        assert np.shares_memory(view, values)
        assert (view.dtype, view.strides) == (values.dtype, values.strides)
        del frame, values
    assert view.tolist() == np.arange(24).reshape(2, 3, 4).tolist()


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


@pytest.fixture
def frames(torch):
    with tp.connect(embedded=True) as pool:
        out = pool.producer("t", dtype="float32", shape=(64, 64), slots=8)
        yield out, pool.consumer("t")


VALUES = np.arange(4096, dtype="float32").reshape(64, 64)


def test_a_clone_outlives_the_frame(frames, torch):
    out, inp = frames
    out.publish(VALUES)
    tensor = inp.poll(timeout=5.0).torch()
    for _ in range(8):
        out.publish(np.zeros((64, 64), "float32"))
    assert np.array_equal(tensor.numpy(), VALUES)
    assert inp.stats.validated == 1


def test_a_view_shows_shared_memory(frames, torch):
    out, inp = frames
    out.publish(VALUES)
    frame = inp.poll(timeout=5.0)
    assert frame.torch(copy=False).data_ptr() == frame.array.ctypes.data
    assert frame.still_valid()


def test_a_device_that_is_not_there_is_named(frames, torch):
    if torch.cuda.is_available():
        pytest.skip("there is one")
    out, inp = frames
    out.publish(VALUES)
    with pytest.raises(RuntimeError, match="needs a CUDA device"):
        inp.poll(timeout=5.0).torch(device="cuda")


def test_a_copy_on_the_gpu_is_right_and_checked(frames, torch):
    if not torch.cuda.is_available():
        pytest.skip("no GPU here")
    out, inp = frames
    out.publish(VALUES)
    frame = inp.poll(timeout=5.0)
    assert np.array_equal(frame.torch(device="cuda").cpu().numpy(), VALUES)
    assert frame.registration.pools == 1
    for _ in range(8):
        out.publish(np.zeros((64, 64), "float32"))
    with pytest.raises(tp.FrameOverwrittenError):
        frame.torch(device="cuda")
    out.close()  # the ring is unmapped, and forgotten by CUDA before
    wait_until(lambda: inp.session.inlet.registration is None)
