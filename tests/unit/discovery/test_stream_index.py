"""What a provider knows: made of announces, and gone without them."""

from __future__ import annotations

import pytest

from discoveries import LAB, OTHER, SECOND, announce, described, meta
from tensor_pool.discovery.authority import Authority
from tensor_pool.discovery.index import StreamIndex
from tensor_pool.wire.messages import DiscoveryResult, MetaAttribute, PayloadPool


def known(index: StreamIndex, now_ns: int = 0) -> list[DiscoveryResult]:
    return [stream.result for stream in index.streams(now_ns=now_ns)]


@pytest.fixture
def index() -> StreamIndex:
    return StreamIndex(expiry_ns=3 * SECOND, max_streams=4)


@pytest.mark.req("DSC-6.4-1", "DSC-5.2-3", "DSC-5.2-4", "DSC-5.2-17")
def test_layout_and_epoch_are_those_of_the_announce(index: StreamIndex) -> None:
    assert index.on_pool_announce(LAB, announce(), now_ns=0) is None
    (result,) = known(index)
    said = announce()
    assert (result.stream_id, result.producer_id, result.epoch, result.layout_version) == (10_000, 7, 5, 1)
    assert (result.header_nslots, result.header_slot_bytes, result.max_dims) == (8, 256, 8)
    assert (result.payload_pools, result.header_region_uri) == (said.payload_pools, said.header_region_uri)


@pytest.mark.req("DSC-5.2-7", "DSC-6.4-3")
def test_the_driver_is_the_one_that_was_configured(index: StreamIndex) -> None:
    index.on_pool_announce(OTHER, announce(), now_ns=0)
    (result,) = known(index)
    assert result.driver_instance_id == "other"
    assert (result.driver_control_channel, result.driver_control_stream_id) == (
        "aeron:udp?endpoint=10.0.0.2:4000",
        1000,
    )


@pytest.mark.req("DSC-6.1-1")
def test_two_drivers_may_have_the_same_stream_id(index: StreamIndex) -> None:
    index.on_pool_announce(LAB, announce(), now_ns=0)
    index.on_pool_announce(OTHER, announce(epoch=1), now_ns=0)
    assert {(result.driver_instance_id, result.epoch) for result in known(index)} == {
        ("lab", 5),
        ("other", 1),
    }


@pytest.mark.req("DSC-6.2-1", "DSC-6.2-2", "DSC-6.2-3")
def test_a_stream_is_there_for_three_periods_after_its_last_announce(index: StreamIndex) -> None:
    index.on_pool_announce(LAB, announce(), now_ns=0)
    index.on_pool_announce(LAB, announce(announce_timestamp_ns=2), now_ns=SECOND)
    assert known(index, SECOND + int(2.9 * SECOND))
    assert not known(index, SECOND + 3 * SECOND)
    assert (len(index), index.expire(4 * SECOND), len(index)) == (1, 1, 0)


def test_a_stream_that_nobody_produces_is_not_told_of(index: StreamIndex) -> None:
    index.on_pool_announce(LAB, announce(epoch=5), now_ns=0)
    index.on_pool_announce(LAB, announce(epoch=6, producer_id=0), now_ns=1)
    assert not known(index, 1)
    assert index.on_pool_announce(LAB, announce(epoch=5), now_ns=2) == "old_epoch"
    index.on_pool_announce(LAB, announce(epoch=7, producer_id=9), now_ns=3)
    assert [result.epoch for result in known(index, 3)] == [7]


def test_metadata_does_not_keep_a_stream_alive(index: StreamIndex) -> None:
    index.on_pool_announce(LAB, announce(), now_ns=0)
    index.on_data_source_announce(LAB, described(), now_ns=2 * SECOND)
    index.on_meta(LAB, meta(tags="left"))
    assert not known(index, 3 * SECOND)


@pytest.mark.req("DSC-6.3-1")
def test_a_newer_epoch_replaces_the_older_one(index: StreamIndex) -> None:
    index.on_pool_announce(LAB, announce(epoch=1), now_ns=0)
    index.on_pool_announce(LAB, announce(epoch=2, producer_id=9), now_ns=1)
    (result,) = known(index)
    assert (result.epoch, result.producer_id) == (2, 9)


@pytest.mark.req("DSC-6.3-2")
def test_an_older_epoch_is_refused_unless_the_driver_moved(index: StreamIndex) -> None:
    index.on_pool_announce(LAB, announce(epoch=2), now_ns=0)
    assert index.on_pool_announce(LAB, announce(epoch=1), now_ns=1) == "old_epoch"
    assert [result.epoch for result in known(index)] == [2]
    moved = Authority("lab", "aeron:ipc?term-length=4m", 1001)
    assert index.on_pool_announce(moved, announce(epoch=1), now_ns=2) is None
    assert [(result.epoch, result.driver_control_stream_id) for result in known(index)] == [(1, 1001)]


