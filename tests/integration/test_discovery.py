"""Streams are found: by the driver's own provider, and by a registry that hears of several drivers."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import tensor_pool as tp
from bridges import free_endpoints
from discoveries import request
from tensor_pool.errors import NoDriverError, NoStreamError
from tensor_pool.host.discovery import Registry, Searching
from tensor_pool.pool.discovering import DiscoveryClient, FoundStream, ProviderAddress
from tensor_pool.testing import Cluster, wait_until
from tensor_pool.transport import AeronClient
from tensor_pool.wire import decode, encode
from tensor_pool.wire.messages import DiscoveryResponse, DiscoveryResult, DiscoveryStatus

PERIOD_MS = 100
QUICK = {"driver.announce_interval_ms": PERIOD_MS, "discovery.announce_period_ms": PERIOD_MS}
EXPIRY_S = 3 * PERIOD_MS / 1000


@pytest.fixture(scope="module")
def host() -> Iterator[Cluster]:
    with Cluster(QUICK) as cluster:
        yield cluster


@pytest.fixture
def pool(host: Cluster) -> Iterator[tp.Pool]:
    with host.connect() as pool:
        yield pool


@pytest.fixture
def searching(host: Cluster) -> Iterator[Searching]:
    with Searching(host.config) as searching:
        yield searching


def names(found: list[FoundStream]) -> list[str]:
    return sorted(stream.name for stream in found)


@pytest.mark.req("DSC-2.1-1", "DSC-4.2-2", "DSC-13-1", "DSC-5.1-1")
def test_a_driver_tells_of_its_streams_on_its_control_stream(
    host: Cluster, pool: tp.Pool, searching: Searching
) -> None:
    left = pool.producer(
        "left", dtype="uint8", shape=(4,), metadata={"tags": "cam,lab", "data_source_id": "7"}
    )
    right = pool.producer("right", dtype="uint8", shape=(4,), metadata={"tags": "cam"})
    with left, right:
        wait_until(lambda: names(searching.find(tags=["cam"])) == ["left", "right"])
        (found,) = wait_until(lambda: searching.find(name="left", tags=["cam", "lab"], data_source_id=7))
        assert found.driver_control_stream_id == host.config.streams.control_stream_id
        (known,) = [stream for stream in pool.streams() if stream.name == "left"]
        assert (found.stream_id, found.epoch) == (known.stream_id, known.epoch)
        assert tp.discover(tag="lab", config=host.config)[0].name == "left"
        assert [stream.name for stream in pool.streams(tag=["cam", "lab"])] == ["left"]
        assert [stream.name for stream in pool.streams(name="right")] == ["right"]
        assert [stream.name for stream in pool.streams(data_source_id=7, name="right")] == []
        assert searching.find(name="LEFT") == []
    wait_until(lambda: searching.find(tags=["cam"]) == [], timeout_s=10 * EXPIRY_S)


def test_a_new_epoch_is_in_the_answer_at_once(pool: tp.Pool, searching: Searching) -> None:
    epochs = []
    for _ in range(2):
        with pool.producer("again", dtype="uint8", shape=(4,)):
            (found,) = wait_until(lambda: searching.find(name="again"))
            epochs.append(found.epoch)
        wait_until(lambda: searching.find(name="again") == [])
    assert epochs[0] < epochs[1]


def test_a_stream_that_ended_is_not_found_by_its_id(pool: tp.Pool, searching: Searching) -> None:
    with pool.producer("ending", dtype="uint8", shape=(4,)) as out:
        stream_id = out.stream_id
        wait_until(lambda: searching.find(stream_id=stream_id))
    # Its memory stays announced for a minute.
    wait_until(lambda: searching.find(stream_id=stream_id) == [], timeout_s=10 * EXPIRY_S)


@pytest.mark.req("DSC-4.1-1", "DSC-4.3-1", "DSC-5.1-2", "DSC-5.0-1", "DSC-5.0-2", "DSC-10-5", "DSC-15-1")
def test_the_bytes_of_a_request(host: Cluster) -> None:
    provider = ProviderAddress("aeron:ipc", 4711)
    with AeronClient.connect(host.aeron_dir) as client, client.add_subscription(*provider) as listener:
        with DiscoveryClient(client, [provider]) as asking:
            assert asking.ask(timeout_s=0.3).answered == 0
        first, *again = listener.receive()
    assert first[:8].hex() == "200001008e030100"  # block length 32, template 1, schema 910, version 1
    assert first[24:40] == b"\xff" * 16
    asked = decode(first)
    assert asked.response_channel
    assert asked.response_stream_id
    assert again == [first] * len(again)


@pytest.mark.req(
    "DSC-5.2-2", "DSC-5.2-23", "DSC-10-2", "DSC-10-3", "DSC-5.2-11", "DSC-5.2-13", "DSC-5.2-18", "DSC-7-8"
)
def test_answers_that_are_not_ours_or_not_sound_are_ignored(host: Cluster, pool: tp.Pool) -> None:
    liar = ProviderAddress("aeron:ipc", 4712)
    with (
        pool.producer("sound", dtype="uint8", shape=(4,)),
        AeronClient.connect(host.aeron_dir) as client,
        client.add_subscription(*liar) as questions,
        client.add_publication("aeron:ipc?term-length=4m", 7004) as answers,
        DiscoveryClient(client, [liar]) as asking,
    ):
        (real,) = wait_until(lambda: results_for("sound", client, host))

        def lie() -> None:
            (asked,) = wait_until(lambda: questions.receive(1))
            for answer in lies(decode(asked).request_id, real):
                answers.offer(answer)

        lying = threading.Thread(target=lie)
        lying.start()
        search = asking.ask(timeout_s=10)
        lying.join()
    assert (search.answered, search.unusable, search.errors) == (1, 5, ())
    assert [(stream.name, stream.epoch) for stream in search.streams] == [("sound", real.epoch)]


def results_for(name: str, client: AeronClient, host: Cluster) -> tuple[DiscoveryResult, ...]:
    """What the driver's provider says, byte by byte as it came."""
    streams = host.config.streams
    with (
        client.add_subscription("aeron:ipc?term-length=4m", 7104) as answers,
        client.add_publication(streams.control_channel, streams.control_stream_id) as line,
    ):
        line.wait_connected(5_000)
        line.offer(encode(request(response_stream_id=7104, data_source_name=name)))
        (data,) = wait_until(lambda: answers.receive(1))
        answer = decode(data)
        assert isinstance(answer, DiscoveryResponse)
        return answer.results


