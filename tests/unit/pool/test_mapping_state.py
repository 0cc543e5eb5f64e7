"""Which announces map, remap, refresh or change nothing."""

from __future__ import annotations

import msgspec
import pytest

from tensor_pool.errors import RegionError
from tensor_pool.pool.mapping import (
    Follow,
    Ignore,
    IgnoreReason,
    Map,
    MappingAction,
    MappingPhase,
    MappingState,
    Refresh,
    Remap,
    Unmap,
)
from tensor_pool.wire.messages import ClockDomain, PayloadPool, ShmPoolAnnounce

STREAM = 10_000
PERIOD = 1_000_000_000
START = 50 * PERIOD
REALTIME = 1_700_000_000 * PERIOD


def announce(
    epoch: int = 5,
    stamp: int = START,
    *,
    domain: ClockDomain = ClockDomain.MONOTONIC,
    stream_id: int = STREAM,
    directory: str = "a",
) -> ShmPoolAnnounce:
    return ShmPoolAnnounce(
        stream_id=stream_id,
        producer_id=7,
        epoch=epoch,
        announce_timestamp_ns=stamp,
        announce_clock_domain=domain,
        layout_version=1,
        header_nslots=8,
        header_slot_bytes=256,
        header_region_uri=f"shm:file?path=/dev/shm/{directory}/{epoch}/header.ring",
        payload_pools=(PayloadPool(1, 8, 4096, f"shm:file?path=/dev/shm/{directory}/{epoch}/1.pool"),),
    )


@pytest.fixture
def mapping() -> MappingState:
    return MappingState(STREAM, freshness_ns=3 * PERIOD)


def hear(
    mapping: MappingState, message: ShmPoolAnnounce, now: int = START, *, join: int = 0, bridged: bool = False
) -> MappingAction:
    return mapping.on_announce(
        message,
        received_ns=now,
        join_time_ns=join,
        realtime_ns=REALTIME + now - START,
        bridged=bridged,
    )


def map_epoch(mapping: MappingState, epoch: int = 5, now: int = START) -> None:
    action = hear(mapping, announce(epoch, now), now)
    assert isinstance(action, Map | Remap)
    mapping.on_mapped(epoch, pid=1)


class TestFromUnmappedToMapped:
    @pytest.mark.req("WIRE-15.12-1", "WIRE-15.12-2", "WIRE-15.21-5")
    def test_a_good_announce_maps(self, mapping: MappingState) -> None:
        assert mapping.state is MappingPhase.UNMAPPED
        assert mapping.epoch is None

        action = hear(mapping, announce())

        assert isinstance(action, Map)
        assert (action.address.stream_id, action.address.epoch) == (STREAM, 5)
        assert mapping.state is MappingPhase.UNMAPPED, "not before somebody opened it"
        mapping.on_mapped(5, pid=1)
        assert mapping.state is MappingPhase.MAPPED
        assert mapping.epoch == 5

    def test_another_stream_changes_nothing(self, mapping: MappingState) -> None:
        assert hear(mapping, announce(stream_id=STREAM + 1)) == Ignore(IgnoreReason.OTHER_STREAM)

    def test_reporting_a_ring_that_nobody_asked_for_is_refused(self, mapping: MappingState) -> None:
        with pytest.raises(ValueError, match="epoch 5 was not asked for"):
            mapping.on_mapped(5, pid=1)
        hear(mapping, announce(6))
        with pytest.raises(ValueError, match="epoch 5"):
            mapping.on_mapped(5, pid=1)

    @pytest.mark.req("WIRE-10.1.1-4")
    @pytest.mark.parametrize("slot_bytes", [255, 512])
    def test_a_bad_layout_is_counted_and_remembered(self, mapping: MappingState, slot_bytes: int) -> None:
        action = hear(mapping, msgspec.structs.replace(announce(), header_slot_bytes=slot_bytes))

        assert action == Ignore(IgnoreReason.BAD_LAYOUT)
        assert isinstance(mapping.failure, RegionError)
        assert f"{slot_bytes} bytes are announced" in str(mapping.failure)
        assert isinstance(hear(mapping, announce()), Map), "the next good one works"


