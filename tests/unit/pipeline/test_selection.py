"""Parts of recordings: streams and times, the order of several streams, and what is passed over."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pytest

from tensor_pool.errors import ConfigError, RegionError
from tensor_pool.pipeline.record.contents import Layout, look_through
from tensor_pool.pipeline.record.selection import Selection, read_moment
from written_recordings import CLOCK_NS, START_NS, STEP_NS, RecordingWriter, damage_table, numbered

SECOND_NS = 10**9


def seqs(selection, name="camera-1"):
    return [frame.row.seq for frame in selection.frames(name, pytest.fail)]


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (None, None, range(20)),
        (0.05, None, range(5, 20)),
        ("0.05", "0.1", range(5, 11)),
        (None, 0.099, range(10)),
        ("2023-11-14T22:13:20.150Z", None, range(15, 20)),
        ("2023-11-14T23:13:20.150+01:00", "2023-11-14T23:13:20.17+01:00", range(15, 18)),
        (dt.datetime.fromtimestamp(START_NS / 1e9 + 0.15, dt.UTC), None, range(15, 20)),
        (5, None, []),
    ],
    ids=str,
)
def test_times_choose_frames(tmp_path, start, end, expected):
    numbered(tmp_path)
    assert seqs(Selection(tmp_path, start=start, end=end)) == list(expected)


def test_a_time_without_zone_is_of_this_machine(tmp_path):
    local = dt.datetime.fromtimestamp(START_NS / 1e9 + 0.15).isoformat()  # noqa: DTZ006 - that is the point
    assert read_moment(local, start_ns=0) == START_NS + 150_000_000


@pytest.mark.parametrize("moment", ["soon", "", "-1", "nan", "inf", "2026-13-01"])
def test_what_is_no_moment(moment):
    with pytest.raises(ConfigError, match="is no moment") as refused:
        read_moment(moment, start_ns=0)
    assert "seconds" in refused.value.hint


def test_an_end_before_the_start_is_refused(tmp_path):
    numbered(tmp_path)
    with pytest.raises(ConfigError, match="ends at 1 and starts at 2"):
        Selection(tmp_path, start=2, end=1)


def test_frames_without_a_clock_count_as_of_when_they_were_recorded(tmp_path):
    numbered(tmp_path, realtime_offset_ns=None)
    selection = Selection(tmp_path, start=0.05, end=0.1)
    assert len(seqs(selection)) == 6
    assert selection.first_ns >= START_NS


def test_the_time_of_recording_can_be_asked_for(tmp_path):
    writer = RecordingWriter(tmp_path)
    for n in range(4):  # a clock that never heard of real time
        writer.frame(np.zeros(4), timestamp_ns=n, recorded_ns=START_NS + n * SECOND_NS)
    writer.close()
    assert seqs(Selection(tmp_path, start=2, time_of="recorded")) == [2, 3]
    assert Selection(tmp_path, time_of="recorded").seconds == 3
    assert Selection(tmp_path).seconds == pytest.approx(0, abs=1e-6)


def test_segments_of_other_times_are_not_opened(tmp_path):
    stream = numbered(tmp_path)["camera-1"]
    first = stream.catalogue.segments[0]
    (stream.place.local / first.file).unlink()
    assert seqs(Selection(tmp_path, start=0.1))[-1] == 19


def test_streams_are_merged_in_the_order_of_time(tmp_path):
    numbered(tmp_path, "a", count=5)
    writer = RecordingWriter(tmp_path, "b")
    for n in range(5):
        writer.frame(np.zeros(4), timestamp_ns=START_NS - CLOCK_NS + n * STEP_NS + STEP_NS // 2)
    writer.close()
    order = [(name, frame.row.seq) for _, name, frame in Selection(tmp_path).merged(pytest.fail)]
    assert order == [(name, n) for n in range(5) for name in ("a", "b")]


def test_frames_of_a_stream_never_change_places(tmp_path):
    """A clock that is set back does not take time back."""
    writer = RecordingWriter(tmp_path)
    for stamp in (1_000, 3_000, 2_000, 4_000):
        writer.frame(np.zeros(4), timestamp_ns=stamp)
    writer.close()
    merged = list(Selection(tmp_path).merged(pytest.fail))
    assert [frame.row.seq for _, _, frame in merged] == [0, 1, 2, 3]
    assert [at - CLOCK_NS for at, _, _ in merged] == [1_000, 3_000, 3_000, 4_000]


def test_what_can_not_be_read_is_told_and_passed_over(tmp_path):
    stream = numbered(tmp_path)["camera-1"]
    segments = stream.catalogue.segments
    assert len(segments) > 3
    damage_table(tmp_path, 2)
    (stream.place.local / segments[2].file).unlink()
    told = []
    found = [frame.row.seq for frame in Selection(tmp_path).frames("camera-1", told.append)]
    gone = [range(segment.min_seq, segment.max_seq + 1) for segment in segments[1:3]]
    assert found == [n for n in range(20) if n not in gone[0] and n not in gone[1]]
    assert [damage.frames for damage in told] == [len(seqs) for seqs in gone]
    assert "is damaged" in told[0].what
    assert "is missing" in told[1].what


def test_a_stream_that_is_not_there(tmp_path):
    numbered(tmp_path)
    with pytest.raises(RegionError, match="no stream camera-2") as refused:
        Selection(tmp_path, ["camera-2"])
    assert "camera-1" in refused.value.hint


def test_what_frames_look_like_is_known_without_reading_one(tmp_path):
    writer = RecordingWriter(tmp_path)
    writer.frame(np.zeros((2, 3), "uint16"), meta_version=1)  # its metadata is heard a little later
    writer.metadata(1, gain=3)
    writer.frame(np.zeros((2, 3), "uint16"))
    writer.frame(np.zeros((5, 0), "uint8"))
    writer.metadata(2, gain=4)
    writer.frame(np.zeros(9, "float64"))
    recording = writer.close()
    for path in recording["camera-1"].place.local.glob("*.arrow"):
        path.write_bytes(bytes(path.stat().st_size))
    contents = look_through(Selection(recording), "camera-1")
    assert contents.layouts == {
        Layout("uint16", (2, 3)): 2,
        Layout("uint8", (5, 0)): 1,
        Layout("float64", (9,)): 1,
    }
    assert (contents.frames, contents.max_bytes, contents.layout) == (4, 72, None)
    assert contents.metadata == {"gain": 3}
