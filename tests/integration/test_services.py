"""Services over a real media driver: commands between processes, floods, lies, restarts and other hosts."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import tensor_pool as tp
from bridges import free_endpoints
from pool_hosts import quick_host
from tensor_pool.control import Command, FrameRef, Property
from tensor_pool.control.events import EventForm, event_message
from tensor_pool.errors import CommandRefusedError, NoServiceError
from tensor_pool.host.aeron import connect
from tensor_pool.ops.cli.asking import admin_client
from tensor_pool.testing import Cluster, Process, wait_until
from tensor_pool.transport import OfferResult, read_counters
from tensor_pool.wire.messages import Format

FLOOD = 1_000_000
LAMP = """
    from tensor_pool.control import Command, Property
    service = tp.Service(
        "lamp",
        instance=INSTANCE,
        properties={"brightness": Property(float, default=0.0, least=0, most=1)},
        commands={"blink": Command(lambda _: None)},
        config=config,
    )
    print("ready")
    sys.stdin.readline()
    service.close()
"""


@pytest.fixture(scope="module")
def host() -> Iterator[Cluster]:
    with quick_host(control__status_period_ms=200) as cluster:
        yield cluster


@pytest.fixture
def control(host: Cluster) -> Iterator[tp.ControlClient]:
    with tp.ControlClient(config=host.config) as client:
        yield client


def lamp(host: Cluster, instance: str = "") -> Process:
    process = host.run_python(LAMP.replace("INSTANCE", repr(instance)))
    assert process.read_line() == "ready"
    return process


def refused(host: Cluster, tag: str, reason: str) -> int:
    label = f"{tag}: commands refused ({reason})"
    return sum(reading.value for reading in read_counters(host.aeron_dir) if reading.label == label)


@pytest.mark.req("SVC-4-3", "SVC-5-1", "SVC-7-1", "SVC-7-2")
def test_processes_command_each_other(host: Cluster, control: tp.ControlClient) -> None:
    first, second = lamp(host, "1"), lamp(host, "2")
    echo = control.send("lamp:2", "brightness", 0.5, correlation_id=42)
    assert (echo.tag, echo.key, echo.value, echo.correlation_id) == ("service:lamp:2", "brightness", 0.5, 42)
    assert echo.source == "aeron:ipc"
    found = {known.info.tag: known for known in control.services()}
    assert found["service:lamp:1"].values == {"brightness": 0.0}
    assert found["service:lamp:2"].values == {"brightness": 0.5}
    assert found["service:lamp:2"].info.pid == second.pid
    with pytest.raises(CommandRefusedError, match=r"2\.0 is not a number from 0 up to 1"):
        control.send("lamp:1", "brightness", 2.0)
    with pytest.raises(NoServiceError):
        control.send("lamp", "blink", timeout_s=0.3)
    second.kill()
    again = lamp(host, "2")
    assert control.send("lamp:2", "blink").tag == "service:lamp:2", "the same tag as before"
    for process in (first, again):
        process.say("")
        assert process.wait() == 0
    assert "service:lamp:2" not in {known.info.tag for known in control.services()}


@pytest.mark.req("SVC-5-4")
def test_a_million_foreign_messages_allocate_nothing(host: Cluster, control: tp.ControlClient) -> None:
    with tp.Service("quiet", properties={"on": Property(bool, default=False)}, config=host.config) as service:
        foreign = EventForm().encode(event_message("service:quiex", "on", value=True))
        with connect(host.config.aeron) as client:
            flood = client.add_publication("aeron:ipc", 1400)
            assert flood.wait_connected(10_000)
            _offer(flood, foreign, 20_000)
            blocks, memory = sys.getallocatedblocks(), _own_bytes()
            _offer(flood, foreign, FLOOD)
            wait_until(lambda: service.ignored >= FLOOD + 20_000, timeout_s=60)
            grown, grown_bytes = sys.getallocatedblocks() - blocks, _own_bytes() - memory
        print(f"{FLOOD:,} foreign messages: {grown} blocks, {grown_bytes:,} bytes more")
        assert grown < 2_000, "one in five hundred would be two thousand"
        assert grown_bytes < 1 << 20
        assert control.send("quiet", "on", value=True).value is True


def _offer(publication, message: bytes, count: int) -> None:
    while count:
        result = publication.offer(message)
        if result is OfferResult.SENT:
            count -= 1
        else:
            assert result is not OfferResult.NOT_CONNECTED
            time.sleep(0.0005)


def _own_bytes() -> int:
    """Memory of our own, without the logs of streams, which everybody shares."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("RssAnon:")[2].split()[0]) << 10