class TestAge:
    @pytest.mark.req("WIRE-10.1.1-6", "WIRE-10.1.1-8", "WIRE-10.1.1-9")
    @pytest.mark.parametrize(("age", "fresh"), [(0, True), (2.9, True), (3, True), (3.1, False), (4, False)])
    def test_announces_count_for_three_periods(self, mapping: MappingState, age: float, fresh: bool) -> None:
        action = hear(mapping, announce(stamp=START - int(age * PERIOD)))

        assert isinstance(action, Map) == fresh
        assert mapping.ignored == ({} if fresh else {IgnoreReason.STALE: 1})

    @pytest.mark.req("WIRE-10.1.1-6")
    def test_a_replayed_announce_does_not_renew_a_mapping(self, mapping: MappingState) -> None:
        map_epoch(mapping)
        later = START + 4 * PERIOD

        assert hear(mapping, announce(), later) == Ignore(IgnoreReason.STALE)
        assert isinstance(mapping.expired(later), Unmap)

    @pytest.mark.parametrize("domain", list(ClockDomain))
    def test_stamps_from_the_future(self, mapping: MappingState, domain: ClockDomain) -> None:
        now = START if domain is ClockDomain.MONOTONIC else REALTIME

        assert hear(mapping, announce(stamp=now + 4 * PERIOD, domain=domain)) == Ignore(IgnoreReason.FUTURE)
        assert isinstance(hear(mapping, announce(stamp=now + PERIOD, domain=domain)), Map)

    @pytest.mark.req("WIRE-10.1.1-10", "WIRE-10.1.1-11")
    def test_what_was_said_before_joining_does_not_count(self, mapping: MappingState) -> None:
        action = hear(mapping, announce(stamp=START - 1), join=START)

        assert action == Ignore(IgnoreReason.BEFORE_JOIN)
        assert isinstance(hear(mapping, announce(stamp=START), join=START), Map)

    @pytest.mark.req("WIRE-10.1.1-12")
    def test_joining_says_nothing_about_another_clock(self, mapping: MappingState) -> None:
        # Real time is far above monotonic time, so a mixed-up comparison would show here or below.
        early = announce(stamp=REALTIME - 1, domain=ClockDomain.REALTIME_SYNCED)

        assert isinstance(hear(mapping, early, join=REALTIME + PERIOD), Map)

    @pytest.mark.req("WIRE-10.1.1-13")
    @pytest.mark.parametrize(("age", "fresh"), [(2.9, True), (3.1, False)])
    def test_realtime_stamps_are_compared_with_real_time(
        self, mapping: MappingState, age: float, fresh: bool
    ) -> None:
        stamp = REALTIME - int(age * PERIOD)
        action = hear(mapping, announce(stamp=stamp, domain=ClockDomain.REALTIME_SYNCED))

        assert isinstance(action, Map) == fresh

    def test_a_monotonic_stamp_in_the_other_domain_is_ancient(self, mapping: MappingState) -> None:
        mixed_up = announce(stamp=START, domain=ClockDomain.REALTIME_SYNCED)

        assert hear(mapping, mixed_up) == Ignore(IgnoreReason.STALE)

    @pytest.mark.parametrize("stamp", [0, START - 100 * PERIOD, START + 100 * PERIOD])
    def test_only_the_receipt_counts_behind_a_bridge(self, mapping: MappingState, stamp: int) -> None:
        assert isinstance(hear(mapping, announce(stamp=stamp), join=START, bridged=True), Map)


