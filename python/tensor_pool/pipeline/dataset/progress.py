"""How far somebody has read, to be saved and loaded in mid-epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from tensor_pool.errors import ConfigError

if TYPE_CHECKING:
    from tensor_pool.pipeline.dataset.order import Share

__all__ = ["Progress"]


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """Where one is in which order of which training set.

    Example:
        >>> state = Progress(table_version=3, samples=100, seed=7, mix=16, epoch=2, start=40).state()
        >>> Progress.of_state(state).start
        40
    """

    table_version: int
    samples: int
    """In the split."""
    seed: int | None
    mix: int | None
    epoch: int = 0
    start: int = 0
    """How many samples of the epoch's order all ranks together had seen when this share was dealt."""
    worker: int = 0
    workers: int | None = None
    """Of how many it is the state of one worker; None when it is that of a whole rank."""
    taken: int = 0
    """What that one worker has taken since."""

    def state(self) -> dict[str, Any]:
        """As plain values, for JSON or a checkpoint."""
        return msgspec.structs.asdict(self)

    @staticmethod
    def of_state(state: dict[str, Any]) -> Progress:
        """From plain values.

        Raises:
            ConfigError: They are no such state.
        """
        try:
            return msgspec.convert(state, Progress)
        except msgspec.ValidationError as e:
            raise ConfigError(
                f"this is no state of a training set: {e}", hint="one of state_dict()"
            ) from None

    def after(self, taken: int, share: Share) -> Progress:
        """The state after a whole rank has taken some samples more.

        Args:
            taken: How many, since the share was dealt.
            share: Of the rank.

        Raises:
            ConfigError: Ranks are inside of a batch, where no other number of them could go on.
        """
        if share.ranks > 1 and taken % share.batch_size:
            raise ConfigError(
                f"{taken} samples are no whole batches of {share.batch_size}",
                hint="with several ranks save the state between batches",
            )
        start = min(self.start + taken * share.ranks, self.samples)
        return msgspec.structs.replace(self, start=start, workers=None, worker=0, taken=0)

    def check_fits(self, loaded: Progress) -> None:
        """Refuses a state of something else.

        Raises:
            ConfigError: It belongs to another training set, version or order.
        """
        for name, hint in (
            ("table_version", "open the version of the state: version={}"),
            ("samples", "open the training set and split of the state, which had {} samples"),
            ("seed", "shuffle={}"),
            ("mix", "mix={}"),
        ):
            theirs = getattr(loaded, name)
            if theirs != getattr(self, name):
                raise ConfigError(
                    f"the state has {name}={theirs}, this training set {getattr(self, name)}",
                    hint=hint.format(theirs),
                )
