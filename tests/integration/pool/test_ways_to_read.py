"""All the ways in which a program may read a stream."""

from __future__ import annotations

import asyncio
import queue
import select
import threading

import numpy as np
import pytest

import tensor_pool as tp
from tensor_pool.testing import wait_until


@pytest.fixture(scope="module")
def pool():
    with tp.connect(embedded=True, settings={"client.hello_interval_ms": 50}) as pool:
        yield pool


@pytest.fixture
def out(pool, request):
    with pool.producer(request.node.name, dtype="uint32", shape=(256, 256), slots=64) as out:
        yield out


def publish(out, *values: int) -> None:
    for value in values:
        out.publish(np.full(4, value, "uint32"))


def value_of(frame) -> int:
    return int(frame.copy().flat[0])


def test_polling_with_and_without_patience(pool, out):
    inp = pool.consumer(out.name)
    assert inp.poll() is None
    publish(out, 7)
    assert value_of(inp.poll(timeout=5.0)) == 7
    assert inp.poll(timeout=0.01) is None


def test_waiting_wakes_up_when_a_frame_comes(pool, out):
    inp = pool.consumer(out.name)
    timer = threading.Timer(0.05, publish, (out, 3))
    timer.start()
    assert value_of(inp.poll(timeout=30.0)) == 3
    timer.join()


def test_iterating_ends_when_the_consumer_is_closed(pool, out):
    inp = pool.consumer(out.name)
    publish(out, 1, 2, 3)
    seen = []
    for frame in inp:
        seen.append(value_of(frame))
        if len(seen) == 3:
            inp.close()
    assert seen == [1, 2, 3]
    with pytest.raises(tp.ClosedError):
        inp.poll()


def test_the_latest_frame_passes_over_the_others(pool, out):
    inp = pool.consumer(out.name)
    publish(out, *range(10))
    assert value_of(inp.latest()) == 9
    assert inp.latest() is None
    assert inp.stats.drops_gap == 0


def test_asyncio_needs_no_thread(pool, out):
    inp = pool.consumer(out.name)

    async def read_three() -> list[int]:
        asyncio.get_running_loop().call_later(0.02, publish, out, 4, 5, 6)
        seen = []
        async for frame in inp:
            seen.append(value_of(frame))
            if len(seen) == 3:
                break
        return seen

    assert asyncio.run(asyncio.wait_for(read_three(), 30)) == [4, 5, 6]


def test_asyncio_iterates_again_after_a_break(pool, out):
    inp = pool.consumer(out.name)

    async def first(count: int) -> list[int]:
        asyncio.get_running_loop().call_later(0.02, publish, out, *range(count))
        seen = []
        async for frame in inp:
            seen.append(value_of(frame))
            if len(seen) == count:
                break
        return seen

    async def twice() -> list[list[int]]:
        return [await first(2), await first(3)]

    assert asyncio.run(asyncio.wait_for(twice(), 30)) == [[0, 1], [0, 1, 2]]


def test_asyncio_ends_when_the_consumer_is_closed(pool, out):
    inp = pool.consumer(out.name)

    async def read() -> int:
        asyncio.get_running_loop().call_later(0.05, inp.close)
        return len([frame async for frame in inp])

    assert asyncio.run(asyncio.wait_for(read(), 30)) == 0


def test_frames_of_an_epoch_that_ended_are_counted(pool):
    out = pool.producer("ends", dtype="uint8", shape=(4,), slots=32)
    inp = pool.consumer("ends")
    for value in range(20):
        out.publish(np.full(4, value, "uint8"))
    for value in range(5):
        assert value_of(inp.poll()) == value
    out.close(linger_s=0)
    wait_until(lambda: inp.stats.drops_by_reason.get("epoch_ended"))
    stats = inp.stats
    assert (stats.delivered, stats.drops_by_reason, stats.overwritten) == (5, {"epoch_ended": 15}, 0)


@pytest.mark.parametrize("copy_mode", [False, True])
def test_what_a_consumer_leaves_unread_when_it_is_closed_is_not_lost(pool, out, copy_mode):
    inp = pool.consumer(out.name, copy_mode=copy_mode)
    for value in range(5):
        out.publish(np.full(4, value, "uint32"))
    assert value_of(inp.poll()) == 0
    inp.close()
    assert (inp.stats.delivered, inp.stats.drops, inp.stats.drops_by_reason) == (1, 0, {})


@pytest.mark.parametrize("attempt", range(5))
def test_closing_lets_those_who_keep_up_have_the_last_frame(pool, attempt):
    out = pool.producer("kept up", dtype="uint8", shape=(4,), slots=32)
    seen: list[int] = []
    with pool.consumer("kept up").on_frame(lambda frame: seen.append(value_of(frame))):
        wait_until(lambda: out.stats.consumers)
        for value in range(20):
            out.publish(np.full(4, value, "uint8"))
        out.close()
    assert seen == list(range(20))


