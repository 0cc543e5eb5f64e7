"""What producers and consumers have done so far: numbers for programs, lines for people."""

from __future__ import annotations

import msgspec

__all__ = ["ConsumerStats", "FallbackStats", "ProducerStats"]


class _Stats(msgspec.Struct, frozen=True, kw_only=True):
    """One moment of something that goes on counting: take another one to see what changed."""

    def as_dict(self) -> dict[str, object]:
        """All numbers by name, as ``--format json`` shows them."""
        found: dict[str, object] = msgspec.to_builtins(self)
        return found


class FallbackStats(_Stats, frozen=True, kw_only=True):
    """What became of the chunks that a consumer without shared memory reads its frames from.

    Example:
        >>> print(FallbackStats(uri="aeron:udp?endpoint=...", frames=12, frames_lost={"timed_out": 1}))
        12 frames put together, 1 timed out
    """

    uri: str
    """Where they come from."""
    frames: int = 0
    """Frames that were put together."""
    bytes: int = 0
    """Bytes of their payloads."""
    chunks: int = 0
    """Chunks, used or not."""
    frames_lost: dict[str, int] = msgspec.field(default_factory=dict)
    """Frames that were given up, by reason: why `ConsumerStats.drops_gap` grew."""
    chunks_unused: dict[str, int] = msgspec.field(default_factory=dict)
    """Chunks that belonged to no frame, by reason."""
    error: str = ""
    """Why none can come at the moment; empty when they can."""

    def __str__(self) -> str:
        chunks = sum(self.chunks_unused.values())
        return _joined(
            f"{_frames(self.frames)} put together",
            _counted(self.frames_lost),
            _several(chunks, "unused chunk"),
            self.error,
        )


class ConsumerStats(_Stats, frozen=True, kw_only=True):
    """What became of the frames of a stream at one consumer.

    Drops are data, not errors. A frame that never was found counts in `drops_gap`; one that was found but
    could not be taken counts in `drops_by_reason`, and also in `drops_late` where the reason is that the
    producer was faster (decision M14).

    Example:
        >>> print(ConsumerStats(delivered=1_042, validated=1_040, overwritten=2, drops_gap=40, drops_late=12,
        ...                     drops_by_reason={"overwritten": 12}, last_seq=1_095, epoch=5))
        delivered  1,042 frames: 1,040 validated, 2 overwritten in use
        lost       52 frames: 40 gap, 12 overwritten
        stream     mapped, epoch 5, last frame 1,095
    """

    delivered: int = 0
    """Frames handed out."""
    validated: int = 0
    """Frames that were checked again after their use and still held (decision M17)."""
    overwritten: int = 0
    """Frames that were overwritten while they were in use."""
    drops_gap: int = 0
    """Sequence numbers that were neither described nor found in the ring."""
    drops_late: int = 0
    """Frames that were dropped because the producer was faster."""
    drops_by_reason: dict[str, int] = msgspec.field(default_factory=dict)
    """Frames that were found and dropped, by reason; reasons that never occurred are left out."""
    thinned: int = 0
    """Frames passed over to keep to a rate."""
    resyncs: int = 0
    """Jumps to the newest frame because too many were missing at once."""
    descriptors_missed: int = 0
    """Frames that were found in the ring although no descriptor told of them (decision M16)."""
    descriptors_received: int = 0
    """Descriptors of the present epoch on the shared stream."""
    duplicates: int = 0
    """Descriptors of frames that were already taken."""
    announces_ignored: dict[str, int] = msgspec.field(default_factory=dict)
    """Announces and descriptors that changed nothing, by reason."""
    remaps: int = 0
    """Rings mapped after the first one."""
    reconnects: int = 0
    """Leases obtained after the first one."""
    state: str = "mapped"
    """Where data comes from: unmapped, mapped or fallback."""
    fallback: FallbackStats | None = None
    """What it reads from instead of shared memory, if so."""
    epoch: int | None = None
    """The mapped epoch."""
    last_seq: int | None = None
    """The last frame that was handed out."""

    @property
    def drops(self) -> int:
        """All frames that were lost."""
        return self.drops_gap + sum(self.drops_by_reason.values())

    def __str__(self) -> str:
        causes = {"gap": self.drops_gap, **dict(sorted(self.drops_by_reason.items()))}
        return _table(
            ("delivered", _frames(self.delivered, _validated(self))),
            ("lost", _frames(self.drops, _counted(causes))),
            ("skipped", _joined(_counted({"thinned out": self.thinned}), _several(self.resyncs, "resync"))),
            (
                "hints",
                _joined(
                    _several(self.descriptors_missed, "missed descriptor"),
                    _several(self.duplicates, "duplicate"),
                ),
            ),
            ("ignored", _counted(self.announces_ignored)),
            ("stream", _joined(self.state, _place(self.epoch, self.last_seq))),
            ("fallback", "" if self.fallback is None else str(self.fallback)),
            ("returned", _joined(_several(self.remaps, "remap"), _several(self.reconnects, "reconnect"))),
        )