def lies(request_id: int, real: DiscoveryResult) -> Iterator[bytes]:
    """Answers of which one may be heard, and of that one its last two results, which are the same stream."""
    change, ok = msgspec.structs.replace, DiscoveryStatus.OK
    wrong_version = bytearray(encode(DiscoveryResponse(request_id, ok, (real,))))
    wrong_version[6] = 99
    yield bytes(wrong_version)
    yield encode(DiscoveryResponse(request_id + 1, ok, (real,)))
    unusable = (
        change(real, driver_control_channel=""),
        change(real, driver_control_stream_id=0),
        change(real, header_slot_bytes=128),
        change(real, max_dims=4),
        change(real, header_nslots=real.header_nslots * 2),
    )
    yield encode(DiscoveryResponse(request_id, ok, (*unusable, real, change(real, epoch=real.epoch - 1))))
    yield encode(DiscoveryResponse(request_id, DiscoveryStatus.ERROR, (real,), "no"))


def test_a_client_sees_what_rules_show_to_its_id() -> None:
    rules = [{"clients": [[1, 999]], "names": ["camera-*"]}, {"tags": ["public"]}]
    with (
        tp.connect(embedded=True, settings={**QUICK, "discovery.access": rules}) as pool,
        pool.producer("camera-left", dtype="uint8", shape=(4,), metadata={"tags": "cam"}),
        pool.producer("microphone", dtype="uint8", shape=(4,), metadata={"tags": "public"}),
        tp.connect(pool.aeron_dir, settings={"discovery.client_id": 7}) as known,
    ):

        def seen(client_id: int) -> list[str]:
            return names(tp.discover(aeron_dir=pool.aeron_dir, settings={"discovery.client_id": client_id}))

        wait_until(lambda: seen(7) == ["camera-left", "microphone"])
        assert seen(1_000) == seen(0) == ["microphone"]
        assert [stream.name for stream in known.streams(tag="cam")] == ["camera-left"]
        assert pool.streams(tag="cam") == []


def test_endpoints_that_nobody_listens_to_slow_nobody_down(
    host: Cluster, pool: tp.Pool, searching: Searching
) -> None:
    streams = host.config.streams
    with (
        pool.producer("wanted", dtype="uint8", shape=(4,)),
        AeronClient.connect(host.aeron_dir) as client,
        client.add_publication(streams.control_channel, streams.control_stream_id) as line,
    ):
        wait_until(lambda: searching.find(name="wanted"))
        line.wait_connected(5_000)
        for number in range(1_000):
            nowhere = f"aeron:udp?endpoint=127.0.0.1:{30_000 + number}"
            line.offer(encode(request(request_id=number, response_channel=nowhere)))
        assert names(searching.find(name="wanted", timeout_s=2)) == ["wanted"]
        assert [stream.name for stream in pool.streams(name="wanted")] == ["wanted"]


def test_nobody_answers(host: Cluster) -> None:
    config = host.config.replace({"discovery.stream_id": 4713})
    with pytest.raises(NoDriverError):
        tp.discover(config=config, timeout_s=0.2)


