"""Training sets for PyTorch. Needs the extras ``dataset`` and ``torch``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensor_pool.pipeline.dataset.stream import SampleStream

try:
    import torch
    import torch.distributed
    from torch.utils.data import IterableDataset, get_worker_info
except ImportError:  # said when one is made, so that tools can look at this module
    torch = None
    IterableDataset = object

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

    from tensor_pool.pipeline.dataset.samples import Sample

__all__ = ["TensorDataset"]


class TensorDataset(IterableDataset):  # type: ignore[misc, unused-ignore] # it is typed where it is there
    """A split for a ``DataLoader``: the same samples in the same order for any number of its workers.

    Args:
        path: The training set.
        transform: Makes of an array and the columns of its row what is handed out. Without one that is a
            dictionary: the values as ``tensor``, ``stream_name``, ``epoch``, ``seq`` and `columns`.
        rank: Of this process; by default what ``torch.distributed`` says, if it runs.
        ranks: How many there are.
        options: Those of `SampleStream`: ``split``, ``shuffle`` and others. ``batch_size`` has to be that of
            the ``DataLoader``, and 1 where that has none.

    Raises:
        ImportError: PyTorch is not installed.
        RegionError: There is no training set.
        ConfigError: It has no such split or column, or a number makes no sense.

    Example:
        >>> train = TensorDataset("dataset", split="train", shuffle=7, batch_size=32)  # doctest: +SKIP
        >>> loader = torch.utils.data.DataLoader(train, batch_size=32, num_workers=4)  # doctest: +SKIP
        >>> for epoch in range(10):  # doctest: +SKIP
        ...     train.set_epoch(epoch)
        ...     for step, batch in enumerate(loader):
        ...         learn(batch["tensor"])
        ...     save(train.state_dict(taken=32 * (step + 1)))
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        transform: Callable[..., Any] | None = None,
        rank: int | None = None,
        ranks: int | None = None,
        **options: Any,
    ) -> None:
        if torch is None:
            raise ImportError("TensorDataset needs PyTorch: pip install 'shm-tensor-pool[dataset,torch]'")
        super().__init__()
        if rank is None and ranks is None and _is_distributed():
            rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
        self._stream = SampleStream(path, rank=rank or 0, ranks=ranks or 1, **options)
        # Shared with the workers, also with those that outlive an epoch.
        self._stream._clock = torch.zeros(2, dtype=torch.int64).share_memory_()  # noqa: SLF001
        self._columns = ("stream_name", "epoch", "seq", *options.get("columns", ()))
        self._transform = transform

    def __len__(self) -> int:
        """How many samples an epoch has for this rank."""
        return len(self._stream)

    @property
    def epoch(self) -> int:
        """Which epoch comes next, or runs."""
        return self._stream.epoch

    def set_epoch(self, epoch: int) -> None:
        """Begins another epoch; call it before each, as each has its own order."""
        self._stream.set_epoch(epoch)

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        if worker is None:
            return map(self._as_item, self._stream.iterate())
        return map(self._as_item, self._stream.iterate(worker.id, worker.num_workers))

    def state_dict(self, *, taken: int | None = None) -> dict[str, Any]:
        """How far this rank has come; see `SampleStream.state_dict`."""
        return self._stream.state_dict(taken=taken)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where a state was saved; see `SampleStream.load_state_dict`."""
        self._stream.load_state_dict(state)

    def _as_item(self, sample: Sample) -> Any:
        if self._transform is not None:
            return self._transform(sample.array, sample)
        values = torch.from_numpy(sample.array.copy())  # tensors can be written to, and this array can't
        return {"tensor": values} | {name: sample[name] for name in self._columns}


def _is_distributed() -> bool:
    return bool(torch.distributed.is_available()) and bool(torch.distributed.is_initialized())