def test_waiting_notices_a_closed_consumer(pool, out):
    inp = pool.consumer(out.name)
    timer = threading.Timer(0.05, inp.close)
    timer.start()
    with pytest.raises(tp.ClosedError):
        tp.wait([inp], timeout=30)
    timer.join()
    with pytest.raises(tp.ClosedError):
        inp.on_frame(print)


def test_a_descriptor_for_select(pool, out):
    inp = pool.consumer(out.name)
    fd = inp.fileno()
    assert inp.poll() is None
    assert select.select([inp], [], [], 0)[0] == []
    publish(out, 1, 2)
    assert select.select([inp], [], [], 30)[0] == [inp]
    assert [value_of(inp.poll()), value_of(inp.poll())] == [1, 2]
    assert inp.poll() is None
    assert select.select([inp], [], [], 0)[0] == []
    assert inp.fileno() == fd


def test_the_descriptor_stays_the_same_when_the_producer_is_another(pool):
    inp = pool.consumer("two producers")
    fd = inp.fileno()
    for value in (1, 2):
        with pool.producer("two producers", dtype="uint32", shape=(4,), slots=8) as out:
            wait_until(lambda out=out: inp.stats.epoch == out.epoch)
            inp.poll()
            publish(out, value)
            assert select.select([fd], [], [], 30)[0] == [fd]
            assert value_of(wait_until(inp.poll)) == value


def test_callbacks(pool, out):
    seen: queue.Queue[int] = queue.Queue()
    with pool.consumer(out.name).on_frame(lambda frame: seen.put(value_of(frame))) as callback:
        publish(out, 1, 2, 3)
        assert [seen.get(timeout=30) for _ in range(3)] == [1, 2, 3]
        assert callback.is_running
    assert not callback.is_running


def test_a_callback_that_fails_is_logged_and_ends(pool, out, caplog):
    callback = pool.consumer(out.name).on_frame(lambda frame: 1 / 0)
    publish(out, 1)
    wait_until(lambda: not callback.is_running)
    assert isinstance(callback.error, ZeroDivisionError)
    assert "the callback of" in caplog.text


def test_many_streams_at_once(pool, out):
    with pool.producer("another", dtype="uint32", shape=(4,), slots=8) as other:
        first, second = pool.consumer(out.name), pool.consumer("another")
        absent = pool.consumer("nobody produces this")
        assert tp.wait([first, second, absent], timeout=0.01) == []
        publish(other, 1)
        assert tp.wait([first, second, absent], timeout=30) == [second]
        publish(out, 1)
        assert tp.wait([first, second, absent], timeout=30) == [first, second]
        assert tp.wait([second]) == [second]


@pytest.mark.req("WIRE-15.4-1")
def test_a_consumer_that_is_too_far_behind_skips_to_the_newest(pool, out):
    inp = pool.consumer(out.name, max_outstanding_seq_gap=10)
    for value in range(200):
        publish(out, value)
        if value < 64:
            assert value_of(inp.poll()) == value
    # The 65th in a row that comes without waiting makes it ask how far behind it is.
    frames = list(iter(inp.poll, None))
    assert frames[-1].info.seq == 199
    assert len(frames) < 136
    stats = inp.stats
    assert stats.delivered + stats.drops_gap + sum(stats.drops_by_reason.values()) == 200