def test_floods_of_refused_commands_are_counted_and_bounded(host: Cluster, control: tp.ControlClient) -> None:
    with tp.Service(
        "patient", properties={"on": Property(bool, default=False)}, config=host.config
    ) as patient:
        form = EventForm()
        lies = [
            form.encode(event_message("service:patient", "nothing", 1)),
            form.encode(event_message("service:patient", "on", "yes" * 10_000)),
            form.encode(event_message("service:patient", "on", FrameRef(1, 2, 3))),
            form.encode(event_message("service:patient", "on", value=True))[:-1],
        ]
        with connect(host.config.aeron) as client:
            flood = client.add_publication("aeron:ipc", 1400)
            assert flood.wait_connected(10_000)
            for lie in lies:
                _offer(flood, lie, 500)
        wait_until(lambda: refused(host, patient.tag, "malformed") >= 500, timeout_s=30)
        assert refused(host, patient.tag, "unknown_key") == 500
        assert refused(host, patient.tag, "wrong_value") == 1_000
        assert patient["on"] is False
        assert control.send("patient", "on", value=True).value is True


def test_commands_that_are_too_many_are_counted(host: Cluster) -> None:
    release = threading.Event()
    with tp.Service(
        "busy", commands={"work": Command(lambda _: release.wait(30))}, config=host.config
    ) as busy:
        command = EventForm().encode(event_message("service:busy", "work", None))
        with connect(host.config.aeron) as client:
            flood = client.add_publication("aeron:ipc", 1400)
            assert flood.wait_connected(10_000)
            _offer(flood, command, 10_000)
            release.set()
            wait_until(lambda: refused(host, busy.tag, "overflowed") >= 1_000, timeout_s=30)


@pytest.mark.parametrize("where", ["command", "refresh"])
def test_a_service_may_end_itself(host: Cluster, control: tp.ControlClient, where: str) -> None:
    should_end = threading.Event()

    def quit_now(_: object) -> None:
        if where == "command":
            service.close()
        should_end.set()

    def refresh(_: tp.Service) -> None:
        if should_end.is_set():
            service.close()

    threads = threading.active_count()
    service = tp.Service("mortal", commands={"quit": Command(quit_now)}, refresh=refresh, config=host.config)
    assert control.send("mortal", "quit").key == "quit", "accepted, and told so"
    wait_until(lambda: not service.is_running)
    service.close()
    wait_until(lambda: threading.active_count() == threads)


def test_every_format_gets_through(host: Cluster, control: tp.ControlClient) -> None:
    taken: list = []
    kinds = {"int": int, "float": float, "str": str, "bytes": bytes, "ref": FrameRef, "bool": bool}
    commands = {name: Command(taken.append, kind=kind) for name, kind in kinds.items()}
    with tp.Service("echo", commands={**commands, "none": Command(taken.append)}, config=host.config):
        sent = [
            *(("int", number, Format[name]) for name, number in {"UINT8": 255, "INT16": -9}.items()),
            ("int", 2**64 - 1, Format.UINT64),
            ("float", 0.5, Format.FLOAT32),
            ("float", 0.1, None),
            ("bool", True, Format.BIT),
            ("str", "µm " * 1_000, None),
            ("bytes", bytes(range(256)), None),
            ("ref", FrameRef(10_000, 3, 42), None),
            ("none", None, None),
        ]
        for key, value, kind in sent:
            assert control.send("echo", key, value, format=kind).value == value
    assert taken == [value for _, value, _ in sent]


def test_late_subscribers_hear_the_state(host: Cluster) -> None:
    with tp.Service("late", properties={"count": Property(int, default=1)}, config=host.config) as service:
        service["count"] = 7
        with tp.ControlClient(tags=["late"], config=host.config) as late:
            seen = next(event for event in late.events(timeout_s=10) if event.key == "count")
        assert (seen.value, seen.correlation_id) == (7, 0)
        with pytest.raises(ValueError, match="is not a whole number"):
            service["count"] = "many"


def test_a_command_that_takes_long_holds_up_no_other_service(
    host: Cluster, control: tp.ControlClient
) -> None:
    go_on = threading.Event()
    slow = tp.Service("slow", commands={"work": Command(lambda _: go_on.wait(30))}, config=host.config)
    with slow, tp.Service("swift", commands={"work": Command(lambda _: None)}, config=host.config):
        with tp.ControlClient(config=host.config) as other, pytest.raises(NoServiceError):
            other.send("slow", "work", timeout_s=0.2)
        assert control.send("swift", "work").tag == "service:swift"
        go_on.set()


def test_a_service_survives_its_media_driver(host: Cluster) -> None:
    with quick_host(control__status_period_ms=200) as own:
        on = Property(bool, default=False)
        with tp.Service("steady", properties={"on": on}, config=own.config) as service:
            with tp.ControlClient(config=own.config) as control:
                control.send("steady", "on", value=True)
            own.media.kill()
            wait_until(lambda: not service.is_running, timeout_s=30)
            own.start_media()
            wait_until(lambda: service.is_running, timeout_s=30)
            with tp.ControlClient(config=own.config) as control:
                (known,) = control.services(only="steady", timeout_s=10)
                assert known.values == {"on": True}
                control.send("steady", "on", value=False)


