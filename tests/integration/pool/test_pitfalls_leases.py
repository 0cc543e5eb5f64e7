"""Mistakes that others made with leases and epochs, each shown to be none of ours."""

from __future__ import annotations

import time

import numpy as np
import pytest

from pool_hosts import LAYOUTS, LEASE_S, Ear, epochs_of, quick_host
from tensor_pool.errors import AttachRefusedError
from tensor_pool.pool.pool import Pool
from tensor_pool.pool.producer import Producer
from tensor_pool.testing import Cluster, wait_until
from tensor_pool.wire.messages import (
    PublishMode,
    ResponseCode,
    Role,
    ShmAttachRequest,
    ShmAttachResponse,
    ShmDetachRequest,
    ShmDetachResponse,
    ShmLeaseKeepalive,
    ShmPoolAnnounce,
)

FOLLOWER = """
    inp = pool.consumer({name!r})
    print("ready")
    for frame in inp:
        print(int(frame.copy()[0]), frame.info.epoch)
"""


def producer_of(pool: Pool, name: str) -> Producer:
    """A producer as soon as nobody else is: a dead one holds its lease until it expires."""

    def attached() -> Producer | None:
        try:
            return pool.producer(name, dtype="uint32", shape=(4,))
        except AttachRefusedError:
            return None

    return wait_until(attached, what="a free stream")


def frame(value: int) -> np.ndarray:
    return np.full(4, value, "uint32")


@pytest.fixture(params=list(LAYOUTS))
def own_host(request: pytest.FixtureRequest):
    """A host that a test may hurt."""
    with quick_host(request.param) as cluster:
        yield cluster


@pytest.mark.req("DRV-6-2", "DRV-6-3", "DRV-6-4", "DRV-3-4", "DRV-4.7-8", "DRV-3-9")
def test_the_epoch_grows_whenever_a_producer_comes_or_goes(own_host: Cluster) -> None:
    """Pitfall 15: on attach, detach, revoke, expiry and restart; never back, and told by an announce."""
    epochs: list[int] = []

    def next_epoch() -> int:
        def newest() -> int | None:
            announced = [a.epoch for a in ear.all_of(ShmPoolAnnounce, stream_id=out.stream_id)]
            return announced[-1] if announced and announced[-1] not in epochs else None

        epochs.append(wait_until(newest, what="another epoch"))
        return epochs[-1]

    with own_host.connect() as pool, Ear(own_host) as ear, ear.admin() as admin:
        out = pool.producer("camera-1", dtype="uint32", shape=(4,))
        assert next_epoch() == out.epoch
        out.close()
        next_epoch()  # detached
        out = pool.producer("camera-1", dtype="uint32", shape=(4,))
        assert next_epoch() == out.epoch
        (lease,) = admin.leases(out.stream_id)
        admin.revoke(out.stream_id, lease.lease_id)
        next_epoch()  # revoked; another may follow at once, since the producer asks for a new lease
        out.publish(frame(1))
        wait_until(lambda: epochs[-1] == out.epoch or next_epoch() == out.epoch)
        out.close()
        next_epoch()
        doomed = own_host.run_python(
            """
            out = pool.producer("camera-1", dtype="uint32", shape=(4,))
            print(out.epoch)
            time.sleep(60)
            """
        )
        assert next_epoch() == int(doomed.read_line())
        doomed.kill()
        next_epoch()  # expired
        own_host.driver.kill()
        own_host.start_driver()
        out = producer_of(pool, "camera-1")  # the log may replay the dead one's attach (decision L11)
        while epochs[-1] != out.epoch:
            next_epoch()
        announced = [a.epoch for a in ear.all_of(ShmPoolAnnounce, stream_id=out.stream_id)]
    assert epochs == sorted(set(epochs))
    assert announced == sorted(announced)


def test_a_consumer_recovers_from_every_restart(own_host: Cluster) -> None:
    """Pitfall 16: no flag sticks; the producer restarts three times and the driver once in between."""
    follower = own_host.run_python(FOLLOWER.format(name="camera-1"))
    assert follower.read_line() == "ready"
    epochs = []
    for value in range(4):
        producer = own_host.run_python(
            f"""
            while True:
                try:
                    out = pool.producer("camera-1", dtype="uint32", shape=(4,))
                    break
                except tp.AttachRefusedError:  # the one before holds its lease until it expires
                    time.sleep(0.05)
            out.publish(np.full(4, {value}, "uint32"))
            print(out.epoch)
            time.sleep(60)
            """
        )
        epochs.append(int(producer.read_line()))
        assert follower.read_line() == f"{value} {epochs[-1]}"
        producer.kill()
        if value == 2:
            own_host.driver.kill()
            own_host.start_driver()
    assert epochs == sorted(set(epochs))
    assert "Traceback" not in follower.errors()


def test_a_lease_belongs_to_the_stream_that_was_assigned(host: Cluster, ear: Ear) -> None:
    """Pitfall 17: id 0 asks for any stream; keepalive and detach then name the one that was given."""
    streams = []
    for attempt in range(2):
        client_id, correlation_id = 4_000_000 + attempt, 17_000_000 + attempt
        request = ShmAttachRequest(
            correlation_id=correlation_id,
            stream_id=0 if attempt == 0 else streams[0],
            client_id=client_id,
            role=Role.PRODUCER,
            publish_mode=PublishMode.EXISTING_OR_CREATE,
        )
        answer = ear.ask(request, ShmAttachResponse)
        assert answer.code is ResponseCode.OK, answer.error_message
        assert answer.stream_id is not None
        assert answer.lease_id is not None
        streams.append(answer.stream_id)
        ids = (answer.lease_id, answer.stream_id, client_id, Role.PRODUCER)
        ear.say(ShmLeaseKeepalive(*ids, client_timestamp_ns=0))
        detached = ear.ask(ShmDetachRequest(correlation_id + 100, *ids), ShmDetachResponse)
        assert detached.code is ResponseCode.OK, detached.error_message
    assert streams[0] == streams[1] >= 20_000
    with ear.admin() as admin:
        assert admin.leases(streams[0]) == []


