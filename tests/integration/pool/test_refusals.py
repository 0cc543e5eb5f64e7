"""What a program is told when it may not have what it asked for."""

from __future__ import annotations

import os
import time
import traceback

import msgspec
import numpy as np
import pytest

import tensor_pool as tp
from tensor_pool import wire
from tensor_pool.testing import Cluster, wait_until
from tensor_pool.wire.messages import ConsumerConfig, Mode


@pytest.fixture(scope="module")
def cluster():
    with Cluster({"client.hello_interval_ms": 100, "driver.max_stream_bytes": "64m"}) as cluster:
        yield cluster


@pytest.fixture
def pool(cluster):
    with cluster.connect() as pool:
        yield pool


def frame(value: int) -> np.ndarray:
    return np.full(4, value, "uint32")


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("", "no other way is offered"),
        ("aeron:udp?endpoint=nowhere", "is not an address"),
        ("carrier-pigeon://7", "is not known here"),
    ],
)
@pytest.mark.req("WIRE-10.1.3-3", "WIRE-15.22-18")
def test_shared_memory_may_be_forbidden_and_allowed_again(cluster, pool, uri, said):
    streams = cluster.config.streams
    out = pool.producer("forbidden", dtype="uint32", shape=(4,), slots=8)
    inp = pool.consumer("forbidden")
    out.publish(frame(1))
    assert inp.poll(timeout=5.0) is not None
    session = inp.session

    def tell(*, use_shm: bool) -> None:
        config = ConsumerConfig(
            out.stream_id, session.consumer_id, use_shm=use_shm, mode=Mode.STREAM, payload_fallback_uri=uri
        )
        pool._context.submit(lambda: session.agent.send(config))

    # The producer, which is the authority here, says otherwise with each hello: hellos are switched off.
    session._hello_timer.next_ns = 2**62
    tell(use_shm=False)
    wait_until(lambda: session.refusal is not None)
    assert streams.control_stream_id == 1000
    with pytest.raises(tp.NoStreamError, match=said) as caught:
        inp.poll()
    assert caught.value.hint
    assert inp.stats.state == "fallback"
    tell(use_shm=True)
    wait_until(lambda: inp.mapped, what="mapped again by the next announce")
    out.publish(frame(2))
    assert wait_until(inp.poll).copy()[0] == 2


def test_nobody_can_make_a_consumer_open_a_socket(pool):
    out = pool.producer("socket", dtype="uint32", shape=(4,), slots=8)
    inp = pool.consumer("socket", wait_s=5)
    session = inp.session
    session._hello_timer.next_ns = 2**62
    forged = ConsumerConfig(
        out.stream_id,
        session.consumer_id,
        use_shm=True,
        mode=Mode.STREAM,
        descriptor_stream_id=31_500,
        descriptor_channel="aeron:udp?endpoint=127.0.0.1:24325",
    )
    for config in (forged, msgspec.structs.replace(forged, descriptor_channel="aeron:ipc")):
        pool._context.submit(lambda config=config: session.agent.send(config))
    # The second one is heard after the first, and shows that both were.
    wait_until(lambda: session.streams.private is not None)
    assert session.streams.private.endpoint == ("aeron:ipc", 31_500)


def test_two_producers_of_one_stream(pool, cluster):
    with pool.producer("taken", dtype="uint32", shape=(4,), slots=8) as out:
        other = cluster.run_python(
            """
            try:
                pool.producer("taken", dtype="uint32", shape=(4,))
            except tp.AttachRefusedError as e:
                print(e.message)
            """
        )
        line = other.read_line()
        assert "REJECTED" in line
        assert "'taken'" in line
        assert out.publish(frame(1)) == 0


def test_a_second_producer_of_the_same_program_is_told_that_it_is_its_own(pool, cluster):
    with pool.producer("own", dtype="uint32", shape=(4,), slots=8):
        with pytest.raises(tp.AttachRefusedError, match="has a producer") as refused:
            pool.producer("own", dtype="uint32", shape=(4,))
        assert "this very program" in refused.value.hint
        with cluster.connect() as other, pytest.raises(tp.AttachRefusedError) as refused:
            other.producer("own", dtype="uint32", shape=(4,))
        assert "this very program" in refused.value.hint
        stranger = cluster.run_python(
            """
            try:
                pool.producer("own", dtype="uint32", shape=(4,))
            except tp.AttachRefusedError as e:
                print(e.hint)
            """
        )
        assert "was killed" in stranger.read_line()


