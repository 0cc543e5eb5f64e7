"""Files of a recording: every cut of an open segment, every kind of damage."""

from __future__ import annotations

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from tensor_pool.errors import MalformedMessageError
from tensor_pool.pipeline.record.index import ENTRY_BYTES, read_entries
from tensor_pool.pipeline.record.options import RecorderOptions
from tensor_pool.pipeline.record.place import Place
from tensor_pool.pipeline.record.reading import describe_segment, read_rows
from tensor_pool.pipeline.record.row_table import read_row_table
from tensor_pool.pipeline.record.rows import Row
from tensor_pool.pipeline.record.segment import SegmentWriter
from tensor_pool.pipeline.record.store import StreamStore


def frame(seq, array, **changes):
    fields = {
        "kind": "frame",
        "stream_id": 10_000,
        "epoch": 7,
        "seq": seq,
        "timestamp_ns": 100 * seq,
        "recorded_ns": 200 * seq,
        "dtype": array.dtype.name,
        "shape": array.shape,
    }
    return Row(**(fields | changes))


def fill(writer, count, size=50):
    for seq in range(count):
        array = np.arange(size + seq, dtype="uint16")
        writer.append(frame(seq, array), array)


@pytest.fixture
def writer(tmp_path):
    with SegmentWriter(tmp_path, 1) as writer:
        yield writer


def values(path):
    return [(recorded.row.seq, recorded.array.tolist()) for recorded in read_rows(path)]


def expected(count, size=50):
    return [(seq, list(range(size + seq))) for seq in range(count)]


def test_an_open_segment_is_read_up_to_its_last_whole_row_wherever_it_ends(writer, tmp_path):
    fill(writer, 5)
    content = writer.path.read_bytes()
    cut = tmp_path / "00000002.arrow.open"
    for end in [*range(0, len(content), 61), *(e.end + d for e in writer.entries for d in (-1, 0, 1))]:
        cut.write_bytes(content[:end])
        whole = sum(entry.end <= end for entry in writer.entries)
        assert values(cut) == expected(whole), f"cut at {end}"


def test_a_sealed_segment_is_an_arrow_file(writer):
    fill(writer, 5)
    sealed = writer.directory / writer.seal().file
    table = pa.ipc.open_file(pa.memory_map(str(sealed))).read_all()
    assert table["seq"].to_pylist() == [0, 1, 2, 3, 4]
    assert table.schema.metadata[b"tensorpool.recording"] == b"1"
    assert values(sealed) == expected(5)
    assert sorted(path.name for path in sealed.parent.iterdir()) == ["00000001.arrow", "00000001.rows"]


def test_the_index_says_where_the_bytes_of_a_frame_lie(writer):
    fill(writer, 5)
    writer.sync()
    entries = read_entries(writer.path.with_name("00000001.index").read_bytes())
    assert entries == writer.entries
    content = writer.path.read_bytes()
    for entry in entries:
        payload = content[entry.values_start : entry.values_start + entry.values_bytes]
        assert np.frombuffer(payload, "uint16").tolist() == list(range(50 + entry.seq))
        assert entry.values_start % 8 == 0


def test_an_index_ends_with_its_first_entry_that_is_not_whole(writer):
    fill(writer, 3)
    writer.sync()
    content = bytearray(writer.path.with_name("00000001.index").read_bytes())
    assert len(read_entries(bytes(content[:-1]))) == 2
    content[ENTRY_BYTES + 5] ^= 1
    assert len(read_entries(bytes(content))) == 1


def test_what_is_not_synced_is_not_acknowledged(writer):
    fill(writer, 3)
    assert read_entries(writer.path.with_name("00000001.index").read_bytes()) == []
    writer.sync()
    assert writer.synced_rows == 3


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2), (2, 3, 4)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_every_shape_comes_back(writer, shape, order):
    array = np.asarray(np.arange(np.prod(shape), dtype="float32").reshape(shape), order=order)
    flat = array.reshape(-1, order=order)
    writer.append(frame(0, array, order=order), flat)
    (recorded,) = read_rows(writer.directory / writer.seal().file)
    assert recorded.array.shape == shape
    assert np.array_equal(recorded.array, array)
    assert not recorded.array.flags.writeable


def test_a_flipped_bit_in_a_frame_is_noticed(writer):
    fill(writer, 3)
    damaged = writer.entries[1]
    sealed = writer.directory / writer.seal().file
    content = bytearray(sealed.read_bytes())
    content[damaged.values_start + 10] ^= 4
    sealed.write_bytes(content)
    assert [recorded.is_whole for recorded in read_rows(sealed)] == [True, False, True]


