"""Hosts with networks of their own: what travels between them, what does not, and what is left of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tensor_pool.errors import ConfigError
from tensor_pool.testing import Cluster, Host, TwoHosts, namespaces, wait_until
from tensor_pool.testing.namespaces import ip
from tensor_pool.transport import AeronClient, AeronPublication, AeronSubscription

GROUP = "224.77.0.1:40124"
QUICK = {"log.level": "error"}

SMALL_WINDOW = "|rcv-wnd=32k"
"""For subscriptions: no burst is longer than a socket holds. Aeron's own window of 128 KiB is too long for a
socket of 128 KiB, since the kernel counts more than the bytes of small datagrams."""

# The reason is found when a test begins: collecting tests makes no namespaces.
needs_namespaces = pytest.mark.usefixtures("namespaces_allowed")


@pytest.fixture(scope="module")
def namespaces_allowed() -> None:
    if reason := TwoHosts.why_not():
        pytest.skip(reason)


@pytest.fixture(scope="module")
def hosts(namespaces_allowed: None) -> Iterator[TwoHosts]:
    with TwoHosts(QUICK) as two:
        yield two


def numbered(count: int) -> list[bytes]:
    return [number.to_bytes(4, "little") * 256 for number in range(count)]


def send_all(
    publication: AeronPublication, messages: list[bytes], *to: AeronSubscription
) -> list[list[bytes]]:
    """Sends messages as fast as they are taken; what each subscription got, once it has as many."""
    received: list[list[bytes]] = [[] for _ in to]
    waiting = iter(messages)
    message = next(waiting, None)

    def all_there() -> bool:
        nonlocal message
        while message is not None and publication.offer(message):
            message = next(waiting, None)
        for subscription, got in zip(to, received, strict=True):
            got.extend(subscription.receive(200))
        return all(len(got) >= len(messages) for got in received)

    wait_until(all_there, 20, what="all messages")
    return received


@pytest.mark.parametrize("kind", ["unicast", "multicast"])
def test_messages_travel_between_the_hosts(hosts: TwoHosts, kind: str) -> None:
    left, right = hosts
    channel = f"aeron:udp?endpoint={GROUP if kind == 'multicast' else f'{right.address}:40123'}"
    with AeronClient.connect(left.aeron_dir) as here, AeronClient.connect(right.aeron_dir) as there:
        subscription = there.add_subscription(channel + SMALL_WINDOW, 7)
        publication = here.add_publication(channel, 7)
        assert publication.wait_connected(10_000)

        assert send_all(publication, numbered(200), subscription) == [numbered(200)]

        # From this process, whose own network has neither address: the media drivers are in theirs.
        assert subscription.images()[0].source_identity.startswith(f"{left.address}:")
    assert right.media_counter("Bytes received") > 200 * 1024


@pytest.mark.usefixtures("hosts")
def test_a_loopback_ends_at_its_host(hosts: TwoHosts) -> None:
    left, right = hosts
    channel = "aeron:udp?endpoint=127.0.0.1:40125"
    with AeronClient.connect(left.aeron_dir) as here, AeronClient.connect(right.aeron_dir) as there:
        mine, theirs = here.add_subscription(channel, 7), there.add_subscription(channel, 7)
        publication = here.add_publication(channel, 7)
        assert publication.wait_connected(10_000)

        assert send_all(publication, [b"hello"], mine) == [[b"hello"]]
        assert theirs.receive() == []
        assert not theirs.connected


def test_programs_run_in_the_network_of_their_host(hosts: TwoHosts) -> None:
    script = "import os; print(os.readlink('/proc/self/ns/net'))"
    networks = [host.run_python(script).read_line() for host in hosts]

    assert len({*networks, str(Path("/proc/self/ns/net").readlink())}) == 3


def test_each_host_has_streams_of_its_own(hosts: TwoHosts) -> None:
    left, right = hosts
    with left.connect() as here, right.connect() as there:
        out = here.producer("camera-1", dtype="uint8", shape=(4,))
        reader = left.run_python(
            """
            inp = pool.consumer("camera-1", wait_s=10)
            print(inp.poll(timeout=10).copy().sum())
            """
        )
        out.publish(np.ones(4, "uint8"))
        assert reader.read_line() == "4"
        assert [stream.name for stream in here.streams()] == ["camera-1"]
        assert there.streams() == []


def test_a_pulled_cable_stops_messages_and_a_plugged_one_lets_them_through(hosts: TwoHosts) -> None:
    left, right = hosts
    channel = f"aeron:udp?endpoint={right.address}:40126"
    with AeronClient.connect(left.aeron_dir) as here, AeronClient.connect(right.aeron_dir) as there:
        subscription = there.add_subscription(channel, 7)
        publication = here.add_publication(channel, 7)
        assert publication.wait_connected(10_000)
        assert send_all(publication, [b"before"], subscription) == [[b"before"]]
        heartbeats = right.media_counter("Heartbeats received")

        right.unplug()
        try:
            assert publication.offer(b"meanwhile")
            sent = left.media_counter("Heartbeats sent")
            wait_until(lambda: left.media_counter("Heartbeats sent") > sent + 2, what="heartbeats for nobody")
            assert right.media_counter("Heartbeats received") <= heartbeats + 1  # one may have been under way
            assert subscription.receive() == []
        finally:
            right.plug_in()

        assert send_all(publication, [b"after"], subscription)[0][0] == b"meanwhile"


def test_multicast_works_again_after_the_cable_was_pulled(hosts: TwoHosts) -> None:
    left, right = hosts
    for host in hosts:
        host.unplug()
        host.plug_in()
    with AeronClient.connect(left.aeron_dir) as here, AeronClient.connect(right.aeron_dir) as there:
        subscription = there.add_subscription(f"aeron:udp?endpoint={GROUP}", 8)
        publication = here.add_publication(f"aeron:udp?endpoint={GROUP}", 8)
        assert publication.wait_connected(10_000)
        assert send_all(publication, [b"hello"], subscription) == [[b"hello"]]


@needs_namespaces
def test_three_hosts_hear_the_same_group() -> None:
    if reason := TwoHosts.why_not(3):
        pytest.skip(reason)
    channel = f"aeron:udp?endpoint={GROUP}"
    with TwoHosts(QUICK, count=3, driver=False) as hosts:
        clients = [AeronClient.connect(host.aeron_dir) for host in hosts]
        first, second = (client.add_subscription(channel, 7) for client in clients[1:])
        publication = clients[0].add_publication(channel, 7)
        wait_until(lambda: first.connected and second.connected, what="both to hear it")

        assert send_all(publication, numbered(20), first, second) == [numbered(20)] * 2
        for client in clients:
            client.close()


@needs_namespaces
def test_aerons_own_loss_happens_and_is_repaired() -> None:
    """With 5 % in both directions: data, status messages and NAKs."""
    with TwoHosts(QUICK, driver=False, loss=0.05) as (left, right):
        channel = f"aeron:udp?endpoint={right.address}:40123"
        with AeronClient.connect(left.aeron_dir) as here, AeronClient.connect(right.aeron_dir) as there:
            subscription = there.add_subscription(channel + SMALL_WINDOW, 7)
            publication = here.add_publication(channel, 7)
            assert publication.wait_connected(10_000)

            assert send_all(publication, numbered(2_000), subscription) == [numbered(2_000)]

        assert right.media_counter("NAKs sent") > 20
        assert left.media_counter("Retransmits sent") > 20
        answers = [
            host.media_counter(f"NAKs {what}") + host.media_counter(f"Status Messages {what}")
            for host, what in ((right, "sent"), (left, "received"))
        ]
        assert answers[0] - answers[1] > 3


@needs_namespaces
def test_each_host_can_have_a_loss_of_its_own() -> None:
    before = own_namespaces()
    with pytest.raises(ConfigError, match="1 rates of loss for 2 hosts"):
        TwoHosts(loss=[0.1])
    with pytest.raises(ConfigError, match=r"the loss is 1\.5"):
        TwoHosts(loss=[None, 1.5], driver=False)
    assert own_namespaces() == before


def own_namespaces() -> set[str]:
    return {name for name in ip("netns", "list").split() if name.startswith(f"tpool-test-{os.getpid()}-")}


@needs_namespaces
def test_nothing_is_left_when_a_test_fails() -> None:
    before = own_namespaces()
    seen: list[Host] = []
    with pytest.raises(ZeroDivisionError), TwoHosts(QUICK, driver=False) as hosts:
        seen += hosts
        assert len(own_namespaces() - before) == 2
        _ = 1 / 0
    hosts.close()  # again

    assert own_namespaces() == before
    assert all(host.media.exit_code is not None for host in seen)
    assert not any(Path(host.directory).exists() for host in seen)


@needs_namespaces
def test_what_a_killed_process_left_is_removed() -> None:
    script = """