def test_a_refusal_for_want_of_huge_pages_says_what_to_do(pool):
    with pytest.raises(tp.AttachRefusedError, match="huge pages are required") as refused:
        pool.producer("huge", dtype="uint32", shape=(4,), hugepages=True)
    assert "hugepages=True" in refused.value.hint
    assert "leases" not in refused.value.hint


def test_the_place_of_a_killed_producer_can_be_waited_for(pool, cluster):
    other = cluster.run_python(
        """
        out = pool.producer("inherited", dtype="uint32", shape=(4,), slots=8)
        print("ready", flush=True)
        time.sleep(60)
        """
    )
    assert other.read_line() == "ready"
    with pytest.raises(tp.AttachRefusedError, match=r"which ends in \d\.\d s unless") as refused:
        pool.producer("inherited", dtype="uint32", shape=(4,), slots=8, wait_s=0.2)
    assert refused.value.hint is not None
    assert "wait_s=" in refused.value.hint
    other.kill()
    with pool.producer("inherited", dtype="uint32", shape=(4,), slots=8, wait_s=30) as out:
        assert out.publish(frame(1)) == 0


def test_a_limit_is_named(pool):
    with pytest.raises(tp.AttachRefusedError, match="max_stream_bytes"):
        pool.producer("huge", max_bytes=1 << 20, slots=1024)


@pytest.mark.parametrize("stream", ["", "naïve", "tab\t", "x" * 256, 0, 2**32, -1])
def test_names_and_ids_that_can_not_be(pool, stream):
    with pytest.raises(tp.ConfigError):
        pool.consumer(stream)


@pytest.mark.parametrize(
    "wrong",
    [
        {"shape": (1.5,)},
        {"shape": ()},
        {"shape": (-1,)},
        {"shape": (1,) * 9},
        {"shape": np.array(4)},
        {"shape": np.array([4.5])},
        {"shape": np.ones((2, 2), "int64")},
        {"shape": "44"},
        {"shape": (4,), "dtype": None},
        {"max_bytes": -1},
        {"max_bytes": 1e3},
        {"slots": -4},
        {"slots": 2**40},
        {"slots": True},
        {"pools": []},
        {"pools": [-1]},
        {"pools": "ab"},
        {"pools": [64] * 70_000},
        {"rate_hz": float("nan")},
        {"rate_hz": float("inf")},
        {"rate_hz": 0},
        {"rate_hz": 5e6},
        {"rate_hz": 10**400},
        {"rate_hz": "10"},
        {"consumer_latency_s": float("nan")},
        {"order": "X"},
        {"clock": "X"},
        {"metadata": [1]},
        {"metadata": "exposure"},
        {"name": 5},
        {"attach": "no"},
        {"hugepages": 1},
        {"lock_memory": None},
        {"flush": 5},
    ],
    ids=str,
)
def test_wrong_arguments_are_refused_at_once(pool, wrong):
    with pytest.raises(tp.ConfigError, match=next(iter(wrong))):
        pool.producer("wrong", **{"dtype": "uint8", "shape": (4,), **wrong})


@pytest.mark.parametrize(
    "wrong",
    [
        {"start": "newest"},
        {"start": 1.5},
        {"start": -1},
        {"start": 2**64},
        {"start": np.array([1, 2])},
        {"mode": "Stream"},
        {"mode": "rate_limited"},
        {"max_rate_hz": -1},
        {"max_rate_hz": float("nan")},
        {"max_rate_hz": 2e9},
        {"max_rate_hz": 1e-300},
        {"max_rate_hz": np.array([1, 2])},
        {"max_rate_hz": "10"},
        {"max_outstanding_seq_gap": "x"},
        {"progress": "rows"},
        {"wait_s": "1"},
        {"wait_s": -1},
        {"wait_s": float("nan")},
        {"mode": ""},
    ],
    ids=str,
)
def test_wrong_arguments_of_consumers_are_refused_at_once(pool, wrong):
    with pytest.raises(tp.ConfigError, match=next(iter(wrong))):
        pool.consumer("wrong", **wrong)