def test_an_older_epoch_is_taken_once_the_newer_one_is_gone(index: StreamIndex) -> None:
    index.on_pool_announce(LAB, announce(epoch=2), now_ns=0)
    assert index.on_pool_announce(LAB, announce(epoch=1), now_ns=3 * SECOND) is None
    assert [result.epoch for result in known(index, 3 * SECOND)] == [1]


@pytest.mark.req("DSC-6.4-2", "DSC-5.1-9", "DSC-5.2-6")
def test_name_tags_and_source_come_from_the_producer(index: StreamIndex) -> None:
    index.on_data_source_announce(LAB, described(" odd\tName "), now_ns=0)
    index.on_meta(LAB, meta(tags="CamA, left", data_source_id="42"))
    index.on_pool_announce(LAB, announce(), now_ns=0)
    (result,) = known(index)
    assert result.data_source_name == " odd\tName "
    assert {entry.tag for entry in result.tags} == {"CamA", "left"}
    assert result.data_source_id == 42


def test_metadata_of_another_epoch_describes_nothing(index: StreamIndex) -> None:
    index.on_pool_announce(LAB, announce(epoch=5), now_ns=0)
    index.on_data_source_announce(LAB, described(epoch=5), now_ns=0)
    index.on_meta(LAB, meta(tags="left"))
    index.on_pool_announce(LAB, announce(epoch=6), now_ns=1)
    (result,) = known(index)
    assert (result.data_source_name, result.tags, result.data_source_id) == ("", (), None)
    index.on_data_source_announce(LAB, described("next", epoch=6), now_ns=1)
    assert [result.data_source_name for result in known(index)] == ["next"]


def test_attributes_stay_until_those_of_a_new_version_come(index: StreamIndex) -> None:
    index.on_pool_announce(LAB, announce(), now_ns=0)
    index.on_data_source_announce(LAB, described(), now_ns=0)
    index.on_meta(LAB, meta(tags="left"))
    index.on_data_source_announce(LAB, described(version=2), now_ns=1)
    index.on_meta(LAB, meta(tags="stale"))
    assert [entry.tag for result in known(index) for entry in result.tags] == ["left"]
    index.on_meta(LAB, meta(tags="right", version=2))
    assert [entry.tag for result in known(index) for entry in result.tags] == ["right"]


@pytest.mark.req("DSC-9-1", "DSC-9-2")
def test_a_stream_says_on_which_host_it_is(index: StreamIndex) -> None:
    index.on_pool_announce(OTHER, announce(), now_ns=0)
    index.on_data_source_announce(OTHER, described(), now_ns=0)
    index.on_meta(OTHER, meta(tags="left"))
    assert [entry.tag for result in known(index) for entry in result.tags] == ["host:host-2", "left"]


@pytest.mark.req("DSC-5.2-10", "DSC-5.2-12")
@pytest.mark.parametrize("nowhere", [Authority("lab", "", 1000), Authority("lab", "aeron:ipc", 0)])
def test_a_driver_without_endpoint_has_no_streams(index: StreamIndex, nowhere: Authority) -> None:
    assert index.on_pool_announce(nowhere, announce(), now_ns=0) == "no_authority"
    assert not known(index)


@pytest.mark.parametrize(
    "changes",
    [
        {"header_slot_bytes": 128},
        {"payload_pools": (PayloadPool(1, 4, 4096, "shm:file?path=/dev/shm/1.pool"),)},
    ],
)
def test_an_announce_that_nobody_could_map_is_refused(index: StreamIndex, changes: dict[str, object]) -> None:
    assert index.on_pool_announce(LAB, announce(**changes), now_ns=0) == "unsound"
    assert not known(index)


def test_no_more_streams_than_allowed(index: StreamIndex) -> None:
    refused = [index.on_pool_announce(LAB, announce(stream_id=n), now_ns=0) for n in range(1, 7)]
    assert refused == [None] * 4 + ["too_many"] * 2
    named = [index.on_data_source_announce(LAB, described(stream_id=n), now_ns=0) for n in range(1, 7)]
    assert named == [None] * 4 + ["too_many"] * 2
    index.expire(10 * SECOND)
    assert index.on_pool_announce(LAB, announce(stream_id=9), now_ns=10 * SECOND) is None
    assert index.on_data_source_announce(LAB, described(stream_id=9), now_ns=10 * SECOND) is None


