"""Frames that are named: which segments are opened for them, which rows are theirs, why one is not there."""

from __future__ import annotations

import msgspec
import pytest

from recordings import record, record_rows
from tensor_pool.control.values import FrameRef
from tensor_pool.errors import ConfigError
from tensor_pool.pipeline.jobs.absent_frames import absence, has_stream, yet_to_come
from tensor_pool.pipeline.record.catalogue import load_catalogue, save_catalogue
from tensor_pool.pipeline.record.named_frames import NamedFrames
from tensor_pool.pipeline.record.recording import Recording
from tensor_pool.pipeline.record.row_table import read_row_table
from tensor_pool.pipeline.spark.options import MOST_FRAMES, parse_options
from tensor_pool.pipeline.spark.recording_reader import RecordingReader

STREAM = 10_000
EPOCH = 7


@pytest.fixture
def stream(tmp_path):
    return record(tmp_path, frames=40)["camera/1"]


def opened_for(stream, *frames):
    """Segments that may have some frames, by their place."""
    named = NamedFrames(frames)
    return [at for at, each in enumerate(stream.segments()) if named.in_segment(stream.catalogue, each)]


def test_one_segment_is_opened_for_one_frame(stream):
    assert len(stream.segments()) > 4
    opened = {seq: opened_for(stream, (STREAM, EPOCH, seq)) for seq in range(40)}
    assert {len(places) for places in opened.values()} == {1}
    assert opened_for(stream, (STREAM, EPOCH, 0), (STREAM, EPOCH, 39)) == [0, len(stream.segments()) - 1]
    for other in ((STREAM, EPOCH, 40), (STREAM, EPOCH - 1, 5), (STREAM, EPOCH + 1, 5), (9, EPOCH, 5)):
        assert opened_for(stream, other) == []


def test_epochs_of_a_segment_are_told_apart(tmp_path):
    rows = [{"seq": seq, "count": 1, "status": "lost", "epoch": epoch} for epoch, seq in ((3, 8), (4, 2))]
    stream = record_rows(tmp_path, rows)["camera-1"]
    (segment,) = stream.segments()
    named = NamedFrames([(STREAM, 3, 8), (STREAM, 4, 2), (STREAM, 3, 2), (STREAM, 4, 8), (STREAM, 5, 2)])
    assert named.in_segment(stream.catalogue, segment) == [(STREAM, 3, 8), (STREAM, 4, 2)]
    found = named.of(read_row_table(stream.place, segment))
    assert [(row["epoch"], row["seq"]) for row in found.to_pylist()] == [(3, 8), (4, 2)]


def test_the_tasks_of_a_query_are_the_segments_of_its_frames(tmp_path):
    record(tmp_path, frames=40)
    frames = f"{STREAM}/{EPOCH}/8, {STREAM}/{EPOCH}/30,{STREAM}/{EPOCH}/4000,{STREAM}/{EPOCH}/{2**63}"
    reader = RecordingReader(parse_options({"path": str(tmp_path), "frames": frames}))
    parts = reader.partitions()
    assert len(parts) == 2
    rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    # Frame 8 lies in the gap from 7 to 9.
    assert [(row["seq"], row["count"], row["status"]) for row in rows] == [(7, 3, "lost"), (30, 1, "ok")]


def test_frames_of_a_segment_that_is_missing_are_told_one_by_one(tmp_path):
    stream = record(tmp_path)["camera/1"]
    segment = stream.segments()[-1]
    (stream.place.local / segment.file.replace(".arrow", ".rows")).unlink()
    asked = [segment.max_seq, segment.min_seq]
    frames = ",".join(f"{STREAM}/{EPOCH}/{seq}" for seq in asked)
    options = {"path": str(tmp_path), "frames": frames, "failOnDataLoss": "false"}
    reader = RecordingReader(parse_options(options))
    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    assert {(row["stream_id"], row["seq"], row["status"]) for row in rows} == {
        (STREAM, seq, "segment_missing") for seq in asked
    }


@pytest.mark.parametrize("text", ["", ",", "1/2", "1/2/x", ",".join(["1/2/3"] * (MOST_FRAMES + 1))])
def test_what_names_no_frame_is_refused(text):
    with pytest.raises(ConfigError, match="option frames"):
        parse_options({"path": "run", "frames": text})


def test_frames_are_named_in_recordings_only():
    with pytest.raises(ConfigError, match="frames of a live stream"):
        parse_options({"mode": "live", "stream": "camera", "frames": "1/2/3"})


class TestAbsence:
    @pytest.fixture
    def recording(self, tmp_path):
        return record(tmp_path, frames=40)

    @pytest.mark.parametrize(
        ("frame", "why", "said"),
        [
            ((9, EPOCH, 5), "unknown_stream", "the number 9; there are 10000"),
            ((STREAM, EPOCH, 40), "not_yet", "the newest frame of camera/1 is 7/39"),
            ((STREAM, EPOCH + 1, 0), "not_yet", "the newest frame of camera/1 is 7/39"),
            ((STREAM, EPOCH - 1, 5), "never_recorded", "camera/1 begins with 7/0"),
            ((STREAM, 2**63, 5), "never_recorded", "numbers below 2^63"),
        ],
    )
    def test_it_is_said_why(self, recording, frame, why, said):
        found = absence(recording, FrameRef(*frame))
        assert found.why == why
        assert said in found.text
        assert (yet_to_come(recording, FrameRef(*frame)) is not None) == (why == "not_yet")

    def test_what_was_removed_is_gone(self, recording):
        directory = recording["camera/1"].place.local
        catalogue = load_catalogue(directory)
        catalogue.segments, catalogue.removed_through = catalogue.segments[2:], 2
        save_catalogue(directory, catalogue)
        found = absence(Recording(recording.place), FrameRef(STREAM, EPOCH, 0))
        assert (found.why, found.text[:10]) == ("removed", "it is gone")

    def test_a_name_that_got_another_number_is_found_by_both(self, tmp_path):
        record(tmp_path, frames=5)
        record(tmp_path, frames=5, stream_id=11, epoch=8)
        recording = Recording(tmp_path)
        assert [has_stream(recording, number) for number in (STREAM, 11, 12)] == [True, True, False]
        # Of the old number nothing comes any more that is older than what is there of it.
        assert absence(recording, FrameRef(11, 8, 9)).why == "not_yet"

    def test_without_numbers_in_the_catalogue_rows_are_looked_at(self, recording):
        """As an earlier program wrote it, of a stream that was recorded by its name."""
        stream = recording["camera/1"]
        catalogue = stream.catalogue
        catalogue.stream_id = 0
        catalogue.segments = [msgspec.structs.replace(each, stream_ids=()) for each in catalogue.segments]
        assert has_stream(recording, 9)
        named = NamedFrames([(9, EPOCH, 5)])
        (segment,) = (each for each in stream.segments() if named.in_segment(catalogue, each))
        assert named.of(read_row_table(stream.place, segment)).num_rows == 0