@pytest.mark.parametrize("wrong", [{"embedded": "yes"}, {"driver": 0}, {"name": 5}], ids=str)
def test_wrong_arguments_of_connect_are_refused_before_anything_starts(cluster, wrong):
    with pytest.raises(tp.ConfigError, match=next(iter(wrong))) as caught:
        tp.connect(cluster.aeron_dir, **wrong)
    assert caught.value.hint


def test_a_time_that_is_no_time(pool):
    with pytest.raises(tp.ConfigError, match="timeout_s='1'"):
        pool.driver_status(timeout_s="1")


@pytest.mark.parametrize("shape", [np.array([2, 3]), range(2, 4), [2, 3], np.zeros((2, 3)).shape], ids=repr)
def test_shapes_come_in_any_sequence(pool, shape):
    with pool.producer("any-sequence", dtype="uint8", shape=shape, slots=8):
        (stream,) = pool.streams(name="any-sequence")
        assert stream.shape == (2, 3)


def test_numbers_of_numpy_are_numbers(pool):
    rate_hz, latency_s = np.float32(100), np.int64(1)
    with pool.producer("numpy", max_bytes=64, rate_hz=rate_hz, consumer_latency_s=latency_s) as out:
        (stream,) = pool.streams(name="numpy")
        assert stream.slots == 256
        with pool.consumer("numpy", wait_s=np.float32(5)) as inp:
            out.publish(b"1")
            assert tp.wait([inp], 10**400) == [inp], "longer than a float can say"


def test_more_slots_than_a_ring_may_have(pool):
    """The driver says which limit it is, before anything is made."""
    with pytest.raises(tp.AttachRefusedError, match="need 2,000,000 slots: a ring has at most 1,048,576"):
        pool.producer("too-long", max_bytes=64, rate_hz=1e6, consumer_latency_s=1)


@pytest.mark.parametrize(
    "wrong", [{"name": 5}, {"tag": 5}, {"tag": [5]}, {"tag": "\u00fc"}, {"data_source_id": "x"}], ids=str
)
def test_wrong_questions_about_streams(pool, wrong):
    with pytest.raises(tp.ConfigError, match=next(iter(wrong))):
        pool.streams(**wrong)


class TestNamesOfIds:
    """A stream that is given by its id may have a name; no two streams have the same."""

    def test_its_consumers_find_it(self, pool):
        with pool.producer(10_017, name="by-id", dtype="uint32", shape=(4,), slots=8) as out:
            assert (out.name, out.stream_id) == ("by-id", 10_017)
            out.publish(frame(1))
            assert pool.consumer("by-id", wait_s=5).poll(timeout=5.0).copy()[0] == 1

    def test_a_name_that_another_stream_has(self, pool):
        with pool.producer("dup", dtype="uint32", shape=(4,), slots=8) as out:
            said = f"'dup' is the name of stream {out.stream_id}, not of 10007"
            with pytest.raises(tp.AttachRefusedError, match=said) as caught:
                pool.producer(10_007, name="dup", dtype="uint32", shape=(4,), slots=8)
            assert "name" in caught.value.hint
            assert 10_007 not in [stream.stream_id for stream in pool.streams(ended=True)]

    def test_a_stream_that_has_another_name(self, pool):
        with pool.producer(10_018, name="first", dtype="uint32", shape=(4,), slots=8):
            pass
        with pytest.raises(tp.AttachRefusedError, match="stream 10018 is called 'first', not 'second'"):
            pool.producer(10_018, name="second", dtype="uint32", shape=(4,), slots=8)

    def test_two_names_at_once(self, pool):
        with pytest.raises(tp.ConfigError, match="two names, 'a' and name='b'"):
            pool.producer("a", name="b", dtype="uint32", shape=(4,))


