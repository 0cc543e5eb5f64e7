"""Recordings that somebody or something has changed: named, mended without guessing, believed by nobody."""

from __future__ import annotations

import json

import numpy as np
import pytest

from recordings import record
from tensor_pool.errors import MalformedMessageError
from tensor_pool.pipeline.record.catalogue import load_catalogue, stream_directory
from tensor_pool.pipeline.record.options import RecorderOptions
from tensor_pool.pipeline.record.reading import read_rows
from tensor_pool.pipeline.record.recording import Recording
from tensor_pool.pipeline.record.rows import Row
from tensor_pool.pipeline.record.segment import SegmentWriter
from tensor_pool.pipeline.record.store import StreamStore
from tensor_pool.pipeline.record.verify import verify

FRAMES = [0, 1, 2, 3, 4, 5, 6, *range(10, 20)]


@pytest.fixture
def directory(tmp_path):
    record(tmp_path)
    return stream_directory(tmp_path, "camera/1")


def change_catalogue(directory, change):
    path = directory / "catalogue.json"
    catalogue = json.loads(path.read_text())
    change(catalogue)
    path.write_text(json.dumps(catalogue))


def seqs(directory):
    (stream,) = Recording(directory.parent).values()
    return [frame.row.seq for frame in stream.frames()]


@pytest.mark.parametrize("name", ["/etc/passwd", "../../other/00000001.arrow", "00000001.rows", ""])
def test_a_catalogue_names_nothing_but_segments(directory, name):
    change_catalogue(directory, lambda catalogue: catalogue["segments"][0].update(file=name))
    with pytest.raises(MalformedMessageError, match="which is no segment"):
        Recording(directory.parent)
    assert verify(directory.parent, repair=True).flaws
    assert (verify(directory.parent).flaws, seqs(directory)) == ([], FRAMES)


def test_a_catalogue_names_each_segment_once_and_in_order(directory):
    change_catalogue(directory, lambda catalogue: catalogue["segments"].reverse())
    assert seqs(directory) == FRAMES
    change_catalogue(directory, lambda catalogue: catalogue["segments"].append(catalogue["segments"][0]))
    with pytest.raises(MalformedMessageError, match="lists a segment twice"):
        Recording(directory.parent)
    assert verify(directory.parent, repair=True).flaws
    assert (verify(directory.parent).flaws, seqs(directory)) == ([], FRAMES)


def test_what_a_newer_release_wrote_is_left_alone(directory):
    change_catalogue(directory, lambda catalogue: catalogue.update(version=99))
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    (flaw,) = verify(directory.parent, repair=True).flaws
    assert ("format 99" in flaw.what, flaw.repaired) == (True, False)
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before


def damage_row(path, seq):
    """Another number for a frame, without its checksum."""
    (recorded,) = (each for each in read_rows(path) if each.row.kind == "frame" and each.row.seq == seq)
    content = bytearray(path.read_bytes())
    # The columns of a row lie before its values, each in a buffer of its own.
    at = content.rindex(seq.to_bytes(8, "little"), 0, recorded.values_start)
    while True:
        changed = bytearray(content)
        changed[at + 2] ^= 1
        path.write_bytes(changed)
        damaged = [each.row.seq for each in read_rows(path) if not each.is_true]
        if damaged == [seq + (1 << 16)]:
            return
        at = content.rindex(seq.to_bytes(8, "little"), 0, at)


def test_a_damaged_row_is_believed_by_nobody(directory):
    segment = next(
        path
        for path in sorted(directory.glob("*.arrow"))
        if any(each.row.kind == "frame" and each.row.seq == 12 for each in read_rows(path))
    )
    damage_row(segment, 12)
    for _ in range(2):
        flaws = [flaw.what for flaw in verify(directory.parent, repair=True).flaws]
        assert flaws == ["a row is not what was recorded (wrong checksum)"]
        assert seqs(directory) == FRAMES, "the table beside the segment still knows"
    segment.with_suffix(".rows").unlink()
    verify(directory.parent, repair=True)
    assert seqs(directory) == [seq for seq in FRAMES if seq != 12]


def open_segment(directory, number, *seqs):
    with SegmentWriter(directory, number) as writer:
        for seq in seqs:
            row = Row(kind="frame", stream_id=10_000, epoch=7, seq=seq, dtype="uint8", shape=(4,))
            writer.append(row, np.zeros(4, "uint8"))
        writer.sync()
        return writer.path


def test_an_open_segment_that_cannot_be_read_is_set_aside(directory):
    path = open_segment(directory, 77, 20)
    # Its columns are not those of a recording.
    path.write_bytes(path.read_bytes().replace(b"meta_version", b"mete_version"))
    (directory / "00000078.arrow.open").mkdir()
    (flaw,) = (flaw for flaw in verify(directory.parent).flaws if "00000077" in flaw.file)
    assert "--repair sets it aside" in flaw.what
    verify(directory.parent, repair=True)
    assert (verify(directory.parent).flaws, seqs(directory)) == ([], FRAMES)
    assert (directory / "00000077.arrow.unreadable").exists()
    with StreamStore(directory, RecorderOptions()) as store:
        store.append(Row(kind="frame", stream_id=10_000, epoch=7, seq=30), b"1234", now_ns=0)
    assert seqs(directory) == [*FRAMES, 30]


def test_an_interrupted_repair_is_done_again(directory):
    open_segment(directory, 77, 20, 21)
    open_segment(directory, 90_000_077, 20)
    assert verify(directory.parent, repair=True).flaws
    assert (verify(directory.parent).flaws, seqs(directory)) == ([], [*FRAMES, 20, 21])
    assert [path.name for path in directory.glob("9*")] == []
    assert load_catalogue(directory).segments[-1].file == "00000077.arrow"


def test_metadata_belongs_to_frames_that_came_before_it(tmp_path):
    directory = stream_directory(tmp_path, "late")
    attributes = b'[{"key":"gain","format":"application/json","value":"NA=="}]'
    common = {"stream_id": 1, "epoch": 7, "meta_version": 3}
    with StreamStore(directory, RecorderOptions()) as store:
        store.append(Row(kind="frame", seq=0, dtype="uint8", shape=(4,), **common), b"1234", now_ns=0)
        store.append(Row(kind="metadata", seq=1, count=0, **common), attributes, now_ns=0)
        store.append(Row(kind="frame", seq=1, dtype="uint8", shape=(4,), **common), b"1234", now_ns=0)
    (stream,) = Recording(tmp_path).values()
    assert [dict(frame.metadata) for frame in stream.frames()] == [{"gain": 4}] * 2
