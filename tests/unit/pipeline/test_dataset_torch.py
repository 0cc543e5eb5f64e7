"""The same order through PyTorch's own loader; only where PyTorch is installed."""

from __future__ import annotations

import pytest

from datasets import make_dataset

torch = pytest.importorskip("torch")

from tensor_pool.pipeline.dataset.torch import TensorDataset  # noqa: E402

# Its opinion of machines with two cores.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


@pytest.fixture
def path(tmp_path):
    make_dataset(tmp_path, range(50), row_group_bytes=5 * 32)
    return tmp_path


def batches(dataset, **options):
    loader = torch.utils.data.DataLoader(dataset, batch_size=4, **options)
    return [batch["seq"].tolist() for batch in loader]


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_any_number_of_workers_gives_the_same_batches(path, start):
    dataset = TensorDataset(path, shuffle=7, batch_size=4)
    expected = batches(dataset)
    assert sorted(seq for batch in expected for seq in batch) == list(range(50))
    for workers in (1, 2, 3):
        assert batches(dataset, num_workers=workers, multiprocessing_context=start) == expected
    state = dataset.state_dict(taken=20)
    other = TensorDataset(path, shuffle=7, batch_size=4)
    other.load_state_dict(state)
    assert batches(other, num_workers=2, multiprocessing_context=start) == expected[5:]


def test_workers_that_stay_follow_the_epochs(path):
    dataset = TensorDataset(path, shuffle=7, batch_size=4)
    loader = torch.utils.data.DataLoader(dataset, batch_size=4, num_workers=2, persistent_workers=True)
    for epoch in range(3):
        dataset.set_epoch(epoch)
        expected = TensorDataset(path, shuffle=7, batch_size=4)
        expected.set_epoch(epoch)
        assert [batch["seq"].tolist() for batch in loader] == batches(expected)


def test_tensors_and_transforms(path):
    (first, *_) = TensorDataset(path)
    assert (first["tensor"].dtype, first["tensor"].tolist()) == (torch.uint16, [[0] * 4] * 4)
    assert first["stream_name"] == "camera-1"
    pairs = TensorDataset(path, transform=lambda array, row: (float(array.mean()), row["seq"]))
    assert list(pairs)[49] == (49.0, 49)