class TestWaiting:
    @pytest.mark.parametrize("wrong", ["a", ["a"], None, 5, [None], b"a"], ids=repr)
    def test_for_what_is_no_consumer(self, wrong):
        with pytest.raises(tp.ConfigError, match="is no ") as caught:
            tp.wait(wrong, 1.0)
        assert "in a list" in caught.value.hint

    def test_for_one_consumer_without_a_list(self, pool):
        """It can be gone through, frame by frame: that would take for ever."""
        with pytest.raises(tp.ConfigError, match="is no list of consumers"):
            tp.wait(pool.consumer("nobody-produces-this"), 1.0)

    def test_for_a_producer(self, pool):
        with (
            pool.producer("no-consumer", dtype="uint32", shape=(4,), slots=8) as out,
            pytest.raises(tp.ConfigError, match="Producer of stream 'no-consumer', attached> is no consumer"),
        ):
            tp.wait([out], 1.0)

    @pytest.mark.parametrize("timeout", [None, "1", -1, float("nan"), True], ids=repr)
    def test_for_no_time(self, timeout):
        with pytest.raises(tp.ConfigError, match="timeout="):
            tp.wait([], timeout)

    def test_in_any_collection(self, pool):
        with pool.producer("waited", dtype="uint32", shape=(4,), slots=8) as out:
            inp = pool.consumer("waited", wait_s=5)
            out.publish(frame(1))
            assert tp.wait({inp}, 5) == tp.wait((each for each in [inp]), 5) == [inp]


class TestConnecting:
    @pytest.mark.parametrize(
        ("wrong", "said"),
        [
            ({"name": 5}, "name=5"),
            ({"settings": [1]}, r"settings=\[1\]"),
            ({"config": 5}, "config=5"),
            ({"aeron_dir": "/etc/passwd"}, "/etc/passwd is not a media driver's directory: it is a file"),
            ({"aeron_dir": "/etc"}, "/etc is not a media driver's directory: it holds"),
        ],
    )
    def test_what_can_not_be_is_said_at_once(self, cluster, wrong, said):
        begin = time.monotonic()
        with pytest.raises(tp.ConfigError, match=said) as caught:
            tp.connect(**{"aeron_dir": cluster.aeron_dir, **wrong})
        assert caught.value.hint
        assert time.monotonic() - begin < 1


def test_a_forged_announce_takes_no_lease_away(pool, cluster):
    out = pool.producer("steadfast", dtype="uint32", shape=(4,), slots=8)
    inp = pool.consumer("steadfast")
    lease = out._session.attachment.lease
    wait_until(lambda: out._session.attachment._driver_session is not None)
    with cluster.connect() as stranger:
        for epoch in (lease.epoch + 1, 2**64 - 1):
            forged = msgspec.structs.replace(
                lease.announce, epoch=epoch, producer_id=1, announce_timestamp_ns=time.monotonic_ns()
            )
            stranger._context.run(lambda forged=forged: stranger._context.agent.send_announce(forged))
    seen = out._session.agent.heard_driver_ns
    wait_until(lambda: out._session.agent.heard_driver_ns > seen + 1_000_000_000)
    assert (out.stats.lease_losses, out.epoch) == (0, lease.epoch)
    out.publish(frame(1))
    assert inp.poll(timeout=5.0).copy()[0] == 1


def test_announces_that_can_not_be_used_do_not_fill_the_log(pool, cluster, caplog):
    out = pool.producer("flooded", dtype="uint32", shape=(4,), slots=8)
    inp = pool.consumer(out.stream_id, attach=False, wait_s=5)  # with a lease it would not believe strangers
    announce = out._session.attachment.lease.announce
    refused = inp.session._mapping
    with cluster.connect() as stranger:

        def forge(number: int) -> None:
            forged = msgspec.structs.replace(
                announce,
                epoch=announce.epoch + number,
                announce_timestamp_ns=time.monotonic_ns(),
                header_region_uri=f"shm:file?path=/nowhere/{number}/header.ring",
            )
            stranger._context.run(lambda: stranger._context.agent.send_announce(forged))

        def refuses_the_last() -> bool:
            forge(200)  # again and again: who does not keep up for a moment loses messages
            return refused.failure is not None and "/200/" in str(refused.failure)

        for number in range(1, 200):
            forge(number)
        wait_until(refuses_the_last)
    lines = [record for record in caplog.records if "can't use the announced memory" in record.getMessage()]
    assert 1 <= len(lines) < 5, [record.getMessage() for record in lines]


