"""Jobs that read tensors: statistics, drift, thumbnails. Expected numbers come from NumPy."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from recordings import record_arrays, record_rows
from tensor_pool.errors import ConfigError
from tensor_pool.pipeline import jobs
from tensor_pool.pipeline.record.recording import Recording


def noise(frames, mean=100.0, shape=(48, 64), seed=3):
    random = np.random.default_rng(seed)
    return np.clip(random.normal(mean, 12, (frames, *shape)), 0, 255).astype("uint8")


@pytest.fixture(scope="module")
def cameras(tmp_path_factory, spark):
    """Streams with and without defects, and every odd kind of tensor."""
    directory = tmp_path_factory.mktemp("cameras")
    good, jump, dead = noise(100), noise(100, seed=4), noise(100, seed=5)
    jump[63:] = np.clip(jump[63:].astype(int) + 40, 0, 255)
    dead[57:, 20:24] = 17
    record_arrays(directory, good, "good")
    record_arrays(directory, jump, "jump")
    record_arrays(directory, dead, "dead")
    odd = [
        np.array([[1.0, np.nan], [np.inf, 4.0]]),
        np.zeros((0, 4), "float32"),
        np.array([True, False, True, True]),
        np.array([3 + 4j, 0j]),
        np.array(2**63 + 2**40, "uint64"),
        np.full((3, 3), np.nan, "float32"),
        np.asfortranarray(np.arange(12, dtype="int16").reshape(3, 4)),
    ]
    record_arrays(directory, odd, "odd")
    record_arrays(directory, [noise(1)[0]], "single")
    record_rows(directory, [{"seq": 0, "count": 3, "status": "lost"}], "only-gaps")
    df = spark.read.format("tensorpool").load(str(directory))
    return directory, {"good": good, "jump": jump, "dead": dead, "odd": odd}, df


@pytest.fixture(scope="module")
def measured(cameras):
    found = jobs.statistics(cameras[2], streams=["only-gaps"])
    return found, {stream.stream: stream for stream in found.streams}


def test_numbers_of_a_stream_are_those_of_all_its_values(cameras, measured):
    arrays, streams = cameras[1], measured[1]
    for name in ("good", "jump", "dead"):
        values, stream = arrays[name].astype(float), streams[name]
        assert stream.mean == pytest.approx(values.mean(), rel=1e-12)
        assert stream.std == pytest.approx(values.std(), rel=1e-9)
        assert (stream.minimum, stream.maximum) == (values.min(), values.max())
        assert (stream.frames, stream.values, stream.nan_share) == (100, values.size, 0.0)
        assert stream.kinds == {"uint8 48 x 64": 100}
        for window, part in zip(stream.windows, np.split(values, 10), strict=True):
            assert window.mean == pytest.approx(part.mean(), rel=1e-12)
            assert window.std == pytest.approx(part.std(), rel=1e-9)
            assert window.frames == 10


def test_a_good_stream_does_not_drift(measured):
    good = measured[1]["good"]
    assert not good.drifts
    assert good.dead_bands == []
    assert max(window.psi for window in good.windows[1:]) < 0.01
    assert max(abs(window.mean_shift) for window in good.windows[1:]) < 0.1


def test_a_jump_of_brightness_is_found_where_it_is(cameras, measured):
    jump, values = measured[1]["jump"], cameras[1]["jump"].astype(float)
    assert [window.window for window in jump.windows if window.drifts] == [6, 7, 8, 9]
    assert jump.changed_at_seq == 63
    expected = (values[90:].mean() - values[:10].mean()) / values[:10].std()
    assert jump.windows[9].mean_shift == pytest.approx(expected, rel=1e-9)
    assert jump.windows[9].psi > 1
    assert jump.dead_bands == []
    assert measured[0].has_problems
    assert "largest change of the mean is at frame 63" in measured[0].report().tables[0].rows[2]["found"]


def test_dead_rows_are_found_where_and_since_when(measured):
    dead = measured[1]["dead"]
    (band,) = dead.dead_bands
    assert (band.axis, band.first, band.last, band.since_seq, band.share) == ("rows", 20, 23, 57, 1.0)
    assert [window.window for window in dead.windows if window.drifts] == [6, 7, 8, 9]
    assert any("rows 20 to 23 are dead" in why for why in dead.windows[6].why)


def test_odd_tensors_have_the_numbers_that_they_have(cameras, measured):
    rows = {row.seq: row for row in jobs.frame_table(cameras[2].filter("stream_name = 'odd'")).collect()}
    assert (rows[0]["minimum"], rows[0]["maximum"], rows[0]["mean"]) == (1.0, 4.0, 2.5)
    assert (rows[0]["nan_share"], rows[0]["inf_share"], rows[0]["std"]) == (0.25, 0.25, 1.5)
    assert (rows[1]["size"], rows[1]["mean"], rows[1]["nan_share"]) == (0, None, None)
    assert rows[2]["mean"] == 0.75
    assert (rows[3]["maximum"], rows[3]["mean"]) == (5.0, 2.5)
    assert rows[4]["mean"] == float(2**63 + 2**40)
    assert (rows[5]["mean"], rows[5]["nan_share"]) == (None, 1.0)
    assert (rows[6]["mean"], rows[6]["std"]) == (5.5, pytest.approx(np.arange(12).std()))
    odd, single, gaps = (measured[1][name] for name in ("odd", "single", "only-gaps"))
    assert len(odd.kinds) == 7
    assert (single.frames, single.drifts, len(single.windows)) == (1, False, 1)
    assert (gaps.frames, gaps.mean, gaps.windows) == (0, None, [])
    notes = " ".join(measured[0].report().notes)
    assert "several types or shapes" in notes
    assert "one frame" in notes


def test_damaged_frames_are_counted_and_left_out(load, tmp_path):
    arrays = np.full((20, 4, 4), 9, "uint8") + np.arange(20, dtype="uint8")[:, None, None]
    recording = record_arrays(tmp_path, arrays)
    (path,) = recording["camera-1"].place.local.glob("*.arrow")
    content = bytearray(path.read_bytes())
    content[content.index(bytes([22] * 16))] ^= 0xFF
    path.write_bytes(content)
    (stream,) = jobs.statistics(load(tmp_path), windows=4).streams
    assert (stream.frames, stream.unreadable) == (19, {"damaged": 1})
    assert stream.mean == pytest.approx(np.delete(arrays, 13, axis=0).mean())
    assert stream.constant_frames == 19
    (drawn,) = jobs.thumbnails(load(tmp_path), tmp_path / "out", count=20).streams
    assert (drawn.drawn, drawn.refused) == (19, 1)
    assert drawn.thumbnails[13].reason == "damaged"


def test_thumbnails_and_contact_sheets(cameras, tmp_path):
    directory, _, df = cameras
    found = jobs.thumbnails(df, tmp_path, count=8, size=32, streams=["only-gaps"])
    streams = {stream.stream: stream for stream in found.streams}
    jump = streams["jump"]
    assert [one.seq for one in jump.thumbnails] == [0, 14, 28, 42, 57, 71, 85, 99]
    pictures = [np.asarray(Image.open(one.file)) for one in jump.thumbnails]
    assert {picture.shape for picture in pictures} == {(24, 32)}
    # One contrast for the whole stream: the jump can be seen.
    assert pictures[-1].mean() > pictures[0].mean() + 50
    with Image.open(jump.sheet) as sheet:
        assert sheet.width > 6 * 32
    assert jump.sheet == str(tmp_path / "contact-jump.png")
    odd = streams["odd"]
    assert [one.reason for one in odd.thumbnails] == [
        "",
        "it has no values",
        "",
        "",
        "one value is no picture",
        "",
        "",
    ]
    assert (streams["only-gaps"].sheet, streams["only-gaps"].frames) == (None, 0)
    page = found.report()
    assert [plot.title for plot in page.plots] == ["dead", "good", "jump", "odd", "single"]
    assert Image.open(io.BytesIO(page.plots[0].png)).format == "PNG"
    assert Recording(directory)  # nothing was written into it


@pytest.mark.parametrize("changes", [{"count": 0}, {"size": 5}, {"size": 5_000}])
def test_sizes_that_make_no_sense_are_refused(cameras, tmp_path, changes):
    with pytest.raises(ConfigError, match="pictures of 16 to 1024 pixels"):
        jobs.thumbnails(cameras[2], tmp_path, **changes)


def test_one_window_can_not_be_compared(cameras):
    with pytest.raises(ConfigError, match="windows=1"):
        jobs.statistics(cameras[2], windows=1)