class TestEpochs:
    @pytest.mark.req("WIRE-15.21-6")
    def test_ten_announces_of_one_epoch_change_nothing(self, mapping: MappingState) -> None:
        map_epoch(mapping)
        for n in range(1, 11):
            now = START + n * PERIOD
            assert hear(mapping, announce(stamp=now), now) == Refresh()
            assert mapping.expired(now) is None
        assert (mapping.epoch, mapping.remaps, mapping.ignored) == (5, 0, {})

    @pytest.mark.req("WIRE-10.1.1-7", "WIRE-15.2-6")
    def test_a_lower_epoch_is_ignored_and_counted(self, mapping: MappingState) -> None:
        map_epoch(mapping, 5)

        assert hear(mapping, announce(4)) == Ignore(IgnoreReason.LOWER_EPOCH)
        assert (mapping.epoch, mapping.state) == (5, MappingPhase.MAPPED)

    def test_a_lower_epoch_stays_ignored_after_the_mapping_ended(self, mapping: MappingState) -> None:
        map_epoch(mapping, 5)
        mapping.on_lost("files are gone")

        assert hear(mapping, announce(4)) == Ignore(IgnoreReason.LOWER_EPOCH)
        assert isinstance(hear(mapping, announce(5)), Map)
        assert mapping.highest_epoch == 5

    @pytest.mark.req("WIRE-15.21-7")
    def test_a_higher_epoch_remaps_from_the_same_announce(self, mapping: MappingState) -> None:
        map_epoch(mapping, 5)

        action = hear(mapping, announce(6))

        assert isinstance(action, Remap)
        assert action.address.epoch == 6
        mapping.on_mapped(6, pid=1)
        assert (mapping.epoch, mapping.remaps) == (6, 1)

    @pytest.mark.req("WIRE-7.1-9")
    def test_the_last_number_is_not_an_epoch(self, mapping: MappingState) -> None:
        assert hear(mapping, announce(2**64 - 1)) == Ignore(IgnoreReason.NO_EPOCH)
        assert isinstance(hear(mapping, announce(1)), Map), "nothing was blocked by it"

    def test_an_epoch_that_could_not_be_mapped_blocks_nothing(self, mapping: MappingState) -> None:
        hear(mapping, announce(2**64 - 2))
        mapping.on_map_failed(RegionError("no such file"))
        assert mapping.ignored == {IgnoreReason.REFUSED_REGION: 1}

        assert isinstance(hear(mapping, announce(1)), Map)

    def test_other_regions_in_the_same_epoch_are_a_new_ring(self, mapping: MappingState) -> None:
        map_epoch(mapping, 5)

        action = hear(mapping, announce(5, directory="b"))

        assert isinstance(action, Remap)
        assert "/b/5/" in action.address.header_uri


class TestRefusedRings:
    @pytest.mark.req("WIRE-15.22-18")
    def test_a_refused_ring_keeps_what_is_good(self, mapping: MappingState) -> None:
        map_epoch(mapping, 5)
        error = RegionError("superblock field nslots")
        hear(mapping, announce(6))
        mapping.on_map_failed(error)

        assert (mapping.epoch, mapping.state, mapping.failure) == (5, MappingPhase.MAPPED, error)
        assert hear(mapping, announce(5)) == Refresh()

    @pytest.mark.req("WIRE-15.1-7")
    def test_announces_that_are_refused_do_not_keep_a_mapping_alive(self, mapping: MappingState) -> None:
        map_epoch(mapping, 5)
        for n in range(1, 4):
            now = START + n * PERIOD
            hear(mapping, announce(5, now, directory="elsewhere"), now)
            mapping.on_map_failed(RegionError("another ring"))
            assert mapping.expired(now) is None
        assert isinstance(mapping.expired(START + 3 * PERIOD + 1), Unmap)
        assert mapping.state is MappingPhase.UNMAPPED

    def test_the_same_ring_is_tried_once_a_second(self, mapping: MappingState) -> None:
        tries = 0
        for n in range(31):
            now = START + n * PERIOD // 10
            action = hear(mapping, announce(5, now), now)
            if isinstance(action, Map):
                tries += 1
                mapping.on_map_failed(RegionError("no such file"))
            else:
                assert action == Ignore(IgnoreReason.REJECTED_BEFORE)
        assert tries == 4

    def test_a_different_announce_is_tried_at_once(self, mapping: MappingState) -> None:
        hear(mapping, announce(5, directory="a"))
        mapping.on_map_failed(RegionError("no such file"))

        assert isinstance(hear(mapping, announce(5, directory="b")), Map)

    def test_what_is_remembered_is_bounded(self, mapping: MappingState) -> None:
        for n in range(1_000):
            hear(mapping, announce(5, directory=str(n)))
            mapping.on_map_failed(RegionError("no such file"))
        assert len(mapping._rejected) == 16
        assert isinstance(hear(mapping, announce(5, directory="good")), Map)

    def test_success_forgets_failures(self, mapping: MappingState) -> None:
        hear(mapping, announce(5, directory="b"))
        mapping.on_map_failed(RegionError("no such file"))
        map_epoch(mapping, 5)

        assert mapping.failure is None