def test_a_frame_that_is_too_large_is_counted_and_raised(pool):
    with pool.producer("small", dtype="uint8", shape=(64,), slots=8) as out:
        with pytest.raises(tp.FrameTooLargeError, match=r"128 bytes, .* has 64: uint16 8x8"):
            out.publish(np.zeros((8, 8), "uint16"))
        with pytest.raises(tp.FrameTooLargeError, match=r"65 bytes, .* has 64: uint8 65"):
            out.claim((65,), "uint8")
        assert out.stats.too_large == 2
        assert out.publish(np.zeros(64, "uint8")) == 0


def test_no_driver_is_said_quickly_and_with_what_to_try(tmp_path):
    with pytest.raises(tp.NoDriverError, match="no SHM driver answers") as caught:
        tp.connect(tmp_path / "nobody", settings={"client.attach_timeout_ms": 300})
    assert "tpool up" in caught.value.hint
    assert "there is no such directory" in str(caught.value)
    assert "Traceback" not in "".join(traceback.format_exception(caught.value)).partition("Traceback")[2]


def test_a_media_driver_without_an_shm_driver():
    with Cluster(driver=False) as cluster, pytest.raises(tp.NoDriverError, match="no SHM driver"):
        cluster.connect(settings={"client.attach_timeout_ms": 300})


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody else")
def test_another_user_is_told_about_permissions(cluster, pool):
    with pool.producer("private", dtype="uint32", shape=(4,), slots=8) as out:
        out.publish(frame(1))
        directory = cluster.settings["shm.shm_base_dir"]
        stranger = cluster.run_python(
            f"""
            import os
            os.chmod({directory!r}, 0o755)
            os.setuid(65534)
            try:
                pool.consumer("private", wait_s=5)
            except tp.TensorPoolError as e:
                print(type(e).__name__, e)
                print("end")
            """
        )
        lines = []
        while (line := stranger.read_line()) != "end":
            lines.append(line)
        said = "\n".join(lines)
        assert "Permission denied" in said, said


def test_publishing_raises_at_once_if_that_is_the_policy():
    with Cluster({"client.on_lease_loss": "raise", "client.announce_freshness_ms": 500,
                  "driver.announce_interval_ms": 100}) as cluster, cluster.connect() as pool:  # fmt: skip
        out = pool.producer("camera-1", dtype="uint32", shape=(4,))
        cluster.driver.kill()
        wait_until(lambda: out.epoch is None)
        with pytest.raises(tp.LeaseLostError, match="announced nothing") as caught:
            out.publish(frame(1))
        assert "tpool driver status" in caught.value.hint
        cluster.start_driver()
        wait_until(lambda: out.epoch is not None)
        assert out.publish(frame(1)) == 0


def test_a_dead_media_driver_ends_everything_with_an_error():
    with Cluster() as cluster, cluster.connect() as pool:
        out = pool.producer("camera-1", dtype="uint32", shape=(4,))
        inp = pool.consumer("camera-1")
        cluster.media.terminate()

        def error():
            try:
                inp.poll()
            except tp.TensorPoolError as e:
                return e
            return None

        assert isinstance(wait_until(error, 60.0), tp.NoMediaDriverError)
        with pytest.raises(tp.NoMediaDriverError, match="no media driver serves"):
            out.publish(frame(1))


def test_messages_of_others_change_nothing(pool):
    """Bytes that are no message, and messages that are not for us (decision D13)."""
    out = pool.producer("steady", dtype="uint32", shape=(4,), slots=8)
    inp = pool.consumer("steady")
    agent = inp.session.agent
    control = agent.publication(agent.streams.control_channel, agent.streams.control_stream_id)
    for junk in (b"", b"x", bytes(64), wire.encode(ConsumerConfig(1, 2, use_shm=False, mode=Mode.STREAM))):
        if junk:
            control.offer(junk)
    out.publish(frame(3))
    assert inp.poll(timeout=5.0).copy()[0] == 3
    assert inp.session.refusal is None
