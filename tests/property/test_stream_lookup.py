"""Whatever drivers say in whatever order: a lookup by name or tag finds what a look at all streams finds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from discoveries import LAB, OTHER, SECOND, announce, described, meta
from tensor_pool.discovery.index import StreamIndex
from tensor_pool.discovery.query import StreamQuery

DRIVERS = st.sampled_from([LAB, OTHER])
IDS = st.integers(1, 4)
EPOCHS = st.integers(1, 3)
NAMES = st.sampled_from(["", "left", "right"])
TAGS = st.sampled_from(["", "lab", "lab,night", "night,roof"])
EVENTS = st.one_of(
    st.tuples(st.just("announce"), DRIVERS, IDS, EPOCHS),
    st.tuples(st.just("name"), DRIVERS, IDS, EPOCHS, NAMES),
    st.tuples(st.just("tags"), DRIVERS, IDS, TAGS),
    st.tuples(st.just("end"), DRIVERS),
    st.tuples(st.just("wait"), st.integers(0, 4)),
)
QUERIES = [
    StreamQuery(name=name, tags=frozenset(tags))
    for name in ("", "left", "right", "gone")
    for tags in ((), ("lab",), ("lab", "night"), ("host:host-2",), ("nothing",))
]


@given(st.lists(EVENTS, max_size=60))
def test_finds_what_a_look_at_all_streams_finds(events: list[tuple]) -> None:
    index, now_ns = StreamIndex(expiry_ns=3 * SECOND, max_streams=6), 0
    for kind, *values in events:
        match kind:
            case "announce":
                driver, stream_id, epoch = values
                index.on_pool_announce(driver, announce(stream_id=stream_id, epoch=epoch), now_ns=now_ns)
            case "name":
                driver, stream_id, epoch, name = values
                said = described(name, stream_id=stream_id, epoch=epoch)
                index.on_data_source_announce(driver, said, now_ns=now_ns)
            case "tags":
                driver, stream_id, tags = values
                index.on_meta(driver, meta(stream_id=stream_id, tags=tags))
            case "end":
                index.forget(values[0])
            case "wait":
                now_ns += values[0] * SECOND
                index.expire(now_ns)
        everything = list(index.streams(now_ns=now_ns))
        for query in QUERIES:
            found = list(index.matching(query, now_ns=now_ns))
            assert len(found) == len(set(map(id, found)))
            assert set(map(id, found)) == {id(each) for each in everything if query.matches(each)}
