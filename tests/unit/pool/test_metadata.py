"""What a producer says about its stream, and what a consumer makes of it."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensor_pool import wire
from tensor_pool.errors import MetadataError
from tensor_pool.pool.metadata import (
    CLOCK_DOMAIN,
    CLOCK_OFFSET,
    MetadataLimits,
    MetadataSource,
    MetadataVersion,
    MetadataView,
)
from tensor_pool.wire.messages import (
    ClockDomain,
    DataSourceAnnounce,
    DataSourceMeta,
    MetaAttribute,
    QosProducer,
)

STREAM = 10_000
SECOND = 1_000_000_000
REALTIME = 1_700_000_000 * SECOND


@pytest.fixture
def source() -> MetadataSource:
    source = MetadataSource(STREAM, name="camera-1", summary="uint16 480x640 row")
    source.bind(producer_id=7, epoch=5)
    return source


@pytest.fixture
def view() -> MetadataView:
    return MetadataView(STREAM)


def send(source: MetadataSource, view: MetadataView, now_ns: int = 0) -> int:
    """Over the wire and back; says how many messages that were."""
    messages = source.due(now_ns)
    for message in messages:
        view.on_message(wire.decode(wire.encode(message)))
    return len(messages)


class TestSending:
    @pytest.mark.req("WIRE-10.3.1-1")
    def test_the_beacon(self, source: MetadataSource) -> None:
        announce, _ = source.due(0)

        assert announce == DataSourceAnnounce(
            STREAM, producer_id=7, epoch=5, meta_version=1, name="camera-1", summary="uint16 480x640 row"
        )

    @pytest.mark.req("WIRE-15.11-3", "WIRE-10.3.1-1", "WIRE-10.3.2-1")
    def test_it_says_when_it_wants_to_be_asked_again(self, source: MetadataSource) -> None:
        assert source.next_ns == 0  # at once
        source.due(now_ns=SECOND)
        assert source.next_ns < 2 * SECOND, "those who were waiting for the stream are told again soon"
        assert source.due(now_ns=2 * SECOND - 1) != []
        assert source.next_ns == 2 * SECOND
        assert source.due(now_ns=source.next_ns) != []

    def test_everything_is_repeated_once_a_second(self, source: MetadataSource) -> None:
        times = [n * SECOND // 20 for n in range(200)]
        sent = [messages for now in times if (messages := source.due(now))]

        assert len(sent) == 10 + 3, "and three times more in the first one"
        assert [len(source.due(now)) for now in (9 * SECOND + SECOND // 2, 10 * SECOND)] == [0, 2]
        assert all(messages == sent[0] for messages in sent), "the same version is the same, byte for byte"

    @pytest.mark.req("WIRE-10.3.1-2", "WIRE-10.3.2-1", "WIRE-10.3.2-4")
    def test_a_change_is_sent_at_once_under_a_new_version(self, source: MetadataSource) -> None:
        _, first = source.due(0)
        source["gain"] = 4
        announce, changed = source.due(1)

        assert isinstance(changed, DataSourceMeta)
        assert isinstance(first, DataSourceMeta)
        assert announce.meta_version == changed.meta_version == first.meta_version + 1
        assert changed.attributes[-1] == MetaAttribute("gain", "application/json", b"4")
        assert source.due(2) == []

    def test_removing_is_a_change_too(self, source: MetadataSource) -> None:
        source["gain"] = 4
        source.due(0)
        del source["gain"]

        (_, meta) = source.due(1)
        assert isinstance(meta, DataSourceMeta)
        assert meta.meta_version == 2
        assert "gain" not in {attribute.key for attribute in meta.attributes}

    def test_setting_the_same_again_is_none(self, source: MetadataSource) -> None:
        source["gain"] = 4
        source.due(0)
        source["gain"] = 4
        source.update(gain=4)

        assert source.due(1) == []
        assert source.meta_version == 1

    def test_changes_that_nobody_saw_are_one_version(self, source: MetadataSource) -> None:
        source.due(0)
        for gain in range(100):
            source["gain"] = gain
        source["offset"] = 1

        assert source.meta_version == 2
        assert [message.meta_version for message in source.due(1)] == [2, 2]

    def test_what_was_taken_back_is_no_version(self, source: MetadataSource) -> None:
        source.due(0)
        source["gain"] = 1
        del source["gain"]

        assert source.due(1) == []

    @pytest.mark.req("WIRE-10.3.2-3")
    def test_each_version_that_a_frame_refers_to_is_sent(
        self, source: MetadataSource, view: MetadataView
    ) -> None:
        frames = []
        for exposure in (1, 2, 3):
            source["exposure_ms"] = exposure
            frames.append((source.meta_version, exposure))  # a frame is published
        send(source, view)

        for meta_version, exposure in frames:
            version = view.at(meta_version)
            assert version is not None
            assert version["exposure_ms"] == exposure
        assert view["exposure_ms"] == 3

    def test_versions_that_are_not_fetched_are_bounded(self, source: MetadataSource) -> None:
        for n in range(1_000):
            source["n"] = n
            assert source.meta_version == n + 1
        messages = source.due(0)

        assert len(messages) == 17
        assert messages[-1].meta_version == 1_000
        assert source.superseded == 984

    def test_versions_start_again_before_the_numbers_end(self, source: MetadataSource) -> None:
        source._version = 2**32 - 3
        versions = []
        for n in range(3):
            source["n"] = n
            versions.append(source.meta_version)
        assert versions == [2**32 - 2, 1, 2]

    def test_a_new_epoch_is_announced_at_once(self, source: MetadataSource) -> None:
        source.due(0)
        source.bind(producer_id=8, epoch=6)

        announce, meta = source.due(1)
        assert isinstance(announce, DataSourceAnnounce)
        assert (announce.producer_id, announce.epoch, announce.meta_version) == (8, 6, 1)
        assert isinstance(meta, DataSourceMeta)


class TestClock:
    def test_every_stream_says_which_clock_it_has(self) -> None:
        source = MetadataSource(STREAM, realtime_offset_ns=REALTIME)

        assert dict(source) == {CLOCK_DOMAIN: "monotonic", CLOCK_OFFSET: REALTIME}

    def test_a_synchronised_clock_says_how_wrong_it_may_be(self) -> None:
        source = MetadataSource(STREAM, clock_domain=ClockDomain.REALTIME_SYNCED, clock_error_ns=50_000)

        assert source[CLOCK_DOMAIN] == "realtime_synced"
        assert source["clock.error_budget_ns"] == 50_000

    @pytest.mark.req("WIRE-15.7-5")
    def test_the_offset_follows_real_time(self) -> None:
        source = MetadataSource(STREAM, realtime_offset_ns=REALTIME)
        source.due(0, realtime_ns=REALTIME)

        assert source.due(10, realtime_ns=REALTIME + 10 + 1_000_000) == [], "within a millisecond"
        messages = source.due(20, realtime_ns=REALTIME + 20 + 1_000_001)
        assert [message.meta_version for message in messages] == [2, 2]
        assert source[CLOCK_OFFSET] == REALTIME + 1_000_001
        source.due(30, realtime_ns=30)
        assert source[CLOCK_OFFSET] == 0, "set back by years"

    @pytest.mark.parametrize("key", [CLOCK_DOMAIN, CLOCK_OFFSET, "clock.error_budget_ns"])
    def test_it_is_ours_to_say(self, source: MetadataSource, key: str) -> None:
        with pytest.raises(MetadataError, match="kept by the library"):
            source[key] = "mine"
        with pytest.raises(MetadataError, match="kept by the library"):
            del source[key]
        with pytest.raises(MetadataError, match="kept by the library"):
            source.update({"a": 1, key: 2})
        source["a"] = 1
        source.clear()
        assert set(source) == {CLOCK_DOMAIN, CLOCK_OFFSET}


class TestLimits:
    def test_too_many(self) -> None:
        source = MetadataSource(STREAM, limits=MetadataLimits(max_attributes=4))
        source.update(a=1, b=2)

        with pytest.raises(MetadataError, match="5 pieces of metadata; a stream has at most 4"):
            source["c"] = 3
        assert "c" not in source
        source["a"] = 9

    def test_too_much_names_what_is_large(self, source: MetadataSource) -> None:
        source["small"] = 1
        with pytest.raises(MetadataError, match="a stream has at most 262144") as caught:
            source["flat_field"] = np.zeros((512, 512))
        assert "'flat_field' (2097280 bytes) with Producer.send_blob" in str(caught.value)
        assert set(source) == {CLOCK_DOMAIN, CLOCK_OFFSET, "small"}

    def test_what_fits_can_be_sent(self) -> None:
        source = MetadataSource(STREAM, values={f"k{n}": b"x" * 980 for n in range(254)})
        (_, meta) = source.due(0)

        assert len(wire.encode(meta)) < 512 << 10, "an eighth of a term of 4 MiB"

    @pytest.mark.parametrize("key", ["", "ä", "a b", "a\n", "\0", 3, "k" * 129])
    def test_keys(self, source: MetadataSource, key: Any) -> None:
        with pytest.raises(MetadataError, match="key"):
            source[key] = 1
        assert len(source) == 2

    def test_an_update_is_all_or_nothing(self, source: MetadataSource) -> None:
        source.due(0)
        with pytest.raises(MetadataError, match="can't hold values of type set"):
            source.update(a=1, b={1})
        assert "a" not in source
        assert source.due(1) == []

    @pytest.mark.parametrize("text", ["ä", "a\nb", "x" * 1025])
    @pytest.mark.parametrize("what", ["name", "summary"])
    def test_names_that_no_message_carries(self, what: str, text: str) -> None:
        arguments: dict[str, Any] = {what: text}
        with pytest.raises(MetadataError, match=f"can't be the {what}"):
            MetadataSource(STREAM, **arguments)


class TestAsDictionary:
    def test_it_behaves_like_one(self, source: MetadataSource) -> None:
        source.update({"a": 1}, b=[2])
        source.setdefault("a", 5)
        assert source.pop("a") == 1
        assert source.get("a") is None
        assert "b" in source
        with pytest.raises(KeyError):
            source["a"]
        with pytest.raises(KeyError):
            del source["a"]
        assert "'b': [2]" in repr(source)

    def test_items_are_taken_away_until_none_is_left_but_the_clock(self, source: MetadataSource) -> None:
        source.clear()
        source.update(gain=1, exposure=2)
        assert [source.popitem(), source.popitem()] == [("exposure", 2), ("gain", 1)]
        with pytest.raises(KeyError):
            source.popitem()
        assert "clock.domain" in source

    def test_values_are_copied(self, source: MetadataSource) -> None:
        values = [1]
        source["values"] = values
        values.append(2)
        source["values"].append(3)

        assert source["values"] == [1]

    def test_one_thread_writes_while_another_sends(self, source: MetadataSource, view: MetadataView) -> None:
        done = threading.Event()

        def write() -> None:
            for n in range(2_000):
                source.update(a=n, b=n)
            done.set()

        thread = threading.Thread(target=write)
        thread.start()
        now = 0
        while not done.is_set():
            now += 1
            send(source, view, now)
            versions = [view.at(n) for n in range(view.meta_version - 15, view.meta_version + 1)]
            assert all(v.get("a") == v.get("b") for v in versions if v is not None), "never half an update"
            dict(source)
        thread.join()
        send(source, view, now + 1)
        assert (view["a"], view["b"]) == (1_999, 1_999)


class TestView:
    def test_it_shows_what_was_sent(self, source: MetadataSource, view: MetadataView) -> None:
        assert (len(view), view.meta_version, view.name, view.summary) == (0, 0, "", None)
        source.update(gain=4, serial="A-17", dark=np.arange(3))
        send(source, view)

        assert view.name == "camera-1"
        assert view.summary is not None
        assert view.summary.shape == (480, 640)
        assert (view["gain"], view["serial"], view["dark"].tolist()) == (4, "A-17", [0, 1, 2])
        assert view.complete
        assert "A-17" in repr(view)

    @pytest.mark.req("WIRE-10.3.2-5")
    def test_unknown_keys_and_formats_stay_readable(self, view: MetadataView) -> None:
        attributes = (
            MetaAttribute("odd", "sbe:1.2", b"\x01"),
            MetaAttribute("broken", "application/json", b"{"),
            MetaAttribute("good", "application/json", b"1"),
            MetaAttribute("", "", b""),
        )
        view.on_message(DataSourceMeta(STREAM, 1, 0, attributes))

        assert dict(view) == {"odd": b"\x01", "broken": b"{", "good": 1, "": b""}
        version = view.at(1)
        assert version is not None
        assert version.attributes["odd"].format == "sbe:1.2"
        assert repr(version).startswith("MetadataVersion(1, ")

    def test_repeats_are_nothing_new(self, source: MetadataSource, view: MetadataView) -> None:
        messages = source.due(0)

        assert [view.on_message(message) for message in messages * 2] == [True, True, False, False]

    def test_others_change_nothing(self, view: MetadataView) -> None:
        assert not view.on_message(DataSourceMeta(STREAM + 1, 1, 0))
        assert not view.on_message(DataSourceAnnounce(STREAM + 1, 1, 1, 1, "other"))
        assert not view.on_message(QosProducer(STREAM, 1, 1, 1))
        assert view.name == ""

    def test_old_versions_are_kept_but_not_for_ever(self, view: MetadataView) -> None:
        for n in range(1, 101):
            view.on_message(
                DataSourceMeta(STREAM, n, 0, (MetaAttribute("n", "application/json", b"%d" % n),))
            )
        assert view.at(84) is None
        assert view.at(85) == {"n": 85}
        assert view.at(100) == view
        assert len(view._versions) == 16

    def test_version_0_is_no_metadata(self, view: MetadataView) -> None:
        assert view.at(0) == {}
        view.on_message(DataSourceAnnounce(STREAM, 1, 1, meta_version=0))
        assert view.complete

    def test_an_announced_version_may_be_missing(self, source: MetadataSource, view: MetadataView) -> None:
        send(source, view)
        source["gain"] = 1
        announce, meta = source.due(1)
        view.on_message(announce)

        assert not view.complete
        assert view.meta_version == 1
        view.on_message(meta)
        assert view.complete
        assert view["gain"] == 1

    def test_another_producer_counts_anew(self, view: MetadataView) -> None:
        for epoch, serial in ((5, "old"), (6, "new")):
            source = MetadataSource(STREAM, values={"serial": serial})
            source.bind(producer_id=epoch, epoch=epoch)
            send(source, view)
        assert view["serial"] == "new"
        assert view.at(1) == dict(source)

    def test_a_lingering_announce_of_a_lower_epoch_is_ignored(
        self, source: MetadataSource, view: MetadataView
    ) -> None:
        send(source, view)

        assert not view.on_message(DataSourceAnnounce(STREAM, 3, 4, 9, "ghost"))
        assert view.name == "camera-1"
        assert view.at(1) is not None

    def test_a_version_is_a_mapping(self) -> None:
        version = MetadataVersion(1, (MetaAttribute("a", "text/plain", b"x"),))

        assert (dict(version), len(version)) == ({"a": "x"}, 1)


keys = st.sampled_from(["a", "b", "c"])


@given(
    st.lists(
        st.tuples(st.sampled_from(["set", "delete", "send", "publish"]), keys, st.integers(0, 3)), max_size=40
    )
)
def test_every_frame_finds_the_metadata_it_was_published_with(steps: list[tuple[str, str, int]]) -> None:
    source, view = MetadataSource(STREAM), MetadataView(STREAM, max_versions=64)
    published: list[tuple[int, dict[str, Any]]] = []
    for now, (step, key, value) in enumerate(steps):
        if step == "set":
            source[key] = value
        elif step == "delete":
            source.pop(key, None)
        elif step == "send":
            send(source, view, now)
        else:
            published.append((source.meta_version, dict(source)))
    send(source, view, len(steps))
    if source.superseded == 0:
        assert all(view.at(meta_version) == values for meta_version, values in published)
    assert dict(view) == dict(source)