def test_damage_anywhere_is_an_error_or_a_wrong_checksum_and_never_another_frame(writer):
    fill(writer, 3, size=8)
    sealed = writer.directory / writer.seal().file
    content = sealed.read_bytes()
    for at in range(0, len(content), 3):
        damaged = bytearray(content)
        damaged[at] ^= 0xFF
        sealed.write_bytes(damaged)
        try:
            rows = [recorded for recorded in read_rows(sealed) if recorded.is_whole]
        except MalformedMessageError:
            continue
        found = [(recorded.row.seq, recorded.array.tolist()) for recorded in rows]
        assert [row for row in found if row not in expected(3, size=8)] == [], f"byte {at}"


def test_what_a_segment_holds(writer):
    gap = Row(kind="gap", stream_id=10_000, epoch=7, seq=5, count=3, status="lost", recorded_ns=1)
    writer.append(Row(kind="metadata", stream_id=10_000, epoch=7, seq=0, count=0, recorded_ns=1), b"[]")
    fill(writer, 5)
    writer.append(gap)
    writer.append(frame(8, np.zeros(4, "uint8")), np.zeros(4, "uint8"))
    info = writer.seal()
    assert (info.rows, info.frames, info.lost) == (8, 6, 3)
    assert (info.first_seq, info.last_seq, info.first_timestamp_ns, info.last_timestamp_ns) == (0, 8, 0, 800)
    assert (info.min_seq, info.max_seq) == (0, 8)


def test_the_table_beside_a_segment_says_where_bytes_lie(writer):
    metadata = Row(kind="metadata", stream_id=10_000, epoch=7, seq=0, count=0, recorded_ns=1)
    writer.append(metadata, b'["exposure"]')
    fill(writer, 5)
    writer.append(frame(8, np.zeros(0, "uint8")), np.zeros(0, "uint8"))
    info = writer.seal()
    path = writer.directory / info.file
    assert describe_segment(path)[0] == info, "made anew from the segment it is the same"
    rows = read_row_table(Place(writer.directory), info).to_pylist()
    assert [row["attributes"] for row in rows] == [b'["exposure"]', *[None] * 6]
    content = path.read_bytes()
    for row, recorded in zip(rows, read_rows(path), strict=True):
        found = content[row["values_start"] :][: row["nbytes"]]
        assert found == bytes(recorded.values)
        assert (row["crc32c"], row["row_crc32c"]) == (recorded.crc32c, recorded.row_crc32c)
        assert all(
            row[name] == (list(value) if name == "shape" else value)
            for name, value in msgspec.structs.asdict(recorded.row).items()
        )


def test_a_damaged_table_is_refused_and_names_the_remedy(writer):
    fill(writer, 2)
    info = writer.seal()
    table = writer.directory / "00000001.rows"
    content = bytearray(table.read_bytes())
    content[len(content) // 2] ^= 1
    table.write_bytes(content)
    with pytest.raises(MalformedMessageError, match="damaged") as refused:
        read_row_table(Place(writer.directory), info)
    assert "--repair" in refused.value.hint


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "is empty"), (b"ARROW1\0\0 and nonsense", "damaged"), (b"PAR1" * 100, "damaged")],
)
def test_other_files_are_refused(tmp_path, content, said):
    path = tmp_path / "00000001.arrow"
    path.write_bytes(content)
    with pytest.raises(MalformedMessageError, match=said):
        list(read_rows(path))


def test_tables_of_others_and_newer_formats_are_refused(tmp_path):
    for metadata, said in [
        (None, "no segment of a recording"),
        ({"tensorpool.recording": "99"}, "format 99"),
    ]:
        path = tmp_path / "00000001.arrow"
        schema = pa.schema([("a", pa.int64())], metadata=metadata)
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as out:
            out.write_batch(pa.record_batch([[1]], schema=schema))
        with pytest.raises(MalformedMessageError, match=said):
            list(read_rows(path))


def test_metadata_that_fills_a_segment_waits_for_its_frame(tmp_path):
    metadata = Row(kind="metadata", stream_id=10_000, epoch=7, seq=0, count=0)
    array = np.arange(10, dtype="uint16")
    with StreamStore(tmp_path / "camera-1", RecorderOptions(segment_bytes=1_000)) as store:
        for seq in range(3):
            store.append(metadata, b'["exposure"]', now_ns=0)
            store.set_head([(metadata, b'["exposure"]')])
            store.append(frame(seq, array), array, now_ns=0)
        assert [segment.frames for segment in store.catalogue.segments] == [1, 1, 1]
