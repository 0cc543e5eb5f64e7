"""The order in which an epoch shows samples, and who gets which of them.

The order of an epoch is one permutation of all samples of a split, made of nothing but the seed, the number
of the epoch and the sizes of the row groups. It is cut into blocks of as many samples as a batch has. Block
*b* goes to rank *b* mod *ranks*; of the blocks of a rank, the *k*-th goes to worker *k* mod *workers*. A
``DataLoader`` takes a batch from each of its workers in turn, so a rank sees its blocks in their order
however many workers it has; and step *s* of all ranks together shows the samples from *s* x ranks x batch
on, however many ranks there are.

What was seen is therefore one number: how many samples of the order are behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from tensor_pool.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["Share", "epoch_order"]

_MOST_KEY: Final = 1 << 64


def epoch_order(
    row_groups: Sequence[int], *, seed: int | None, epoch: int, mix: int | None = None
) -> NDArray[np.int64]:
    """The numbers of all samples, in the order of an epoch.

    Args:
        row_groups: How many samples each row group has.
        seed: Of the shuffling; None for the order in which they were written.
        epoch: Each has another order.
        mix: So many row groups, taken from anywhere, are shuffled together, and the next so many after them:
            reading stays sequential within a row group. None shuffles all samples with each other.

    Raises:
        ConfigError: `mix` or `seed` make no sense.

    Example:
        >>> epoch_order([2, 2], seed=None, epoch=0).tolist()
        [0, 1, 2, 3]
        >>> sorted(epoch_order([3, 3, 3], seed=7, epoch=1, mix=2).tolist())
        [0, 1, 2, 3, 4, 5, 6, 7, 8]
    """
    sizes = np.asarray(row_groups, np.int64)
    total = int(sizes.sum())
    if seed is None:
        return np.arange(total, dtype=np.int64)
    if not 0 <= seed < _MOST_KEY or not 0 <= epoch < _MOST_KEY:
        raise ConfigError(f"seed={seed}, epoch={epoch}", hint="numbers from 0 on, of 64 bits")
    if mix is None:
        return _shuffled(np.arange(total, dtype=np.int64), seed, epoch, 0)
    if mix < 1:
        raise ConfigError(f"mix={mix}", hint="a number of row groups, or None for all")
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1])) if len(sizes) else sizes
    groups = _shuffled(np.arange(len(sizes), dtype=np.int64), seed, epoch, 0)
    mixed = [
        _shuffled(
            np.concatenate([np.arange(starts[g], starts[g] + sizes[g]) for g in groups[first : first + mix]]),
            seed,
            epoch,
            1 + first // mix,
        )
        for first in range(0, len(groups), mix)
    ]
    return np.concatenate(mixed) if mixed else np.arange(0, dtype=np.int64)


def _shuffled(numbers: NDArray[np.int64], seed: int, epoch: int, part: int) -> NDArray[np.int64]:
    """Sorted by random keys: NumPy promises these bits for all of its releases, but no permutation."""
    bits = np.random.Philox(key=np.array([seed, epoch], np.uint64), counter=[0, 0, 0, part])
    return numbers[np.argsort(bits.random_raw(len(numbers)), kind="stable")]


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """Whose samples are meant.

    Example:
        >>> order = epoch_order([10], seed=None, epoch=0)
        >>> Share(batch_size=2, worker=1, workers=2).of(order).tolist()
        [2, 3, 6, 7]
        >>> Share(batch_size=2, rank=1, ranks=2).of(order, start=4).tolist()
        [6, 7]
    """

    batch_size: int = 1
    """Samples that go to the same worker: the batch size of the ``DataLoader``."""
    rank: int = 0
    ranks: int = 1
    worker: int = 0
    workers: int = 1
    drop_last: bool = False
    """Leave out what would give ranks different numbers of batches, or an incomplete one."""

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ConfigError(f"batch_size={self.batch_size}", hint="a number above 0")
        for number, count in (("rank", "ranks"), ("worker", "workers")):
            if not 0 <= getattr(self, number) < getattr(self, count):
                raise ConfigError(
                    f"{number}={getattr(self, number)} of {count}={getattr(self, count)}",
                    hint=f"{number} counts from 0 and is below {count}",
                )

    def of(self, order: NDArray[np.int64], start: int = 0) -> NDArray[np.int64]:
        """The samples of this share.

        Args:
            order: Of the epoch.
            start: How many of it all ranks together have seen.
        """
        rest, size = order[start:], self.batch_size
        blocks = len(rest) // size // self.ranks * self.ranks if self.drop_last else -(-len(rest) // size)
        mine = np.arange(self.rank, blocks, self.ranks, dtype=np.int64)[self.worker :: self.workers]
        places = (mine[:, None] * size + np.arange(size, dtype=np.int64)).ravel()
        taken: NDArray[np.int64] = rest[places[places < len(rest)]]
        return taken