def test_a_command_is_not_carried_out_again_by_who_comes_later(host: Cluster) -> None:
    """Aeron has a new subscriber begin where the slowest one is: here one that died unnoticed."""
    carried_out: list[object] = []
    commands = {"count": Command(carried_out.append, kind=int)}
    lamp(host, "dead").kill()
    with (
        tp.Service("heir", commands=commands, config=host.config),
        tp.ControlClient(config=host.config) as control,
    ):
        control.send("heir", "count", 1)
    with tp.Service("heir", commands=commands, config=host.config) as later:
        wait_until(lambda: refused(host, later.tag, "stale") == 1)
        with tp.ControlClient(config=host.config) as control:
            control.send("heir", "count", 2)
    assert carried_out == [1, 2]


class TestLinks:
    """Commands over UDP, and who may give them."""

    def settings(self, *, allowed: str) -> tuple[dict, dict]:
        there, here = free_endpoints(2)
        link = {"channel": f"aeron:udp?endpoint={there}", "status_channel": f"aeron:udp?endpoint={here}"}
        serving = {"control.links": [{"role": "serve", **link}], "control.access": [{"sources": [allowed]}]}
        commanding = {
            "control.links": [{"role": "command", **link}],
            "streams.service_control_stream_id": 1_450,  # nobody listens there: only the link leads to them
            "streams.service_status_stream_id": 1_451,
        }
        return serving, commanding

    def configs(self, host: Cluster, *, allowed: str) -> tuple:
        serving, commanding = self.settings(allowed=allowed)
        return host.config.replace(serving), host.config.replace(commanding)

    @pytest.mark.req("SVC-5-1")
    def test_commands_and_echoes_travel_over_udp(self, host: Cluster) -> None:
        serving, commanding = self.configs(host, allowed="127.0.0.1")
        on = Property(bool, default=False)
        with (
            tp.Service("far", properties={"on": on}, config=serving) as far,
            tp.ControlClient(config=commanding) as control,
        ):
            echo = control.send("far", "on", value=True, timeout_s=10)
            assert (echo.value, far["on"]) == (True, True)
            assert echo.source.startswith("127.0.0.1:")

    def test_a_command_is_not_carried_out_again_by_who_comes_later(self, host: Cluster) -> None:
        """The same as on the host itself, but the clocks of hosts differ."""
        there, here = self.settings(allowed="127.0.0.1")
        serving, commanding = host.config.replace(there), host.config.replace(here)
        carried_out: list[object] = []
        commands = {"count": Command(carried_out.append, kind=int)}
        dead = host.run_python(f"    config = config.replace({there!r})" + LAMP.replace("INSTANCE", "''"))
        assert dead.read_line() == "ready"
        with tp.ControlClient(config=commanding) as control:
            control.send("lamp", "brightness", 0.5, timeout_s=10)
            dead.kill()  # and is not missed for seconds
            with tp.Service("far", commands=commands, config=serving):
                control.send("far", "count", 1, timeout_s=10)
            with tp.Service("far", commands=commands, config=serving) as later:
                control.send("far", "count", 2, timeout_s=10)
                assert refused(host, later.tag, "stale") == 1
        assert carried_out == [1, 2]

    def test_who_is_not_allowed_is_told_so(self, host: Cluster) -> None:
        serving, commanding = self.configs(host, allowed="ipc")
        on = Property(bool, default=False)
        with (
            tp.Service("guarded", properties={"on": on}, config=serving) as guarded,
            tp.ControlClient(config=commanding) as stranger,
            tp.ControlClient(config=host.config) as local,
        ):
            with pytest.raises(CommandRefusedError, match=r"from 127\.0\.0\.1:\d+ are not allowed"):
                stranger.send("guarded", "on", value=True, timeout_s=10)
            assert guarded["on"] is False
            assert refused(host, guarded.tag, "not_allowed") == 1
            assert local.send("guarded", "on", value=True).value is True


def test_the_driver_ends_a_lease_by_command(host: Cluster, control: tp.ControlClient) -> None:
    with host.connect() as pool, admin_client(host.config) as admin:
        out = pool.producer("revocable", dtype="uint8", shape=(4,))
        out.publish(np.zeros(4, "uint8"))
        (lease,) = (each for each in admin.leases() if each.stream_id == out.stream_id)
        control.send("driver", "lease.revoke", lease.lease_id)
        wait_until(lambda: out.stats.reconnects >= 1, timeout_s=10)
        with pytest.raises(CommandRefusedError, match="no active lease 999999"):
            control.send("driver", "lease.revoke", 999_999)
        (known,) = control.services(only="driver")
        assert known.values["driver.state"] == "running"
