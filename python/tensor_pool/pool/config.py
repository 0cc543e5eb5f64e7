"""The section `client`: how producers and consumers talk to the driver and to each other."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from msgspec import Meta

from tensor_pool.config.kinds import IS_SIZE, Milliseconds, doc
from tensor_pool.config.sections import Section
from tensor_pool.pool.fallback_uri import FallbackUri  # noqa: TC001 - msgspec reads annotations at run time

__all__ = ["AttachDialect", "ClientSection", "OnLeaseLoss", "WakeProfile"]

AttachDialect = Literal["auto", "seed", "newer"]
OnLeaseLoss = Literal["reconnect", "raise"]
WakeProfile = Literal["latency", "balanced", "eco"]

_NS_PER_MS: Final = 1_000_000


class ClientSection(Section, frozen=True):
    """Producers and consumers: how they attach, show life, and wait."""

    section_name: ClassVar[str] = "client"

    attach_timeout_ms: Annotated[
        Milliseconds, doc("How long to wait for the driver's answer before there counts as none.")
    ] = 5_000
    attach_dialect: Annotated[
        AttachDialect,
        doc(
            "Form of attach requests: 'seed' is that of the specification, 'newer' that of drivers which "
            "only answer the longer form, 'auto' tries the first and then the second, and remembers."
        ),
    ] = "auto"
    keepalive_interval_ms: Annotated[
        Milliseconds,
        doc("How often a lease is kept alive; the driver ends it after three times this."),
    ] = 1_000
    announce_freshness_ms: Annotated[
        Milliseconds,
        doc(
            "Announces older than this are ignored, and a driver that announced nothing for so long counts "
            "as dead; three announce periods."
        ),
    ] = 3_000
    hello_interval_ms: Annotated[
        Milliseconds,
        doc("How often consumers introduce themselves, and everybody reports how it goes."),
    ] = 1_000
    metadata_interval_ms: Annotated[
        Milliseconds, doc("How often producers repeat name and metadata for those who join late.")
    ] = 1_000
    on_lease_loss: Annotated[
        OnLeaseLoss,
        doc("What publishing does after the lease was lost: wait for a new one, or raise LeaseLostError."),
    ] = "reconnect"
    reconnect_timeout_ms: Annotated[
        Milliseconds, doc("How long publishing waits for a new lease before it raises LeaseLostError.")
    ] = 10_000
    max_outstanding_seq_gap: Annotated[
        int,
        Meta(ge=0, le=1 << 20),
        doc("A consumer that is this many frames behind skips to the newest one; 0 never skips."),
    ] = 256
    limited_rate_hz: Annotated[
        int,
        Meta(ge=1, le=1_000_000),
        doc(
            "Frames a second for a consumer that the stream's authority limits, unless it was opened with a "
            "`max_rate_hz` of its own."
        ),
    ] = 10
    wake_profile: Annotated[
        WakeProfile,
        doc(
            "How consumers wait: 'latency' looks without pause for up to 20 ms after each frame, which takes "
            "a core while frames come at 50 Hz or faster; 'balanced' sleeps until rung, or until shortly "
            "before the next frame of a steady stream is due; 'eco' sleeps until rung, and looks at messages "
            "less often."
        ),
    ] = "balanced"
    fallback_uri: Annotated[
        FallbackUri,
        doc(
            "Where bridge chunks are sent: told to consumers without shared memory by producers that name no "
            "other, and where such a consumer reads when nobody tells it; empty for nowhere."
        ),
    ] = ""
    allow_fallback: Annotated[
        bool,
        doc(
            "Whether a consumer reads from where the stream's authority sends it, which opens a UDP socket; "
            "otherwise only from a `fallback_uri` of its own."
        ),
    ] = True
    fallback_max_bytes: Annotated[
        int,
        Meta(ge=64 << 10, le=1 << 40, extra={IS_SIZE: True}),
        doc(
            "Memory for the frames of a consumer that reads bridge chunks; it takes less where less will do."
        ),
    ] = 256 << 20

    @property
    def keepalive_interval_ns(self) -> int:
        """The same in nanoseconds."""
        return self.keepalive_interval_ms * _NS_PER_MS

    @property
    def announce_freshness_ns(self) -> int:
        """The same in nanoseconds."""
        return self.announce_freshness_ms * _NS_PER_MS

    @property
    def hello_interval_ns(self) -> int:
        """The same in nanoseconds."""
        return self.hello_interval_ms * _NS_PER_MS

    @property
    def metadata_interval_ns(self) -> int:
        """The same in nanoseconds."""
        return self.metadata_interval_ms * _NS_PER_MS

    @property
    def attach_timeout_ns(self) -> int:
        """The same in nanoseconds."""
        return self.attach_timeout_ms * _NS_PER_MS