class ProducerStats(_Stats, frozen=True, kw_only=True):
    """What a producer has published.

    Example:
        >>> print(ProducerStats(frames=1_000, bytes=614_400_000, descriptors_sent=990, descriptors_skipped=10,
        ...                     consumers=3, watermark=4, last_seq=999, epoch=5))
        published    1,000 frames, 585.9 MiB
        descriptors  990 sent, 10 skipped
        consumers    3, the slowest 4 frames behind
        stream       epoch 5, last frame 999
    """

    frames: int = 0
    """Frames published."""
    bytes: int = 0
    """Bytes of their payloads."""
    too_large: int = 0
    """Frames that no pool could hold; each one was raised as an error too [WIRE-9-4]."""
    claims_aborted: int = 0
    """Claims that were given up; their sequence numbers are skipped."""
    descriptors_sent: int = 0
    descriptors_skipped: int = 0
    """Descriptors that nobody subscribed to; the frames can still be read (decision M13)."""
    descriptors_dropped: int = 0
    """Descriptors that could not be sent in time; the frames can still be read."""
    progress_sent: int = 0
    """Progress messages."""
    reconnects: int = 0
    """Leases obtained after the first one."""
    lease_losses: int = 0
    """Leases that were revoked or expired."""
    consumers: int = 0
    """Consumers that were heard lately."""
    watermark: int | None = None
    """How many frames the slowest of them is behind; None when none says so."""
    meta_version: int = 0
    """The version of the metadata."""
    epoch: int | None = None
    """The epoch that is written."""
    last_seq: int | None = None
    """The last frame that was published."""

    def __str__(self) -> str:
        refused = {"too large": self.too_large, "aborted": self.claims_aborted}
        descriptors = {
            "sent": self.descriptors_sent,
            "skipped": self.descriptors_skipped,
            "dropped": self.descriptors_dropped,
        }
        frames = "frame" if self.watermark == 1 else "frames"
        behind = f"the slowest {self.watermark:,} {frames} behind" if self.watermark is not None else ""
        return _table(
            ("published", _joined(_frames(self.frames), _size(self.bytes))),
            ("refused", _counted(refused)),
            ("descriptors", _counted(descriptors)),
            ("progress", _several(self.progress_sent, "message")),
            ("consumers", _joined(f"{self.consumers:,}", behind) if self.consumers else ""),
            ("stream", _place(self.epoch, self.last_seq)),
            (
                "leases",
                _joined(_counted({"lost": self.lease_losses}), _several(self.reconnects, "reconnect")),
            ),
        )


def _table(*rows: tuple[str, str]) -> str:
    """Names and what there is to say about them; what there is nothing to say about is left out."""
    told = [(name, text) for name, text in rows if text]
    width = max(len(name) for name, _ in told)
    return "\n".join(f"{name:{width}}  {text}" for name, text in told)


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def _frames(count: int, causes: str = "") -> str:
    text = _several(count, "frame") or "0 frames"
    return f"{text}: {causes}" if causes else text


def _several(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' if count > 1 else ''}" if count else ""


def _counted(causes: dict[str, int]) -> str:
    return _joined(*(f"{count:,} {cause.replace('_', ' ')}" for cause, count in causes.items() if count))


def _validated(stats: ConsumerStats) -> str:
    return _counted({"validated": stats.validated, "overwritten in use": stats.overwritten})


def _place(epoch: int | None, last_seq: int | None) -> str:
    # An epoch is a name more than a number: no separators.
    return _joined(
        f"epoch {epoch}" if epoch is not None else "",
        f"last frame {last_seq:,}" if last_seq is not None else "no frame yet",
    )


def _size(count: int) -> str:
    value = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:,.0f} {unit}" if unit == "bytes" else f"{value:,.1f} {unit}"
        value /= 1024
    return f"{value:,.1f} TiB"