def test_a_driver_that_ends_takes_its_streams_along(index: StreamIndex) -> None:
    index.on_pool_announce(LAB, announce(), now_ns=0)
    index.on_pool_announce(OTHER, announce(), now_ns=0)
    index.forget(LAB)
    assert [result.driver_instance_id for result in known(index)] == ["other"]


def test_repeated_words_cost_no_new_bytes(index: StreamIndex) -> None:
    index.on_pool_announce(LAB, announce(), now_ns=0)
    index.on_data_source_announce(LAB, described(), now_ns=0)
    index.on_meta(LAB, meta(tags="left"))
    (before,) = index.streams(now_ns=0)
    index.on_pool_announce(LAB, announce(announce_timestamp_ns=2), now_ns=1)
    index.on_data_source_announce(LAB, described(), now_ns=1)
    index.on_meta(LAB, meta(tags="left"))
    (after,) = index.streams(now_ns=1)
    assert after.encoded is before.encoded


def test_a_name_that_is_too_long_is_none(index: StreamIndex) -> None:
    index.on_pool_announce(LAB, announce(), now_ns=0)
    index.on_data_source_announce(LAB, described("x" * 257), now_ns=0)
    assert [result.data_source_name for result in known(index)] == [""]
    index.on_data_source_announce(LAB, described("x" * 256), now_ns=0)
    assert [result.data_source_name for result in known(index)] == ["x" * 256]


@pytest.mark.parametrize(
    ("form", "value", "tags"),
    [
        ("text/plain", b"a, b ,,a", ["a", "b"]),
        ("application/json", b'["a", "b", 3, null]', ["a", "b"]),
        ("application/json", b"[" * 100_000, []),
        ("application/json", b'{"a": 1}', []),
        ("application/json", b"\xff", []),
        ("image/png", b"a", []),
        ("text/plain", "sch\u00f6n,ok".encode(), ["ok"]),
        ("text/plain", b"x" * 257 + b",ok", ["ok"]),
        ("text/plain", b",".join(b"%d" % n for n in range(100)), [str(n) for n in range(64)]),
    ],
)
def test_tags_of_any_form(index: StreamIndex, form: str, value: bytes, tags: list[str]) -> None:
    index.on_pool_announce(LAB, announce(), now_ns=0)
    index.on_data_source_announce(LAB, described(), now_ns=0)
    said = meta()
    index.on_meta(LAB, type(said)(10_000, 1, 0, (MetaAttribute("tags", form, value),)))
    assert {entry.tag for result in known(index) for entry in result.tags} == set(tags)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("18446744073709551614", 2**64 - 2),
        ("18446744073709551615", None),
        ("-1", None),
        ("x", None),
    ],
)
def test_numbers_of_data_sources(index: StreamIndex, text: str, number: int | None) -> None:
    index.on_pool_announce(LAB, announce(), now_ns=0)
    index.on_data_source_announce(LAB, described(), now_ns=0)
    index.on_meta(LAB, meta(data_source_id=text))
    assert [result.data_source_id for result in known(index)] == [number]


def test_the_same_object_again_is_taken_as_the_same_words(index: StreamIndex) -> None:
    """Routers hand over what they have read before, where the bytes are the same."""
    pool, source, tags = announce(), described(), meta(tags="left")
    for now_ns in (0, SECOND, 2 * SECOND):
        assert index.on_pool_announce(LAB, pool, now_ns=now_ns) is None
        assert index.on_data_source_announce(LAB, source, now_ns=now_ns) is None
        index.on_meta(LAB, tags)
    assert [stream.tags for stream in index.streams(now_ns=int(4.9 * SECOND))] == [{"left"}]
    assert not known(index, 5 * SECOND)
    index.expire(20 * SECOND)
    assert index.on_pool_announce(LAB, pool, now_ns=20 * SECOND) is None
    index.on_meta(LAB, tags)
    assert [stream.tags for stream in index.streams(now_ns=20 * SECOND)] == [set()], "its name is not known"
    index.on_data_source_announce(LAB, source, now_ns=20 * SECOND)
    index.on_meta(LAB, tags)
    assert [stream.tags for stream in index.streams(now_ns=20 * SECOND)] == [{"left"}]
    moved = Authority("lab", "aeron:ipc", 2000)
    assert index.on_pool_announce(moved, pool, now_ns=20 * SECOND) is None
    assert [result.driver_control_stream_id for result in known(index, 20 * SECOND)] == [2000]
