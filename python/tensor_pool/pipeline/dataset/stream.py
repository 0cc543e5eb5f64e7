"""A split as a stream of samples, epoch after epoch, that can be left and taken up again anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from tensor_pool.errors import ConfigError
from tensor_pool.pipeline.dataset.order import Share, epoch_order
from tensor_pool.pipeline.dataset.progress import Progress
from tensor_pool.pipeline.dataset.samples import Samples

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, MutableSequence, Sequence

    from tensor_pool.pipeline.dataset.samples import Sample

__all__ = ["SampleStream"]


class SampleStream:
    """The samples of one rank, in an order that depends on seed and epoch alone; see `order`.

    Args:
        path: The training set.
        split: Its name; None for all splits.
        shuffle: A seed, or None for the order in which samples were written.
        mix: So many row groups are shuffled together; None shuffles all samples with each other.
        batch_size: That of whoever takes samples from several workers in turn.
        rank: Of this process, from 0 on.
        ranks: How many processes share the training set.
        drop_last: Leave out what would give ranks different numbers of batches, or an incomplete one.
        columns: More columns of each sample.
        version: Of the Delta table; by default the newest.
        options: Others of `Samples`.

    Raises:
        RegionError: There is no training set.
        ConfigError: It has no such split or column, or a number makes no sense.

    Example:
        >>> stream = SampleStream("dataset", split="train", shuffle=7)  # doctest: +SKIP
        >>> for sample in stream:  # doctest: +SKIP
        ...     train(sample.array, sample["seq"])
        ...     state = stream.state_dict()
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        split: str | None = None,
        shuffle: int | None = None,
        mix: int | None = 16,
        batch_size: int = 1,
        rank: int = 0,
        ranks: int = 1,
        drop_last: bool = False,
        columns: Sequence[str] = (),
        version: int | None = None,
        **options: Any,
    ) -> None:
        self.share = Share(batch_size=batch_size, rank=rank, ranks=ranks, drop_last=drop_last)
        self.samples = Samples(path, split=split, columns=columns, version=version, **options)
        self._seed = shuffle
        self._mix = mix
        self._clock: MutableSequence[int] = [0, 0]
        """The epoch, and how many samples of it all ranks together had seen before; may be shared memory."""
        self._worker_state: Progress | None = None
        self._dealt: tuple[Progress, Share] | None = None
        """From where the last iteration of this process went, and whose it was."""
        self._taken = 0
        epoch_order([1], seed=shuffle, epoch=0, mix=mix)  # says what is wrong with them now

    def __len__(self) -> int:
        """How many samples an epoch has for this rank."""
        return len(self.share.of(epoch_order([len(self.samples)], seed=None, epoch=0)))

    @property
    def epoch(self) -> int:
        """Which epoch comes next, or runs."""
        return int(self._clock[0])

    def set_epoch(self, epoch: int) -> None:
        """Begins another epoch with the next iteration; each has its own order."""
        if epoch != self.epoch:
            self._begin(epoch, 0)

    def _begin(self, epoch: int, start: int, worker_state: Progress | None = None) -> None:
        self._clock[0], self._clock[1] = epoch, start
        self._worker_state = worker_state
        if self._dealt is not None:  # samples are read in this process, so it knows how many were
            self._dealt, self._taken = (self._progress(), self.share), 0

    def __iter__(self) -> Iterator[Sample]:
        return self.iterate()

    def iterate(self, worker: int = 0, workers: int | None = None) -> Iterator[Sample]:
        """The samples of this rank, or of one of its workers, from where the state says on.

        Args:
            worker: Which one.
            workers: Of how many; None when the whole rank reads in this process.

        Raises:
            ConfigError: The state that was loaded is that of another worker.
        """
        loaded, self._worker_state = self._worker_state, None
        if loaded is not None and (loaded.worker, loaded.workers) != (worker, workers):
            raise ConfigError(
                f"a state of worker {loaded.worker} of {loaded.workers} is not for {worker} of {workers}",
                hint="use as many workers, or save state_dict(taken=n), which fits any number of them",
            )
        share = msgspec.structs.replace(self.share, worker=worker, workers=workers or 1)
        progress = self._progress()
        if workers is not None:
            progress = msgspec.structs.replace(progress, worker=worker, workers=workers)
        self._dealt, self._taken = (progress, share), 0 if loaded is None else loaded.taken
        order = epoch_order(self.samples.row_groups, seed=self._seed, epoch=progress.epoch, mix=self._mix)
        return self._walk(share.of(order, progress.start).tolist()[self._taken :], self._dealt)

    def _walk(self, numbers: list[int], dealt: tuple[Progress, Share]) -> Iterator[Sample]:
        for number in numbers:
            sample = self.samples[number]
            self._taken += dealt is self._dealt
            yield sample
        if dealt is self._dealt and dealt[0].workers is None:
            self._clock[1] = 0  # whoever begins this epoch again begins at its beginning

    def state_dict(self, *, taken: int | None = None) -> dict[str, Any]:
        """How far this rank has come, as plain values.

        Args:
            taken: How many samples of this epoch the rank has taken since the iteration began. Has to be
                given when other processes read for this one, since only the taker knows.

        Raises:
            ConfigError: It is not known how many were taken.
        """
        if self._dealt is None:
            if taken is None:
                raise ConfigError(
                    "nothing was read in this process",
                    hint="state_dict(taken=n) says how many samples the DataLoader gave; 0 for none",
                )
            return self._progress().after(taken, self.share).state()
        progress, share = self._dealt
        if progress.workers is not None and taken is None:
            return msgspec.structs.replace(progress, taken=self._taken).state()
        return progress.after(self._taken if taken is None else taken, share).state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where a state was saved, with the next iteration.

        Args:
            state: Of `state_dict`; also with other numbers of ranks, workers or another batch size.

        Raises:
            ConfigError: It belongs to another training set, version or order.
        """
        loaded = Progress.of_state(state)
        self._progress().check_fits(loaded)
        self._begin(loaded.epoch, loaded.start, loaded if loaded.workers is not None else None)

    def _progress(self) -> Progress:
        return Progress(
            table_version=self.samples.manifest.table_version,
            samples=len(self.samples),
            seed=self._seed,
            mix=self._mix,
            epoch=self.epoch,
            start=int(self._clock[1]),
        )