class TestSuperblocks:
    @pytest.mark.req("WIRE-15.1-11")
    def test_a_ring_whose_owner_is_silent_is_not_live(self, mapping: MappingState) -> None:
        assert mapping.is_live(START - 3 * PERIOD, START)
        assert not mapping.is_live(START - 4 * PERIOD, START)

    def test_activity_keeps_a_mapping(self, mapping: MappingState) -> None:
        map_epoch(mapping)

        assert mapping.on_superblock(1, START, START + PERIOD) == Refresh()
        assert mapping.on_superblock(1, START, START + 4 * PERIOD) == Unmap("no activity for 4.0 s")
        assert mapping.state is MappingPhase.UNMAPPED

    @pytest.mark.req("WIRE-15.14-4")
    def test_another_process_id_gives_the_epoch_up(self, mapping: MappingState) -> None:
        map_epoch(mapping, 5)

        assert isinstance(mapping.on_superblock(2, START, START), Unmap)
        assert mapping.state is MappingPhase.UNMAPPED
        assert hear(mapping, announce(5)) == Ignore(IgnoreReason.SPENT_EPOCH)
        assert isinstance(hear(mapping, announce(6)), Map)

    def test_the_process_id_can_be_left_to_inform(self) -> None:
        mapping = MappingState(STREAM, freshness_ns=3 * PERIOD, pid_change_unmaps=False)
        map_epoch(mapping, 5)

        assert mapping.on_superblock(2, START, START) == Refresh()

    def test_nothing_to_check_without_a_mapping(self, mapping: MappingState) -> None:
        assert mapping.on_superblock(1, START, START) == Ignore(IgnoreReason.NOTHING_MAPPED)

    @pytest.mark.req("WIRE-15.1-10")
    def test_the_same_process_id_does_not_hide_a_restart(self, mapping: MappingState) -> None:
        map_epoch(mapping, 5)

        assert isinstance(hear(mapping, announce(6)), Remap)
        mapping.on_mapped(6, pid=1)
        assert mapping.epoch == 6


class TestSequenceNumbers:
    @pytest.mark.req("WIRE-15.2-6", "WIRE-15.21-8", "WIRE-15.18-7")
    def test_sequence_numbers_that_go_back_unmap_until_the_next_announce(self, mapping: MappingState) -> None:
        map_epoch(mapping, 5)

        assert mapping.on_sequence_regression() == Unmap("sequence numbers went back")
        assert mapping.state is MappingPhase.UNMAPPED
        assert isinstance(hear(mapping, announce(5)), Map)


class TestRevokedProducer:
    @pytest.mark.req("DRV-4.9-9")
    def test_only_the_next_epoch_is_mapped(self, mapping: MappingState) -> None:
        map_epoch(mapping, 5)

        assert mapping.on_producer_revoked(7, START + 10) == Unmap("the lease of its producer ended")
        assert hear(mapping, announce(5, START + 20), START + 20) == Ignore(IgnoreReason.SPENT_EPOCH)
        assert mapping.state is MappingPhase.UNMAPPED
        map_epoch(mapping, 6, START + 30)
        assert mapping.epoch == 6

    @pytest.mark.parametrize("domain", list(ClockDomain))
    def test_a_notice_that_comes_after_the_next_epoch_changes_nothing(
        self, mapping: MappingState, domain: ClockDomain
    ) -> None:
        stamp = START if domain is ClockDomain.MONOTONIC else REALTIME
        hear(mapping, announce(6, stamp, domain=domain), START)
        mapping.on_mapped(6, pid=1)

        assert mapping.on_producer_revoked(7, START - 1) is None
        assert mapping.epoch == 6
        assert isinstance(mapping.on_producer_revoked(7, START), Unmap)

    def test_nothing_is_lost_that_is_not_mapped(self, mapping: MappingState) -> None:
        assert mapping.on_producer_revoked(7, START) is None
        assert isinstance(hear(mapping, announce(5)), Map)

    def test_a_notice_for_an_earlier_producer_changes_nothing(self, mapping: MappingState) -> None:
        """Who was stopped for longer than its lease is told of its end when the next one publishes."""
        map_epoch(mapping, 5)

        assert mapping.on_producer_revoked(8, START + 10) is None
        assert mapping.epoch == 5

    def test_a_notice_while_the_producer_is_not_known_spends_nothing(self, mapping: MappingState) -> None:
        unknown = msgspec.structs.replace(announce(5), producer_id=0)
        hear(mapping, unknown)
        mapping.on_mapped(5, pid=1)

        assert isinstance(mapping.on_producer_revoked(8, START + 10), Unmap)
        assert isinstance(hear(mapping, announce(5, START + 20), START + 20), Map), "it is another's epoch"
        mapping.on_mapped(5, pid=1)
        assert mapping.on_producer_revoked(8, START + 30) is None


