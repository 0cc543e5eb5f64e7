"""Which clock dates frames, and whether it can be read here."""

import time

import pytest

from tensor_pool.errors import TensorPoolError
from tensor_pool.ops.frame_clock import clock_row, frame_clock

S = 1_000_000_000


def test_nothing_said_means_monotonic_and_says_so() -> None:
    clock = frame_clock({}, stream="camera-1")
    assert (clock.domain, clock.is_assumed, clock.read_ns) == ("monotonic", True, time.monotonic_ns)


def test_monotonic_of_this_host() -> None:
    said = {"clock.domain": "monotonic", "clock.realtime_offset_ns": 17 * S}
    clock = frame_clock(said, stream="camera-1", realtime_offset_ns=17 * S + S // 2)
    assert (clock.domain, clock.is_assumed) == ("monotonic", False)


def test_this_hosts_own_offset_is_its_own() -> None:
    said = {"clock.domain": "monotonic", "clock.realtime_offset_ns": time.time_ns() - time.monotonic_ns()}
    assert frame_clock(said, stream="camera-1").domain == "monotonic"


@pytest.mark.parametrize("offset_ns", [15 * S, 19 * S])
def test_monotonic_of_another_host_is_refused(offset_ns: int) -> None:
    said = {"clock.domain": "monotonic", "clock.realtime_offset_ns": offset_ns}
    with pytest.raises(
        TensorPoolError, match="of camera-1 are of the monotonic clock of another host"
    ) as refused:
        frame_clock(said, stream="camera-1", realtime_offset_ns=17 * S)
    assert "tpool hz" in refused.value.hint


def test_real_time_and_its_error() -> None:
    clock = frame_clock({"clock.domain": "realtime_synced", "clock.error_budget_ns": 250}, stream="a")
    assert (clock.read_ns, clock.error_ns) == (time.time_ns, 250)
    assert (
        frame_clock({"clock.domain": "realtime_synced", "clock.error_budget_ns": "x"}, stream="a").error_ns
        == 0
    )


@pytest.mark.parametrize("domain", ["sensor", "", b"monotonic", 3])
def test_other_clocks_are_refused_by_name(domain: object) -> None:
    with pytest.raises(TensorPoolError) as refused:
        frame_clock({"clock.domain": domain}, stream="camera-1")
    assert repr(domain) in refused.value.message


def test_for_people() -> None:
    assert clock_row({}) == {"domain": None, "realtime_offset_ns": None, "error_budget_ns": None}