@pytest.mark.parametrize("gap", [1, 3, 10, 40])
def test_a_small_gap_is_noticed_soon(pool, out, gap):
    inp = pool.consumer(out.name, max_outstanding_seq_gap=gap)
    publish(out, 0)
    assert value_of(inp.poll()) == 0
    for value in range(1, gap + 20):  # less than a lap
        publish(out, value)
    taken = [frame.info.seq for frame in iter(inp.poll, None)]
    assert taken[-1] == gap + 20 - 1
    assert len(taken) <= max(gap // 4, 1) + 1, "looks several times within the gap"
    assert inp.stats.resyncs == 1


def test_a_frame_carries_what_its_descriptor_says(pool):
    with pool.producer("traced", dtype="uint8", shape=(4,), slots=8, stamp_descriptors=True) as out:
        inp = pool.consumer("traced")
        wait_until(lambda: out.stats.descriptors_sent or out.publish(b"....") is None or inp.latest() is None)
        out.publish(np.zeros(4, "uint8"), trace_id=1234, timestamp_ns=42)
        info = inp.latest().info
        assert (info.trace_id, info.timestamp_ns) == (1234, 42)
        assert info.publish_timestamp_ns > 42


def test_a_rate_limited_consumer_gets_a_stream_of_its_own(pool, out):
    inp = pool.consumer(out.name, mode="rate_limited", max_rate_hz=10)
    private = wait_until(lambda: inp.session.streams.private, what="the producer grants a private stream")
    assert private.endpoint[0] == "aeron:ipc"
    wait_until(lambda: out.publish(np.zeros(4, "uint32"), timestamp_ns=1) is not None and inp.poll())
    second = 1_000_000_000
    taken = []
    for n in range(1, 101):
        out.publish(np.full(4, n, "uint32"), timestamp_ns=second + n * second // 100)
        taken += [frame.info.seq for frame in iter(inp.poll, None)]
    assert 9 <= len(taken) <= 11, taken
    assert inp.stats.drops == 0


def test_a_rate_alone_is_a_limit_and_one_beside_mode_stream_is_none(pool, out):
    limited, everything = (pool.consumer(out.name, max_rate_hz=0.1, mode=mode) for mode in (None, "stream"))
    for _ in range(10):
        out.publish(np.zeros(4, "uint32"))
    assert [len(list(iter(inp.poll, None))) for inp in (limited, everything)] == [1, 10]


@pytest.mark.parametrize("own_stream", [False, True])
@pytest.mark.parametrize("rate_hz", [0.9, 2.5])
def test_a_rate_between_two_whole_numbers_is_kept_evenly(pool, out, rate_hz, own_stream):
    inp = pool.consumer(out.name, mode="rate_limited", max_rate_hz=rate_hz, own_stream=own_stream)
    if own_stream:
        wait_until(lambda: inp.session.streams.private, what="the producer grants a private stream")
    second = 1_000_000_000
    wait_until(lambda: out.publish(np.zeros(4, "uint32"), timestamp_ns=1) is not None and inp.poll())
    stamps = []
    for n in range(1, 1001):
        out.publish(np.full(4, n, "uint32"), timestamp_ns=second + n * second // 100)
        stamps += [frame.info.timestamp_ns for frame in iter(inp.poll, None)]
    assert len(stamps) == pytest.approx(10 * rate_hz, abs=1)
    apart = np.diff(stamps[1:]) / second
    assert apart == pytest.approx(1 / rate_hz, abs=0.011), "evenly"
    assert inp.stats.drops == 0


@pytest.mark.parametrize("own_stream", [False, True])
@pytest.mark.parametrize("stamp_ns", [0, 7])
def test_time_stamps_that_stand_still_do_not_stop_a_limited_stream(pool, out, stamp_ns, own_stream):
    inp = pool.consumer(out.name, mode="rate_limited", max_rate_hz=50, own_stream=own_stream)
    taken = []

    def has_taken_some() -> bool:
        out.publish(np.zeros(4, "uint32"), timestamp_ns=stamp_ns)
        taken.extend(iter(inp.poll, None))
        return len(taken) >= 5

    wait_until(has_taken_some)


def test_a_rate_limit_that_was_declined_is_kept_locally():
    settings = {"driver.descriptor_stream_id_range": "", "client.hello_interval_ms": 50}
    with tp.connect(embedded=True, settings=settings) as pool:  # nothing to give out
        out = pool.producer("declined", dtype="uint32", shape=(4,), slots=256)
        inp = pool.consumer("declined", mode="rate_limited", max_rate_hz=10)
        second = 1_000_000_000
        for n in range(100):
            out.publish(np.full(4, n, "uint32"), timestamp_ns=second + n * second // 100)
        taken = [frame.info.seq for frame in iter(inp.poll, None)]
        assert inp.session.streams.private is None
        assert 9 <= len(taken) <= 11, taken
        assert inp.stats.thinned == 100 - len(taken)


def test_progress_of_a_frame_that_is_being_written(pool, out):
    inp = pool.consumer(out.name, progress=True)
    wait_until(lambda: out._session._progress.hints, what="the producer knows that somebody wants progress")
    slot = out.claim((256, 256), "uint32", progress="rows")
    slot.array[:128] = 7
    slot.progress(rows=128)
    prefix = inp.poll_progress(timeout=30)
    assert (prefix.seq, prefix.usable_bytes) == (slot.seq, 128 * 256 * 4)
    assert (prefix.array[:128] == 7).all()
    assert prefix.state() == "in_progress"
    assert inp.poll() is None
    slot.array[128:] = 8
    slot.commit()
    with inp.poll(timeout=5.0) as values:
        assert values[-1, -1] == 8
    assert prefix.state() == "committed"


def test_progress_on_a_stream_of_its_own(pool, out):
    inp = pool.consumer(out.name, progress=True, own_stream=True)
    wait_until(lambda: inp.session.streams.private)
    wait_until(lambda: out._session._progress.hints)

    def reported():  # what is said before the two ends have found each other is lost
        with out.claim((256, 256), "uint32", progress=True) as slot:
            slot.array[...] = 5
            slot.progress(bytes_filled=256 * 256 * 4)
            return inp.poll_progress(timeout=1)

    assert wait_until(reported, 30).array[0, 0] == 5
    assert value_of(wait_until(inp.poll)) == 5


def test_a_frame_that_was_overwritten_is_counted_and_raised(pool):
    with pool.producer("small", dtype="uint8", shape=(4,), slots=8) as out:
        inp = pool.consumer("small")
        out.publish(np.zeros(4, "uint8"))
        frame = inp.poll(timeout=5.0)
        with pytest.raises(tp.FrameOverwrittenError), frame:
            for _ in range(8):
                out.publish(np.ones(4, "uint8"))
        assert not frame.still_valid()
        assert (inp.stats.delivered, inp.stats.validated, inp.stats.overwritten) == (1, 0, 1)


def test_a_frame_that_nobody_asked_about_is_asked_about_at_the_next_poll(pool, out):
    inp = pool.consumer(out.name)
    publish(out, 1)
    inp.poll(timeout=5.0)
    assert inp.stats.validated == 0
    inp.poll()
    assert inp.stats.validated == 1


def test_numpy_and_dlpack_see_the_same_values(pool, out):
    publish(out, 9)
    frame = pool.consumer(out.name).poll(timeout=5.0)
    assert np.from_dlpack(frame).tolist() == np.asarray(frame).tolist() == frame.array.tolist() == [9] * 4
    assert not frame.array.flags.writeable
    assert (frame.shape, frame.dtype) == ((4,), "uint32")


def test_a_consumer_without_a_stream_says_what_to_try(pool):
    with pytest.raises(tp.NoStreamError, match="nobody produces stream 'absent'") as caught:
        pool.consumer("absent", wait_s=0.1)
    assert "tpool streams" in caught.value.hint


def test_frames_that_go_to_a_function_are_not_polled_away(pool, out):
    seen = queue.Queue()
    inp = pool.consumer(out.name)

    def skip_to_newest(frame) -> None:
        newest = inp.latest() or frame  # its own thread may
        seen.put(value_of(newest))

    with inp.on_frame(skip_to_newest):
        ways = (inp.poll, inp.latest, lambda: next(iter(inp)), inp.fileno, lambda: tp.wait([inp], timeout=1))
        for read in ways:
            with pytest.raises(tp.ConfigError, match="go to the function") as caught:
                read()
            assert "another consumer" in caught.value.hint
        publish(out, 1)
        assert seen.get(timeout=5.0) == 1
    publish(out, 2)
    assert value_of(inp.poll(timeout=5.0)) == 2

    refused = queue.Queue()

    def poll_for_long() -> None:
        try:
            inp.poll(timeout=30)
        except tp.ConfigError as e:
            refused.put(e)

    waiting = threading.Thread(target=poll_for_long)
    waiting.start()
    with inp.on_frame(skip_to_newest):  # somebody was waiting before
        assert "go to the function" in str(refused.get(timeout=5.0))
        waiting.join()
    with inp.on_frame(lambda _: 1 / 0) as failing:
        publish(out, 3)
        wait_until(lambda: not failing.is_running)
    publish(out, 4)
    assert value_of(inp.poll(timeout=5.0)) == 4


def test_a_function_can_not_give_its_frames_to_another(pool, out):
    seen = queue.Queue()
    inp = pool.consumer(out.name)

    def hand_on(frame) -> None:
        with pytest.raises(tp.ConfigError, match="given to on_frame"):
            inp.on_frame(print)
        seen.put(value_of(frame))

    with inp.on_frame(hand_on) as callback:
        for value in (1, 2):
            publish(out, value)
            assert seen.get(timeout=5.0) == value
        assert callback.error is None


def test_frames_go_to_one_function_at_a_time(pool, out):
    seen = queue.Queue()
    inp = pool.consumer(out.name)
    first = inp.on_frame(lambda frame: seen.put(("first", value_of(frame))))
    with pytest.raises(tp.ConfigError, match="given to on_frame"):
        inp.on_frame(print)
    publish(out, 1)
    assert seen.get(timeout=5.0) == ("first", 1)
    assert repr(first) == f"<FrameCallback of {inp!r}, running>"
    first.close()
    with inp.on_frame(lambda frame: seen.put(("second", value_of(frame)))):
        publish(out, 3)
        assert seen.get(timeout=5.0) == ("second", 3)