@pytest.mark.req("DSC-2.2-1", "DSC-4.2-1", "DSC-6.1-1", "DSC-13-2", "DSC-9-1")
def test_a_registry_knows_the_streams_of_several_hosts(tmp_path: Path) -> None:
    feeds, queries = free_endpoints(2), free_endpoints(2)
    file = tmp_path / "registries.toml"
    file.write_text(
        "".join(
            f'[[discovery.registries]]\nchannel = "aeron:udp?endpoint={feed}"\nstream_id = 7001\n'
            for feed in feeds
        )
    )
    with contextlib.ExitStack() as resources:
        hosts = []
        for name in ("host-a", "host-b"):
            hosts.append(resources.enter_context(Cluster({**QUICK, "discovery.host": name}, driver=False)))
            hosts[-1].start_driver(f"--config={file}")
        for feed, query in zip(feeds, queries, strict=True):
            settings = {
                "discovery.channel": f"aeron:udp?endpoint={query}",
                "discovery.stream_id": 7010,
                "discovery.sources": [{"channel": f"aeron:udp?endpoint={feed}"}],
            }
            resources.enter_context(Registry(hosts[0].config.replace(settings)))
        pools = [resources.enter_context(host.connect()) for host in hosts]
        for pool in pools:
            resources.enter_context(
                pool.producer(20_001, dtype="uint8", shape=(4,), metadata={"tags": "fleet"})
            )
        providers = [{"channel": f"aeron:udp?endpoint={query}", "stream_id": 7010} for query in queries]
        asking = [
            resources.enter_context(
                Searching(
                    hosts[1].config.replace({"discovery.providers": [each], "discovery.stream_id": 4714})
                )
            )
            for each in providers
        ]

        def heard(searching: Searching) -> list[tuple[str, int]]:
            found = searching.find(tags=["fleet"], timeout_s=0.3)
            return sorted((each.host, each.stream_id) for each in found)

        both = [("host-a", 20_001), ("host-b", 20_001)]
        wait_until(lambda: [heard(each) for each in asking] == [both, both], timeout_s=30)
        assert hosts[0].driver is not None
        hosts[0].driver.kill()
        wait_until(lambda: [heard(each) for each in asking] == [both[1:], both[1:]], timeout_s=30)


@pytest.mark.parametrize("command", ["driver run", "up"])
def test_a_registry_elsewhere_is_told_that_a_driver_ends(tmp_path: Path, command: str) -> None:
    """Also where the media driver ends with it, so that the last word must go out before."""
    feed, queries = free_endpoints(2)
    file = tmp_path / "told.toml"
    file.write_text(
        f'[[discovery.registries]]\nchannel = "aeron:udp?endpoint={feed}"\nstream_id = 7001\n'
        "[driver]\nannounce_interval_ms = 100\n"
    )
    slow_to_forget = {
        "discovery.channel": f"aeron:udp?endpoint={queries}",
        "discovery.sources": [{"channel": f"aeron:udp?endpoint={feed}"}],
        "discovery.announce_period_ms": 20_000,
    }
    asks = {
        "discovery.providers": [{"channel": f"aeron:udp?endpoint={queries}"}],
        "discovery.stream_id": 4715,
    }
    with (
        Cluster(driver=False) as elsewhere,
        Cluster(driver=False) as host,
        Registry(elsewhere.config.replace(slow_to_forget)),
        Searching(elsewhere.config.replace(asks)) as searching,
    ):
        if command == "up":
            host.media.terminate()
        ending = host.start(*command.split(), f"--config={file}")
        ending.read_line()
        host.run_python('out = pool.producer("brief", dtype="uint8", shape=(4,))\ntime.sleep(60)')
        wait_until(lambda: searching.find(name="brief"), timeout_s=30)
        ending.terminate()
        wait_until(lambda: searching.find(name="brief") == [], timeout_s=20)  # unasked it takes a minute


def test_hosts_of_one_name_are_told_apart(tmp_path: Path) -> None:
    """Machines made from one image, which nobody gave a name of their own."""
    feed, queries = free_endpoints(2)
    file = tmp_path / "clone.toml"
    file.write_text(
        f'[[discovery.registries]]\nchannel = "aeron:udp?endpoint={feed}"\nstream_id = 7001\n'
        f'[[discovery.providers]]\nchannel = "aeron:udp?endpoint={queries}"\n'
    )
    registry = {
        "discovery.channel": f"aeron:udp?endpoint={queries}",
        "discovery.sources": [{"channel": f"aeron:udp?endpoint={feed}"}],
    }
    with Cluster(QUICK, driver=False) as one, Cluster(QUICK, driver=False) as other:
        for clone in (one, other):
            clone.start_driver(f"--config={file}")
        with (
            Registry(one.config.replace(registry)),
            one.connect() as pool,
            other.connect() as far,
            pool.producer("near", dtype="uint8", shape=(4,)) as near,
            far.producer("far", dtype="uint8", shape=(4,)) as distant,
        ):
            assert near.stream_id == distant.stream_id
            asks = {"discovery.providers": [{"channel": f"aeron:udp?endpoint={queries}"}]}
            config = one.config.replace(asks)
            wait_until(lambda: names(tp.discover(config=config)) == ["far", "near"], timeout_s=30)
            with tp.connect(config=config) as client:
                client.consumer("near").close()
                with pytest.raises(NoStreamError, match="bridge"):
                    client.consumer("far", wait_s=0.2)