import subprocess, sys, time
from tensor_pool.testing import namespaces
name = namespaces.make_namespace()
inside = subprocess.Popen(namespaces.command_inside(name, ["sleep", "1000"]))
while not namespaces.ip("netns", "pids", name).split():
    time.sleep(0.01)
print(name, inside.pid, flush=True)
time.sleep(1000)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        name, sleeper = child.stdout.readline().split()
        assert name not in namespaces.remove_stale()  # whose process lives
        child.kill()
    assert name in ip("netns", "list")

    with TwoHosts(QUICK, driver=False):
        assert name not in ip("netns", "list")
    wait_until(lambda: has_ended(int(sleeper)), what="what ran there to end")


def has_ended(pid: int) -> bool:
    """Also when nobody has asked for its exit code yet."""
    try:
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except FileNotFoundError:
        return True


def test_without_the_right_it_says_what_is_missing() -> None:
    if shutil.which("setpriv") is None:
        pytest.skip("there is no setpriv to give rights away with")
    drop = [] if os.getuid() else ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
    script = "from tensor_pool.testing import TwoHosts; print(TwoHosts.why_not()); TwoHosts()"
    done = subprocess.run(
        [*drop, sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.startswith("no network namespaces here: ip netns add tpool-test-")
    assert "need root" in done.stdout
    assert "ConfigError" in done.stderr


def test_without_iproute2_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespaces, "_USUAL_PATH", "")
    monkeypatch.setenv("PATH", "/nonexistent")
    assert "apt-get install iproute2" in str(namespaces.why_not.__wrapped__())


@pytest.mark.parametrize("count", [-1, 0, 1, 65])
def test_a_number_of_hosts_that_makes_no_sense(count: int) -> None:
    with pytest.raises(ConfigError, match=f"{count} hosts"):
        TwoHosts(count=count)


def test_a_namespace_that_does_not_exist() -> None:
    with pytest.raises(AssertionError, match="no-such-namespace"):
        Cluster(netns="no-such-namespace")


def test_a_media_driver_names_the_counters_that_it_has(hosts: TwoHosts) -> None:
    with pytest.raises(LookupError, match=r"no counter 'Naks'.*NAKs sent"):
        hosts.hosts[0].media_counter("Naks")
