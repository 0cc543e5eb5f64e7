"""The section `supervisor`: who counts as slow, what is done about it, and how much is remembered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal

import msgspec
from msgspec import Meta

from tensor_pool.config.kinds import ALLOWED, Milliseconds, doc
from tensor_pool.config.sections import Section, ShmSection, StreamsSection
from tensor_pool.driver.config import DriverSection
from tensor_pool.errors import ConfigError
from tensor_pool.pool.config import ClientSection
from tensor_pool.pool.fallback_uri import FallbackUri  # noqa: TC001 - msgspec reads annotations at run time

if TYPE_CHECKING:
    from tensor_pool.config import Config

__all__ = ["RemedyName", "Setting", "SupervisorSection"]

_NS_PER_MS: Final = 1_000_000

RemedyName = Literal["rate_limited", "own_stream", "fallback"]
Share = Annotated[float, Meta(ge=0, le=1, extra={ALLOWED: "a number from 0 to 1"})]
DropRate = Annotated[float, Meta(ge=0, le=1_000_000, extra={ALLOWED: "a number from 0 to 1000000"})]


class SupervisorSection(Section, frozen=True):
    """The supervisor: watches quality of service, and moves consumers that can't keep up.

    It tells consumers what to do only where `driver.hello_authority` is "supervisor"; elsewhere it watches.
    """

    section_name: ClassVar[str] = "supervisor"

    dry_run: Annotated[
        bool, doc("Whether decisions are only logged. Hellos are answered all the same, as consumers wish.")
    ] = False
    remedies: Annotated[
        tuple[RemedyName, ...],
        Meta(max_length=3, extra={ALLOWED: "a list of rate_limited, own_stream and fallback"}),
        doc("What may be done about a slow consumer; always in this order, one after the other."),
    ] = ("rate_limited", "own_stream", "fallback")
    fallback_uri: Annotated[
        FallbackUri,
        doc(
            "Where bridge chunks are sent, for consumers that are moved away from shared memory or have "
            "none; empty: `client.fallback_uri`. Without either nobody is moved there."
        ),
    ] = ""
    slow_lag: Annotated[
        Share, doc("A consumer is slow that is behind by this share of the ring's slots, 0.5 for half.")
    ] = 0.5
    healthy_lag: Annotated[
        Share, doc("A consumer is healthy only if it is behind by at most this share of the ring's slots.")
    ] = 0.25
    slow_drops_per_s: Annotated[
        DropRate,
        doc(
            "A consumer is slow that loses so many frames a second, over `window_ms`. Numbers that it never "
            "found count only if it was behind as well: otherwise perhaps nobody wrote them."
        ),
    ] = 1.0
    healthy_drops_per_s: Annotated[
        DropRate, doc("A consumer is healthy only if it loses at most so many frames a second.")
    ] = 0.1
    window_ms: Annotated[
        Milliseconds,
        doc("Over how long drops are counted: who is too far behind skips many frames at once, then none."),
    ] = 5_000
    slow_for_ms: Annotated[
        Milliseconds,
        doc(
            "How long a consumer has to be slow before it is moved, and then moved further; longer than "
            "`window_ms`, so that one hiccup moves nobody."
        ),
    ] = 10_000
    healthy_for_ms: Annotated[
        Milliseconds, doc("How long a consumer has to be healthy before it is moved one step back.")
    ] = 30_000
    longest_patience: Annotated[
        int,
        Meta(ge=1, le=1_024),
        doc(
            "A consumer that becomes slow again after it was moved back has to be healthy for twice as long "
            "the next time, and so on up to this many times `healthy_for_ms`."
        ),
    ] = 16
    stale_intervals: Annotated[
        int,
        Meta(ge=3, le=5),
        doc(
            "Who is silent for so many intervals is stale: of reports for clients, of announces for streams."
        ),
    ] = 4
    forget_after_ms: Annotated[
        Milliseconds, doc("How long who is stale or gone is still shown, and what it was told remembered.")
    ] = 60_000
    max_streams: Annotated[int, Meta(ge=1, le=100_000), doc("Streams that are watched at most.")] = 1_000
    max_consumers: Annotated[
        int, Meta(ge=1, le=1_000_000), doc("Consumers that are watched at most, of all streams together.")
    ] = 10_000
    log_length: Annotated[
        int, Meta(ge=1, le=1_000_000), doc("Decisions that are remembered, and as many other notes.")
    ] = 1_000

    def __post_init__(self) -> None:
        for low, high in (("healthy_lag", "slow_lag"), ("healthy_drops_per_s", "slow_drops_per_s")):
            if getattr(self, low) >= getattr(self, high):
                raise ConfigError(
                    f"supervisor.{low} must be below supervisor.{high}: who is slow is not healthy",
                    hint=f"{low} = {getattr(self, high) / 2}, or a higher {high}",
                )

        if self.window_ms >= self.slow_for_ms:
            raise ConfigError(
                "supervisor.window_ms must be below supervisor.slow_for_ms: one hiccup would move a consumer",
                hint=f"window_ms = {max(1, self.slow_for_ms // 2)}, or a longer slow_for_ms",
            )

    @property
    def window_ns(self) -> int:
        """The same in nanoseconds."""
        return self.window_ms * _NS_PER_MS

    @property
    def slow_for_ns(self) -> int:
        """The same in nanoseconds."""
        return self.slow_for_ms * _NS_PER_MS

    @property
    def healthy_for_ns(self) -> int:
        """The same in nanoseconds."""
        return self.healthy_for_ms * _NS_PER_MS

    @property
    def forget_after_ns(self) -> int:
        """The same in nanoseconds."""
        return self.forget_after_ms * _NS_PER_MS


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """What a supervisor knows of the host it is on, all from its configuration.

    Example:
        >>> from tensor_pool.config import load_config
        >>> Setting.of(load_config(environ={}, search=False)).is_authority
        False
    """

    section: SupervisorSection = msgspec.field(default_factory=SupervisorSection)
    streams: StreamsSection = msgspec.field(default_factory=StreamsSection)
    is_authority: bool = True
    """Whether it answers hellos and may tell consumers what to do (decision D14)."""
    report_interval_ns: int = 1_000_000_000
    """How often clients say how they are."""
    announce_interval_ns: int = 1_000_000_000
    """How often streams are announced."""
    descriptor_stream_ids: range = range(0)
    control_stream_ids: range = range(0)
    fallback_uri: str = ""
    base_dirs: tuple[str, ...] = ()
    """Directories below which regions lie."""

    @classmethod
    def of(cls, config: Config) -> Setting:
        """The setting of a configuration."""
        section, driver, client = config[SupervisorSection], config[DriverSection], config[ClientSection]
        shm: ShmSection = config.shm
        return cls(
            section=section,
            streams=config.streams,
            is_authority=driver.hello_authority == "supervisor",
            report_interval_ns=client.hello_interval_ns,
            announce_interval_ns=driver.announce_interval_ms * _NS_PER_MS,
            descriptor_stream_ids=_ids(driver, "descriptor_stream_id_range"),
            control_stream_ids=_ids(driver, "control_stream_id_range"),
            fallback_uri=section.fallback_uri or client.fallback_uri,
            base_dirs=tuple(shm.base_dirs),
        )

    @property
    def silence_ns(self) -> int:
        """Who says nothing for longer is stale."""
        return self.section.stale_intervals * self.report_interval_ns

    @property
    def forget_ns(self) -> int:
        """Who says nothing for longer is forgotten; it is seen to be stale before that."""
        return max(self.section.forget_after_ns, 2 * self.silence_ns)

    @property
    def liveness_ns(self) -> int:
        """A stream whose memory nobody kept alive for longer, or that nobody announced, is dead."""
        return self.section.stale_intervals * self.announce_interval_ns


def _ids(driver: DriverSection, key: str) -> range:
    ids = driver.ranges.get(key)
    return range(0) if ids is None else range(ids.first, ids.last + 1)