class TestExpiry:
    @pytest.mark.req("WIRE-15.14-7", "WIRE-15.14-8")
    def test_a_mapping_ends_after_the_window_and_says_so_once(self, mapping: MappingState) -> None:
        map_epoch(mapping)

        assert mapping.expired(START + 3 * PERIOD) is None
        assert mapping.expired(START + 3 * PERIOD + 1) == Unmap("no announce for 3.0 s")
        assert mapping.expired(START + 9 * PERIOD) is None

    def test_nothing_expires_that_is_not_mapped(self, mapping: MappingState) -> None:
        assert mapping.expired(10**18) is None

    def test_the_same_epoch_comes_back_after_a_silence(self, mapping: MappingState) -> None:
        map_epoch(mapping, 5)
        later = START + 60 * PERIOD
        mapping.expired(later)

        assert isinstance(hear(mapping, announce(5, later), later), Map), "a driver that was only stopped"
        mapping.on_mapped(5, pid=1)
        assert mapping.remaps == 1


class TestFallback:
    @pytest.mark.req("WIRE-15.12-3", "WIRE-15.22-17")
    def test_a_refused_ring_with_a_fallback(self, mapping: MappingState) -> None:
        mapping.on_config(use_shm=True, fallback_uri="aeron:udp?endpoint=127.0.0.1:40123")
        assert mapping.state is MappingPhase.UNMAPPED
        hear(mapping, announce())
        mapping.on_map_failed(RegionError("permission denied"))

        assert mapping.state is MappingPhase.FALLBACK
        assert mapping.fallback_uri == "aeron:udp?endpoint=127.0.0.1:40123"
        map_epoch(mapping, 6)
        assert mapping.state is MappingPhase.MAPPED, "shared memory is better whenever it works"

    @pytest.mark.req("WIRE-15.22-18")
    def test_a_refused_ring_without_a_fallback(self, mapping: MappingState) -> None:
        hear(mapping, announce())
        mapping.on_map_failed(RegionError("permission denied: /dev/shm/a/5/header.ring"))

        assert mapping.state is MappingPhase.UNMAPPED
        assert "header.ring" in str(mapping.failure)

    def test_shared_memory_can_be_forbidden_and_allowed_again(self, mapping: MappingState) -> None:
        map_epoch(mapping, 5)

        assert isinstance(mapping.on_config(use_shm=False, fallback_uri=""), Unmap)
        assert mapping.state is MappingPhase.FALLBACK
        assert hear(mapping, announce(6)) == Ignore(IgnoreReason.SHM_NOT_ALLOWED)
        assert mapping.on_config(use_shm=False, fallback_uri="") is None
        assert mapping.on_config(use_shm=True, fallback_uri="") is None
        assert mapping.state is MappingPhase.UNMAPPED
        assert isinstance(hear(mapping, announce(6)), Map)

    def test_announces_are_followed_elsewhere_by_the_same_rules(self, mapping: MappingState) -> None:
        map_epoch(mapping, 5)
        mapping.on_config(use_shm=False, fallback_uri="aeron:udp?endpoint=a:1")

        assert mapping.uses_fallback
        assert hear(mapping, announce(5)) == hear(mapping, announce(6)) == Follow()
        assert hear(mapping, announce(4)) == Ignore(IgnoreReason.LOWER_EPOCH)
        assert hear(mapping, announce(6, START - 4 * PERIOD)) == Ignore(IgnoreReason.STALE)
        assert hear(mapping, announce(6, START - 4 * PERIOD), bridged=True) == Follow()
        other_layout = msgspec.structs.replace(announce(6), layout_version=2)
        assert hear(mapping, other_layout) == Follow(), "what can't be mapped need not be"
        assert mapping.epoch is None

    def test_a_config_that_repeats_itself_does_not_end_the_fallback(self, mapping: MappingState) -> None:
        uri = "aeron:udp?endpoint=a:1"
        mapping.on_config(use_shm=True, fallback_uri=uri)
        hear(mapping, announce())
        mapping.on_map_failed(RegionError("permission denied"))

        mapping.on_config(use_shm=True, fallback_uri=uri)
        assert mapping.uses_fallback
        mapping.on_config(use_shm=True, fallback_uri="")
        assert mapping.state is MappingPhase.UNMAPPED

    def test_a_config_that_changes_nothing_keeps_the_mapping(self, mapping: MappingState) -> None:
        map_epoch(mapping, 5)

        assert mapping.on_config(use_shm=True, fallback_uri="") is None
        assert mapping.epoch == 5