def test_named_streams_keep_their_id_over_detach_and_attach(pool: Pool, name: str) -> None:
    """Pitfall 17, as users meet it."""
    ids = set()
    for _ in range(3):
        with pool.producer(name, dtype="uint32", shape=(4,)) as out:
            ids.add(out.stream_id)
            out.publish(frame(1))
    assert len(ids) == 1


def test_twenty_attaches_leave_one_directory_and_never_take_a_fresh_one(
    pool: Pool, host: Cluster, name: str
) -> None:
    """Pitfall 18: what has ended is collected, though its maker lives; what is in use never is."""
    inp = pool.consumer(name)
    for value in range(20):
        with pool.producer(name, dtype="uint32", shape=(4,), slots=8) as out:
            stream_id, epoch = out.stream_id, out.epoch
            out.publish(frame(value))
            found = inp.poll(timeout=5)
            assert (found.copy()[0], found.info.epoch) == (value, epoch)
            assert epochs_of(host)[stream_id][-1] == epoch
    out = pool.producer(name, dtype="uint32", shape=(4,), slots=8)
    wait_until(lambda: epochs_of(host)[stream_id] == [out.epoch], what="old epochs are collected")
    out.publish(frame(99))
    assert inp.poll(timeout=5).copy()[0] == 99


@pytest.mark.req("DRV-4.4-2", "DRV-4.4-5")
@pytest.mark.parametrize("layout", ["separate", pytest.param("one-stream", marks=pytest.mark.slow)])
def test_leases_outlive_a_program_that_is_busy(layout: str) -> None:
    """Pitfalls 19 and 20: nobody polls for five lease times; for some of it not even Python runs."""
    with quick_host(layout) as host, Ear(host) as ear:
        stay_busy(host, ear)


def stay_busy(host: Cluster, ear: Ear) -> None:
    program = host.run_python(
        f"""
        import ctypes
        out = pool.producer("camera-1", dtype="uint32", shape=(4,))
        inp = pool.consumer("camera-1", wait_s=5)
        print(out.stream_id)
        ctypes.PyDLL(None).usleep(int({2 * LEASE_S} * 1e6))  # with the interpreter lock held
        time.sleep({3 * LEASE_S})
        out.publish(np.ones(4, "uint32"))
        inp.poll(timeout=1).copy()
        print(out.stats.lease_losses, inp.stats.reconnects, inp.stats.remaps)
        time.sleep(60)
        """
    )
    stream_id = int(program.read_line())
    with ear.admin() as admin:
        before = {lease.role: lease for lease in admin.leases(stream_id)}
        assert set(before) == set(Role)
        assert program.read_line() == "0 0 0"
        after = {lease.role: lease for lease in admin.leases(stream_id)}
    for role in Role:
        assert after[role].lease_id == before[role].lease_id
        assert after[role].expiry_timestamp_ns - before[role].expiry_timestamp_ns > 4 * LEASE_S * 1e9
    program.kill()


@pytest.mark.quiet
@pytest.mark.req("DRV-4.4-3")
def test_leases_that_are_shorter_than_the_interval_of_a_client_are_kept() -> None:
    settings = {"client__keepalive_interval_ms": 5_000, "driver__keepalive_interval_ms": 200}
    with quick_host(**settings) as host, host.connect() as pool, producer_of(pool, "short") as out:
        inp = pool.consumer("short", wait_s=5)
        deadline = time.monotonic() + 3.0  # five times such a lease
        wait_until(lambda: time.monotonic() > deadline, what="the time of several leases")
        assert (out.stats.lease_losses, inp.stats.reconnects) == (0, 0)


@pytest.mark.quiet
@pytest.mark.req("DRV-4.4-2", "DRV-4.8-4", "DRV-4.5-1")
def test_keepalives_begin_at_once_and_ids_are_never_zero(pool: Pool, ear: Ear, name: str) -> None:
    """Pitfall 19: the first keepalive, the ids of leases, and where they travel."""
    with pool.producer(f"{name}-first", dtype="uint32", shape=(4,)):
        pass  # a young driver is deaf, and whoever is first may have to ask twice (ADR 7)
    out = pool.producer(name, dtype="uint32", shape=(4,))
    inps = [pool.consumer(name, wait_s=5) for _ in range(3)]
    wait_until(lambda: len(ear.all_of(ShmLeaseKeepalive, stream_id=out.stream_id)) >= 12)
    responses = ear.all_of(ShmAttachResponse, stream_id=out.stream_id)
    keepalives = ear.all_of(ShmLeaseKeepalive, stream_id=out.stream_id)
    requests = ear.all_of(ShmAttachRequest, stream_id=out.stream_id)
    assert len(responses) == len(requests) == len({r.client_id for r in requests}) == 4
    assert all(r.client_id for r in requests)
    assert all(k.client_id for k in keepalives)
    for response in responses:
        sent = [k.client_timestamp_ns for k in keepalives if k.lease_id == response.lease_id]
        granted_ns = response.lease_expiry_timestamp_ns - round(LEASE_S * 1e9)
        assert sent[0] < response.lease_expiry_timestamp_ns
        assert sent[0] - granted_ns < 300_000_000, "the first one comes within one interval"
        assert sent == sorted(sent)
    assert ear.sources_of(ShmLeaseKeepalive) <= {"control", "control+announce+descriptor+qos+metadata"}
    assert len(inps) == 3
