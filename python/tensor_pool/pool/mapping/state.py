"""Which ring of a stream is mapped: when to open one, and when to let it go."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from tensor_pool.errors import RegionError
from tensor_pool.pool.mapping.actions import (
    Follow,
    Ignore,
    IgnoreReason,
    Map,
    MappingAction,
    MappingPhase,
    Refresh,
    Remap,
    Unmap,
)
from tensor_pool.pool.mapping.announced import ring_address, untimely
from tensor_pool.wire.messages import ClockDomain

if TYPE_CHECKING:
    from tensor_pool import _native
    from tensor_pool.wire.messages import ShmPoolAnnounce

__all__ = ["MappingState"]

_NO_EPOCH: Final = 2**64 - 1
_RETRY_NS: Final = 1_000_000_000
"""A ring that was refused is not opened again sooner, however often it is announced."""
_MAX_REJECTED: Final = 16
"""Refused announces that are remembered: bounded, whoever sends how many different ones."""


class MappingState:
    """Which ring of a stream is mapped, and what announces and descriptors change about it.

    It decides; whoever asks opens and closes rings and reports how that went. Announces are soft state: they
    count for `freshness_ns`, the highest epoch that could be mapped wins, and nothing that was refused
    changes what is in use.

    Args:
        stream_id: The stream that is followed; announces of others are ignored (decision L4).
        freshness_ns: How old an announce may be, and how long a mapping lives without a new one.
        pid_change_unmaps: Give an epoch up when the process id in its superblock changes (decision L10).

    Example:
        >>> from tensor_pool.wire.messages import ClockDomain, PayloadPool, ShmPoolAnnounce
        >>> announce = ShmPoolAnnounce(
        ...     stream_id=10000, producer_id=7, epoch=5, announce_timestamp_ns=1_000,
        ...     announce_clock_domain=ClockDomain.MONOTONIC, layout_version=1, header_nslots=8,
        ...     header_slot_bytes=256, header_region_uri="shm:file?path=/dev/shm/header.ring",
        ...     payload_pools=(PayloadPool(1, 8, 4096, "shm:file?path=/dev/shm/1.pool"),))
        >>> mapping = MappingState(10000, freshness_ns=3_000_000_000)
        >>> mapping.on_announce(announce, received_ns=1_010, join_time_ns=900, realtime_ns=0)
        Map(address=RingAddress(stream 10000, epoch 5, 8 slots of 4096 bytes))
        >>> mapping.on_mapped(epoch=5, pid=4711)
        >>> mapping.on_announce(announce, received_ns=1_020, join_time_ns=900, realtime_ns=0)
        Refresh()
        >>> mapping.expired(3_000_002_000)
        Unmap(reason='no announce for 3.0 s')
    """

    def __init__(self, stream_id: int, *, freshness_ns: int, pid_change_unmaps: bool = True) -> None:
        self.stream_id = stream_id
        self.freshness_ns = freshness_ns
        self.ignored: dict[IgnoreReason, int] = {}
        """How often nothing was done, by reason."""
        self.failure: Exception | None = None
        """Why the last ring could not be mapped; None after one could [WIRE-15.22-18]."""
        self.remaps = 0
        """How often a ring was mapped after the first."""
        self._pid_change_unmaps = pid_change_unmaps
        self._phase = MappingPhase.UNMAPPED
        self._shm_allowed = True
        self._fallback_uri = ""
        self._mapped: _native.RingAddress | None = None
        self._pid: int | None = None
        self._highest_epoch: int | None = None
        self._spent_epoch: int | None = None
        self._fresh_ns = 0
        self._announced_ns = 0
        self._producer_id = 0
        self._attempt: _Attempt | None = None
        self._rejected: OrderedDict[ShmPoolAnnounce, int] = OrderedDict()

    @property
    def state(self) -> MappingPhase:
        """Where data comes from."""
        return self._phase

    @property
    def epoch(self) -> int | None:
        """The mapped epoch, or None."""
        return None if self._mapped is None else self._mapped.epoch

    @property
    def highest_epoch(self) -> int | None:
        """The highest epoch that was ever mapped; lower ones stay ignored [WIRE-10.1.1-7]."""
        return self._highest_epoch

    @property
    def shm_allowed(self) -> bool:
        """Whether shared memory may be used at all."""
        return self._shm_allowed

    @property
    def fallback_uri(self) -> str:
        """Where data comes from in `MappingPhase.FALLBACK`; empty for nowhere."""
        return self._fallback_uri

    @property
    def uses_fallback(self) -> bool:
        """Whether frames come from where the fallback URI says."""
        return self._phase is MappingPhase.FALLBACK and bool(self._fallback_uri)

    # --- announces ----------------------------------------------------------------------------------

    def on_announce(
        self,
        announce: ShmPoolAnnounce,
        *,
        received_ns: int,
        join_time_ns: int,
        realtime_ns: int,
        bridged: bool = False,
    ) -> MappingAction:
        """What an announce asks for.

        Args:
            announce: The announce.
            received_ns: Monotonic time at which it was received.
            join_time_ns: Monotonic time at which its image became available [WIRE-10.1.1-11].
            realtime_ns: Real time at which it was received.
            bridged: It crossed a bridge, so its time stamp is of another host: only the receipt counts
                (decision L6).
        """
        refusal = self._refusal(announce, received_ns, join_time_ns, realtime_ns, bridged=bridged)
        if refusal is not None:
            return self._ignore(refusal)
        if not self._shm_allowed:
            # What lies behind the announce is never opened: its epoch and the sizes of its slots are enough.
            return Follow() if self._fallback_uri else self._ignore(IgnoreReason.SHM_NOT_ALLOWED)
        try:
            address = ring_address(announce)
        except RegionError as error:
            self.failure = error
            return self._ignore(IgnoreReason.BAD_LAYOUT)
        if self._mapped == address:
            # Same epoch, same regions: nothing may be reset (decision L5, pitfall 5).
            self._fresh_ns = received_ns
            self._producer_id = announce.producer_id or self._producer_id
            return Refresh()
        content = _without_time(announce)
        tried_ns = self._rejected.get(content)
        if tried_ns is not None and received_ns - tried_ns < _RETRY_NS:
            return self._ignore(IgnoreReason.REJECTED_BEFORE)
        # When it was sent, told in local monotonic time whatever clock it was stamped with.
        clock_ns = received_ns if announce.announce_clock_domain == ClockDomain.MONOTONIC else realtime_ns
        age_ns = 0 if bridged else clock_ns - announce.announce_timestamp_ns
        self._attempt = _Attempt(address, content, received_ns, received_ns - age_ns)
        return Map(address) if self._mapped is None else Remap(address)

    def _refusal(
        self,
        announce: ShmPoolAnnounce,
        received_ns: int,
        join_time_ns: int,
        realtime_ns: int,
        *,
        bridged: bool,
    ) -> IgnoreReason | None:
        """Why an announce is not even looked at, the cheapest checks first."""
        if announce.stream_id != self.stream_id:
            return IgnoreReason.OTHER_STREAM
        if not bridged:
            reason = untimely(
                announce,
                received_ns=received_ns,
                join_time_ns=join_time_ns,
                realtime_ns=realtime_ns,
                freshness_ns=self.freshness_ns,
            )
            if reason is not None:
                return reason
        return self._unwanted_epoch(announce.epoch)

    def _unwanted_epoch(self, epoch: int) -> IgnoreReason | None:
        if epoch >= _NO_EPOCH:
            return IgnoreReason.NO_EPOCH
        if self._highest_epoch is not None and epoch < self._highest_epoch:
            return IgnoreReason.LOWER_EPOCH
        if self._spent_epoch is not None and epoch <= self._spent_epoch:
            return IgnoreReason.SPENT_EPOCH
        return None

    def on_stranger(self) -> Ignore:
        """Counts an announce of somebody whose word does not count."""
        return self._ignore(IgnoreReason.OTHER_DRIVER)

    def _ignore(self, reason: IgnoreReason) -> Ignore:
        self.ignored[reason] = self.ignored.get(reason, 0) + 1
        return Ignore(reason)

    # --- what became of a decision ------------------------------------------------------------------

    def on_mapped(self, epoch: int, pid: int) -> None:
        """The ring of the last `Map` or `Remap` is open.

        Args:
            epoch: Its epoch.
            pid: The process id in its superblock.

        Raises:
            ValueError: No such ring was asked for.
        """
        attempt = self._attempt
        if attempt is None or attempt.address.epoch != epoch:
            raise ValueError(f"epoch {epoch} was not asked for")
        self.remaps += self._highest_epoch is not None
        self._attempt = None
        self._mapped = attempt.address
        self._pid = pid
        self._highest_epoch = epoch
        self._fresh_ns = attempt.received_ns
        self._announced_ns = attempt.sent_ns
        self._producer_id = attempt.content.producer_id
        self._phase = MappingPhase.MAPPED
        self.failure = None
        self._rejected.clear()

    def on_map_failed(self, error: Exception) -> None:
        """The ring of the last `Map` or `Remap` was refused; what was mapped before stays as it is.

        Such a mapping still ends with its freshness window, since a refused announce renews nothing.
        """
        self.failure = error
        self._ignore(IgnoreReason.REFUSED_REGION)
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            self._rejected[attempt.content] = attempt.received_ns
            self._rejected.move_to_end(attempt.content)
            if len(self._rejected) > _MAX_REJECTED:
                self._rejected.popitem(last=False)
        if self._mapped is None and self._fallback_uri:
            self._phase = MappingPhase.FALLBACK  # [WIRE-15.12-3, WIRE-15.22-17]

    def is_live(self, activity_timestamp_ns: int, now_ns: int) -> bool:
        """Whether a superblock's activity is fresh; ask before a ring that was opened is used.

        One that is not counts as a failed mapping: its announce must not be acted on [WIRE-15.1-11].
        """
        return now_ns - activity_timestamp_ns <= self.freshness_ns

    def on_superblock(self, pid: int, activity_timestamp_ns: int, now_ns: int) -> MappingAction:
        """What the superblock of the mapped ring says, as `RingReader.liveness` reads it."""
        if self._mapped is None or self._pid is None:
            return self._ignore(IgnoreReason.NOTHING_MAPPED)
        if pid != self._pid and self._pid_change_unmaps:
            reason = f"the superblock's process changed from {self._pid} to {pid}"
            return self.on_lost(reason, spend_epoch=True)
        if not self.is_live(activity_timestamp_ns, now_ns):
            return self.on_lost(f"no activity for {(now_ns - activity_timestamp_ns) / 1e9:.1f} s")
        return Refresh()

    def on_lost(self, reason: str, *, spend_epoch: bool = False) -> Unmap:
        """The mapping can't be used any more: a check failed, a lease was revoked, files are gone.

        Args:
            reason: For the log.
            spend_epoch: Never map this epoch again; only a later one [WIRE-15.14-4].
        """
        if spend_epoch and self._mapped is not None:
            self._spent_epoch = self._mapped.epoch
        self._mapped = None
        self._pid = None
        self._phase = MappingPhase.UNMAPPED if self._shm_allowed else MappingPhase.FALLBACK
        return Unmap(reason)

    def on_producer_revoked(self, client_id: int, revoked_ns: int) -> Unmap | None:
        """The stream's producer lost its lease: only a later epoch may be mapped [DRV-4.9-9].

        The notice and the announce of the next epoch travel on different streams. A notice older than what is
        mapped came late or from a lingering log, and changes nothing (decision L11). Nor does one for another
        producer than that of the mapped epoch: who goes on after having been stopped is told again that its
        lease is gone (decision D18), while its successor is well.

        Args:
            client_id: Whose lease it was.
            revoked_ns: The notice's own time stamp, monotonic.
        """
        if self._mapped is None or revoked_ns < self._announced_ns:
            return None
        if self._producer_id not in (0, client_id):
            return None
        # An attach response does not tell who produces. Until an announce does, the epoch may turn out to be
        # somebody else's: then the next announce maps it again.
        return self.on_lost("the lease of its producer ended", spend_epoch=self._producer_id == client_id)

    def on_sequence_regression(self) -> Unmap:
        """Sequence numbers went back inside the mapped epoch: the next announce maps anew (decision L1)."""
        return self.on_lost("sequence numbers went back")

    def expired(self, now_ns: int) -> Unmap | None:
        """Ends a mapping whose last good announce is too old; says so once [WIRE-15.14-8]."""
        silence_ns = now_ns - self._fresh_ns
        if self._mapped is None or silence_ns <= self.freshness_ns:
            return None
        return self.on_lost(f"no announce for {silence_ns / 1e9:.1f} s")

    # --- configuration -------------------------------------------------------------------------------

    def on_config(self, *, use_shm: bool, fallback_uri: str) -> Unmap | None:
        """Takes over what a `ConsumerConfig` says; `Unmap` when a mapping has to go for it."""
        self._fallback_uri = fallback_uri
        self._shm_allowed = use_shm
        if not use_shm:
            if self._mapped is not None:
                return self.on_lost("shared memory is not allowed to this consumer")
            self._phase = MappingPhase.FALLBACK
        elif self._mapped is None and not (self.failure is not None and fallback_uri):
            self._phase = MappingPhase.UNMAPPED  # and where the memory was refused, the fallback goes on
        return None


@dataclass(frozen=True, slots=True)
class _Attempt:
    """A ring that somebody was told to open."""

    address: _native.RingAddress
    content: ShmPoolAnnounce
    received_ns: int
    sent_ns: int


def _without_time(announce: ShmPoolAnnounce) -> ShmPoolAnnounce:
    """What makes two announces the same: all but when they were sent."""
    return msgspec.structs.replace(announce, announce_timestamp_ns=0)
