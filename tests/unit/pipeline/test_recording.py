"""Reading recordings: which frames belong to a span, what is checked, what is said of missing things."""

from __future__ import annotations

import numpy as np
import pytest

from recordings import OFFSET_NS, record
from tensor_pool.errors import MalformedMessageError, RegionError
from tensor_pool.pipeline.record.recording import EVERYTHING, Recording, Span


def seqs(stream, span=EVERYTHING, **kw):
    return [frame.row.seq for frame in stream.frames(span, **kw)]


EXPECTED = [0, 1, 2, 3, 4, 5, 6, *range(10, 20)]


def test_frames_come_in_order_with_their_values_and_metadata(tmp_path):
    stream = record(tmp_path)["camera/1"]
    assert len(stream.catalogue.segments) > 2
    frames = list(stream.frames())
    assert [frame.row.seq for frame in frames] == EXPECTED
    assert {frame.metadata["exposure_ms"] for frame in frames} == {1.5}
    assert {frame.event_ns - 100 * frame.row.seq for frame in frames} == {OFFSET_NS}
    array = next(iter(stream.frames(Span(first_seq=5)))).array()
    assert array.tolist() == [[5] * 3] * 2
    assert not array.flags.writeable


def test_gaps_are_shown_to_who_asks(tmp_path):
    stream = record(tmp_path)["camera/1"]
    gaps = [frame for frame in stream.frames(gaps=True) if frame.row.kind == "gap"]
    assert [(gap.row.seq, gap.row.count, gap.row.status) for gap in gaps] == [(7, 3, "lost")]
    with pytest.raises(MalformedMessageError, match=r"gap \(lost\)"):
        gaps[0].array()


@pytest.mark.parametrize(
    ("span", "expected"),
    [
        (Span(first_seq=15), [15, 16, 17, 18, 19]),
        (Span(last_seq=2), [0, 1, 2]),
        (Span(first_seq=5, last_seq=10), [5, 6, 10]),
        (Span(first_seq=8, last_seq=8), []),
        (Span(first_seq=20), []),
        (Span(first_ns=OFFSET_NS + 1_500), [15, 16, 17, 18, 19]),
        (Span(last_ns=OFFSET_NS + 299), [0, 1, 2]),
        (Span(first_ns=OFFSET_NS + 1_000, last_seq=11), [10, 11]),
        (Span(first_ns=OFFSET_NS + 2_000), []),
    ],
    ids=str,
)
def test_a_span_takes_what_belongs_to_it(tmp_path, span, expected):
    assert seqs(record(tmp_path)["camera/1"], span) == expected


def test_a_gap_belongs_to_a_span_that_begins_within_it(tmp_path):
    assert seqs(record(tmp_path)["camera/1"], Span(first_seq=9, last_seq=10), gaps=True) == [7, 10]


def test_segments_outside_of_a_span_are_not_opened(tmp_path):
    stream = record(tmp_path)["camera/1"]
    first = stream.catalogue.segments[0]
    for path in stream.place.local.glob(first.file.replace(".arrow", ".*")):
        path.unlink()
    assert seqs(stream, Span(first_seq=first.max_seq + 1))[-1] == 19
    assert seqs(stream, Span(first_ns=first.last_event_ns + 1))[-1] == 19


def test_frames_without_a_clock_have_no_time(tmp_path):
    stream = record(tmp_path, realtime_offset_ns=None)["camera/1"]
    assert seqs(stream) == EXPECTED
    assert seqs(stream, Span(first_ns=0)) == []
    assert next(stream.frames()).event_ns is None


def test_damaged_values_are_not_handed_out_unless_asked_for(tmp_path):
    stream = record(tmp_path, segment_bytes=1 << 20)["camera/1"]
    (path,) = stream.place.local.glob("*.arrow")
    content = bytearray(path.read_bytes())
    at = content.index(np.full(6, 13, "uint16").tobytes())
    content[at] ^= 0xFF
    path.write_bytes(content)
    for frame in stream.frames():
        if frame.row.seq == 13:
            with pytest.raises(MalformedMessageError, match=r"frame 13 .* not what was recorded"):
                frame.array()
            assert frame.array(check=False).shape == (2, 3)
        else:
            assert (frame.array() == frame.row.seq).all()


def test_what_is_missing_is_named(tmp_path):
    recording = record(tmp_path)
    stream = recording["camera/1"]
    with pytest.raises(RegionError, match="no stream camera-2") as refused:
        recording["camera-2"]
    assert "camera/1" in refused.value.hint
    (stream.place.local / "00000002.arrow").unlink()
    with pytest.raises(RegionError, match=r"00000002.arrow .* missing"):
        seqs(stream)
    (stream.place.local / "00000001.rows").unlink()
    with pytest.raises(RegionError, match=r"00000001.rows is missing") as refused:
        seqs(stream)
    assert "--repair" in refused.value.hint


def test_streams_are_listed_by_name(tmp_path):
    record(tmp_path, "b")
    record(tmp_path, "a/b")
    (tmp_path / "nothing").mkdir()
    assert list(Recording(tmp_path)) == ["a/b", "b"]
    assert list(Recording(tmp_path.as_uri())) == ["a/b", "b"]
