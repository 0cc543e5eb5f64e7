"""The order of samples: one for everybody, whoever reads it and wherever it was left."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasets import make_dataset
from tensor_pool.errors import ConfigError
from tensor_pool.pipeline.dataset.order import Share, epoch_order
from tensor_pool.pipeline.dataset.stream import SampleStream

FRAMES = 103


def loader(stream, workers):
    """What a ``DataLoader`` gives: a batch of each worker in turn; those that have no more are left out."""
    size = stream.share.batch_size
    copies = [pickle.loads(pickle.dumps(stream)) for _ in range(workers)]
    iterators = [copy.iterate(number, workers) for number, copy in enumerate(copies)]
    while iterators:
        for iterator in list(iterators):
            batch = list(itertools.islice(iterator, size))
            if not batch:
                iterators.remove(iterator)
            yield from (sample["seq"] for sample in batch)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("dataset")
    make_dataset(path, range(FRAMES), row_group_bytes=5 * 32)
    return path


def seqs(samples):
    return [sample["seq"] for sample in samples]


def test_without_a_seed_samples_come_as_they_were_written(path):
    assert seqs(SampleStream(path)) == list(range(FRAMES))


def test_a_seed_and_an_epoch_make_an_order(path):
    stream = SampleStream(path, shuffle=7)
    first = seqs(stream)
    assert seqs(stream) == first == seqs(SampleStream(path, shuffle=7))
    stream.set_epoch(1)
    second, other = seqs(stream), seqs(SampleStream(path, shuffle=8))
    assert sorted(first) == sorted(second) == sorted(other) == list(range(FRAMES))
    assert first != second != other != first


def test_the_order_of_a_seed_is_the_same_in_all_releases():
    """Whoever changes this breaks the states that people have saved."""
    assert epoch_order([4, 4], seed=7, epoch=3).tolist() == epoch_order([8], seed=7, epoch=3).tolist()
    assert epoch_order([8], seed=7, epoch=3).tolist() == [2, 5, 7, 3, 0, 6, 4, 1]
    assert epoch_order([2] * 4, seed=7, epoch=3, mix=2).tolist() == [4, 6, 7, 5, 2, 1, 0, 3]


def test_mixing_keeps_row_groups_together():
    order = epoch_order([5] * 40, seed=1, epoch=0, mix=4)
    windows = [set((order[first : first + 20] // 5).tolist()) for first in range(0, 200, 20)]
    assert all(len(window) == 4 for window in windows)
    assert sorted(order.tolist()) == list(range(200))
    assert order[:20].tolist() != sorted(order[:20].tolist())


@pytest.mark.parametrize("mix", [3, None])
@pytest.mark.parametrize("batch_size", [1, 4])
def test_any_number_of_workers_gives_the_same_order(path, batch_size, mix):
    stream = SampleStream(path, shuffle=7, batch_size=batch_size, mix=mix)
    whole = seqs(stream)
    for workers in (1, 2, 3, 7):
        assert list(loader(stream, workers)) == whole


@pytest.mark.parametrize("workers", [1, 3])
def test_ranks_take_turns_in_the_same_order(path, workers):
    whole = seqs(SampleStream(path, shuffle=7))
    ranks = [
        list(loader(SampleStream(path, shuffle=7, batch_size=4, rank=rank, ranks=3), workers))
        for rank in range(3)
    ]
    steps = itertools.zip_longest(*(cut(rank) for rank in ranks))
    assert [seq for step in steps for batch in step if batch for seq in batch] == whole


def cut(numbers):
    return [numbers[first : first + 4] for first in range(0, len(numbers), 4)]


def test_equal_shares_when_asked_for(path):
    streams = [SampleStream(path, batch_size=4, rank=rank, ranks=3, drop_last=True) for rank in range(3)]
    assert [len(seqs(stream)) for stream in streams] == [len(stream) for stream in streams] == [32] * 3
    assert [len(SampleStream(path, batch_size=4, rank=r, ranks=3)) for r in range(3)] == [36, 35, 32]


@given(
    total=st.integers(0, 200),
    batch_size=st.integers(1, 9),
    ranks=st.integers(1, 5),
    workers=st.integers(1, 5),
    start=st.integers(0, 200),
)
def test_shares_are_a_partition(total, batch_size, ranks, workers, start):
    order = epoch_order([total], seed=1, epoch=0)
    shares = [
        Share(batch_size=batch_size, rank=r, ranks=ranks, worker=w, workers=workers).of(order, start).tolist()
        for r in range(ranks)
        for w in range(workers)
    ]
    assert sorted(itertools.chain(*shares)) == sorted(order[start:].tolist())


@pytest.mark.parametrize("taken", [0, 1, 50, FRAMES])
def test_a_state_goes_on_in_mid_epoch(path, taken):
    stream = SampleStream(path, shuffle=7)
    stream.set_epoch(2)
    whole = seqs(stream)
    iterator = iter(stream)
    assert seqs(itertools.islice(iterator, taken)) == whole[:taken]
    state = stream.state_dict()
    assert state == stream.state_dict(taken=taken)
    other = SampleStream(path, shuffle=7, batch_size=3)
    other.load_state_dict(state)
    assert other.epoch == 2
    assert list(loader(other, 4)) == whole[taken:]
    assert seqs(other) == whole[taken:]
    assert seqs(other) == whole  # the next time from the beginning
    other.load_state_dict(state)
    other.set_epoch(3)
    assert len(seqs(other)) == FRAMES


def test_a_resumed_stream_can_be_saved_again(path):
    stream = SampleStream(path, shuffle=7)
    whole = seqs(stream)
    for _ in range(3):
        saved = SampleStream(path, shuffle=7)
        saved.load_state_dict(stream.state_dict(taken=20))
        stream = saved
    assert seqs(stream) == whole[60:]


def test_several_ranks_go_on_with_another_number_of_them(path):
    whole = seqs(SampleStream(path, shuffle=7))
    old = SampleStream(path, shuffle=7, batch_size=4, rank=1, ranks=2)
    state = old.state_dict(taken=5 * 4)  # all ranks have done five steps
    new = [SampleStream(path, shuffle=7, batch_size=2, rank=rank, ranks=3) for rank in range(3)]
    for stream in new:
        stream.load_state_dict(state)
    assert sorted(seq for stream in new for seq in seqs(stream)) == sorted(whole[40:])
    with pytest.raises(ConfigError, match="between batches"):
        old.state_dict(taken=5)


def test_workers_can_be_saved_one_by_one(path):
    """As torchdata's loader does: each worker has a state of its own."""
    stream = SampleStream(path, shuffle=7, batch_size=4)
    expected = [seqs(pickle.loads(pickle.dumps(stream)).iterate(number, 2)) for number in range(2)]
    for number in range(2):
        worker = SampleStream(path, shuffle=7, batch_size=4)
        seqs(itertools.islice(worker.iterate(number, 2), 11))
        again = SampleStream(path, shuffle=7, batch_size=4)
        again.load_state_dict(worker.state_dict())
        assert seqs(again.iterate(number, 2)) == expected[number][11:]
        again.load_state_dict(worker.state_dict())
        with pytest.raises(ConfigError, match=r"is not for 0 of 3"):
            again.iterate(0, 3)


