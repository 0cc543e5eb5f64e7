"""Rows from a driver's answers."""

import pytest

from scripted_driver import NOW_NS, ScriptedDriver, lease, stream
from tensor_pool.config import StreamsSection
from tensor_pool.datatypes import Dtype, MajorOrder, to_numpy
from tensor_pool.ops import model
from tensor_pool.ops.holders import Holder
from tensor_pool.pool.admin import AdminClient
from tensor_pool.transport.memory import MemoryBus
from tensor_pool.wire.messages import Role


@pytest.fixture
def driver() -> ScriptedDriver:
    bus = MemoryBus()
    scripted = ScriptedDriver(bus.client())
    scripted.admin = AdminClient(bus.client(), StreamsSection(), pause=scripted.do_work)
    return scripted


def test_a_stream(driver: ScriptedDriver) -> None:
    driver.streams = [stream(10000, "camera-1")]
    (row,) = model.read_streams(driver.admin)

    assert (row.name, row.dtype, row.shape, row.order) == ("camera-1", "uint16", (480, 640), "row")
    assert (row.rate_hz, row.bytes_per_s) == (60.0, 60 * 480 * 640 * 2)
    assert row.activity_age_s == 0.25
    assert (row.consumers, row.producer_id, row.slots) == (2, 99, 8)


def test_what_a_driver_does_not_know_is_none(driver: ScriptedDriver) -> None:
    unknown = dict.fromkeys(
        ["epoch", "current_seq", "activity_timestamp_ns", "max_frame_bytes", "producer_id", "nslots"]
    )
    driver.streams = [
        stream(
            10000,
            **unknown,
            rate_milli_hz=None,
            dtype=Dtype.UNKNOWN,
            major_order=MajorOrder.UNKNOWN,
            ndims=0,
            dims=(0,) * 8,
        )
    ]
    (row,) = model.read_streams(driver.admin)

    assert (row.name, row.dtype, row.shape, row.order, row.rate_hz) == (None,) * 5
    assert (row.bytes_per_s, row.activity_age_s, row.epoch) == (None,) * 3


@pytest.mark.parametrize("dtype", [dtype for dtype in Dtype if dtype is not Dtype.UNKNOWN])
def test_bandwidth_counts_bytes_of_every_element_type(driver: ScriptedDriver, dtype: Dtype) -> None:
    driver.streams = [stream(1, dtype=dtype, rate_milli_hz=1000, dims=(3, 5) + (0,) * 6)]
    (row,) = model.read_streams(driver.admin)

    assert row.bytes_per_s == 15 * to_numpy(dtype).itemsize


def test_leases_have_names_and_ages(driver: ScriptedDriver) -> None:
    driver.streams = [stream(10000, "camera-1")]
    driver.leases = [
        lease(1),
        lease(2, stream_id=20000, keepalive_timestamp_ns=None, expiry_timestamp_ns=None),
    ]
    first, second = model.read_leases(driver.admin)

    assert (first.stream, first.role, first.age_s) == ("camera-1", "consumer", 9.0)
    assert (first.keepalive_age_s, first.expires_in_s) == (0.4, 2.6)
    assert (second.stream, second.keepalive_age_s, second.expires_in_s) == (None, None, None)


def test_an_overdue_lease_shows_a_negative_time(driver: ScriptedDriver) -> None:
    driver.leases = [lease(1, expiry_timestamp_ns=NOW_NS - 500_000_000)]

    assert model.read_leases(driver.admin)[0].expires_in_s == -0.5


def test_clients_are_leases_by_holder_producers_first(driver: ScriptedDriver) -> None:
    driver.streams = [stream(10000, "camera-1"), stream(20000)]
    driver.leases = [
        lease(1, client_id=7),
        lease(2, client_id=7, stream_id=20000, keepalive_timestamp_ns=NOW_NS - 2_000_000_000),
        lease(3, client_id=8, role=Role.PRODUCER),
    ]
    producer, consumer = model.read_clients(driver.admin)

    assert (producer.client_id, producer.role, producer.streams) == (8, "producer", ("camera-1",))
    assert (consumer.streams, consumer.leases) == (("camera-1", "20000"), (1, 2))
    assert consumer.keepalive_age_s == 2.0, "the worst of them"


def test_processes_are_those_that_are_known(driver: ScriptedDriver) -> None:
    driver.leases = [lease(1, client_id=7), lease(2, client_id=8)]
    holders = {7: Holder(4711, "viewer")}

    assert [(row.pid, row.name) for row in model.read_leases(driver.admin, holders=holders)] == [
        (4711, "viewer"),
        (None, None),
    ]
    found = {row.client_id: (row.pid, row.name) for row in model.read_clients(driver.admin, holders=holders)}
    assert found == {7: (4711, "viewer"), 8: (None, None)}


def test_a_driver(driver: ScriptedDriver) -> None:
    row = model.read_driver(driver.admin)

    assert (row.state, row.pid, row.uptime_s, row.instance_id) == ("running", 4321, 12.0, "lab")


def test_the_keys_of_json_are_a_promise() -> None:
    """Scripts and the console rely on them: add freely, but never rename."""
    assert model.StreamRow.__struct_fields__ == (
        *("stream_id", "name", "state", "dtype", "shape", "order", "rate_hz", "bytes_per_s", "epoch"),
        *(
            "current_seq",
            "producer_id",
            "consumers",
            "slots",
            "max_frame_bytes",
            "region_bytes",
            "activity_age_s",
        ),
        "drops",
    )
    assert model.LeaseRow.__struct_fields__ == (
        *("lease_id", "stream_id", "stream", "client_id", "role", "epoch", "age_s", "keepalive_age_s"),
        *("expires_in_s", "pid", "name"),
    )
    assert model.ClientRow.__struct_fields__ == (
        *("client_id", "role", "streams", "leases", "age_s", "keepalive_age_s"),
        *("lag_frames", "drops_gap", "drops_late", "pid", "name"),
    )
