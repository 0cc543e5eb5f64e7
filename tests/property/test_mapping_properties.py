"""A mapping beside a model that only remembers what was said, over random histories."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tensor_pool.errors import RegionError
from tensor_pool.pool.mapping import Ignore, Map, MappingPhase, MappingState, Refresh, Remap, Unmap
from tensor_pool.wire.messages import ClockDomain, PayloadPool, ShmPoolAnnounce

PERIOD = 1_000
WINDOW = 3 * PERIOD


class MappingModel(RuleBasedStateMachine):
    """Announces of any epoch and age, rings that open or don't, and time that passes."""

    def __init__(self) -> None:
        super().__init__()
        self.mapping = MappingState(1, freshness_ns=WINDOW)
        self.now = 10**9
        self.realtime = 10**15
        self.mapped: int | None = None
        self.highest: int | None = None
        self.fresh = 0

    @rule(
        epoch=st.integers(1, 6) | st.just(2**64 - 1),
        age=st.integers(-2 * WINDOW, 2 * WINDOW),
        domain=st.sampled_from(ClockDomain),
        opens=st.booleans(),
    )
    def hear(self, epoch: int, age: int, domain: ClockDomain, opens: bool) -> None:
        clock = self.now if domain is ClockDomain.MONOTONIC else self.realtime
        action = self.mapping.on_announce(
            ShmPoolAnnounce(
                stream_id=1,
                producer_id=1,
                epoch=epoch,
                announce_timestamp_ns=clock - age,
                announce_clock_domain=domain,
                layout_version=1,
                header_nslots=8,
                header_slot_bytes=256,
                header_region_uri=f"shm:file?path=/dev/shm/{epoch}",
                payload_pools=(PayloadPool(1, 8, 64, f"shm:file?path=/dev/shm/{epoch}.1"),),
            ),
            received_ns=self.now,
            join_time_ns=0,
            realtime_ns=self.realtime,
        )
        fresh = abs(age) <= WINDOW
        wanted = fresh and epoch != 2**64 - 1 and (self.highest is None or epoch >= self.highest)
        assert isinstance(action, Ignore | Refresh | Map | Remap)
        assert wanted or isinstance(action, Ignore)
        assert isinstance(action, Refresh) == (wanted and epoch == self.mapped)
        assert not isinstance(action, Map) or self.mapped is None
        assert not isinstance(action, Remap) or (self.mapped is not None and epoch > self.mapped)
        if isinstance(action, Refresh):
            self.fresh = self.now
        elif isinstance(action, Map | Remap):
            if opens:
                self.mapping.on_mapped(epoch, pid=1)
                self.mapped = self.highest = epoch
                self.fresh = self.now
            else:
                self.mapping.on_map_failed(RegionError("refused"))

    @precondition(lambda self: self.mapped is not None)
    @rule()
    def lose(self) -> None:
        assert isinstance(self.mapping.on_sequence_regression(), Unmap)
        self.mapped = None

    @rule(passed=st.integers(0, 2 * WINDOW))
    def wait(self, passed: int) -> None:
        self.now += passed
        self.realtime += passed
        ends = self.mapped is not None and self.now - self.fresh > WINDOW
        assert (self.mapping.expired(self.now) is not None) == ends
        if ends:
            self.mapped = None

    @rule(step=st.integers(-(10**12), 10**12))
    def step_realtime(self, step: int) -> None:
        self.realtime += step

    @invariant()
    def agrees(self) -> None:
        assert self.mapping.epoch == self.mapped
        assert (self.mapping.state is MappingPhase.MAPPED) == (self.mapped is not None)
        assert self.mapping.highest_epoch == self.highest
        assert len(self.mapping._rejected) <= 16


TestMappingModel = MappingModel.TestCase