def test_states_of_something_else_are_refused(path, tmp_path):
    stream = SampleStream(path, shuffle=7)
    with pytest.raises(ConfigError, match="nothing was read in this process"):
        stream.state_dict()
    state = stream.state_dict(taken=3)
    for change in ({"seed": 8}, {"mix": 3}, {"samples": 5}, {"table_version": 9}):
        with pytest.raises(ConfigError, match=f"the state has {next(iter(change))}="):
            stream.load_state_dict(state | change)
    with pytest.raises(ConfigError, match="no state of a training set"):
        stream.load_state_dict({"step": 3})


def test_a_training_set_that_has_grown_can_be_opened_as_it_was(tmp_path):
    make_dataset(tmp_path, range(10))
    state = SampleStream(tmp_path, shuffle=1).state_dict(taken=4)
    make_dataset(tmp_path, range(10, 20))
    with pytest.raises(ConfigError, match="version=1"):
        SampleStream(tmp_path, shuffle=1).load_state_dict(state)
    stream = SampleStream(tmp_path, shuffle=1, version=1)
    stream.load_state_dict(state)
    assert len(seqs(stream)) == 6


@pytest.mark.parametrize(
    "options",
    [{"shuffle": -1}, {"mix": 0, "shuffle": 1}, {"batch_size": 0}, {"rank": 2, "ranks": 2}],
    ids=str,
)
def test_nonsense_is_refused(path, options):
    with pytest.raises(ConfigError):
        SampleStream(path, **options)


def test_an_empty_split_has_no_samples(tmp_path):
    from tensor_pool.pipeline.dataset.splits import hash_splits

    make_dataset(tmp_path, range(5), splits=hash_splits({"train": 1.0, "val": 0.0}))
    assert seqs(SampleStream(tmp_path, split="val", shuffle=1)) == []
    assert len(SampleStream(tmp_path, split="val")) == 0
    assert np.array_equal(epoch_order([], seed=1, epoch=0, mix=4), [])
