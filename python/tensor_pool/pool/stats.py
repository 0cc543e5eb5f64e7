"""Temporary."""

import msgspec


class ProducerStats(msgspec.Struct):
    frames: int = 0
    too_large: int = 0
    claims_aborted: int = 0
    descriptors_sent: int = 0
    descriptors_skipped: int = 0
    descriptors_dropped: int = 0
    lease_losses: int = 0


class ConsumerStats(msgspec.Struct):
    delivered: int = 0
    validated: int = 0
    overwritten: int = 0
    drops_gap: int = 0
    drops_late: int = 0
    drops_by_reason: dict = {}
    thinned: int = 0
    resyncs: int = 0
    remaps: int = 0
    reconnects: int = 0
    last_seq: int | None = None
    epoch: int | None = None
