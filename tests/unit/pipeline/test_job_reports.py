"""Pages, plots, pictures and lists of jobs, without Spark."""

from __future__ import annotations

import datetime as dt
import io
import json
import re
import subprocess
import sys

import msgspec
import numpy as np
import pytest
from PIL import Image

from tensor_pool.errors import ConfigError
from tensor_pool.pipeline.jobs import registry
from tensor_pool.pipeline.jobs.drift import DriftLimits
from tensor_pool.pipeline.jobs.latency_job import LatencyResult, StreamLatency
from tensor_pool.pipeline.jobs.lineage_job import LineageResult
from tensor_pool.pipeline.jobs.pictures import Tile, contact_sheet, contrast_of, refusal, thumbnail
from tensor_pool.pipeline.jobs.quality_job import QualityResult, StreamQuality
from tensor_pool.pipeline.jobs.report.files import write_report
from tensor_pool.pipeline.jobs.report.model import (
    BarPlot,
    KeyFigure,
    LinePlot,
    Picture,
    Report,
    Series,
    Table,
)
from tensor_pool.pipeline.jobs.report.page import page
from tensor_pool.pipeline.jobs.report.plots import bar_svg, line_svg, ticks
from tensor_pool.pipeline.jobs.statistics_result import StatisticsResult
from tensor_pool.pipeline.jobs.thumbnails_job import ThumbnailsResult
from tensor_pool.pipeline.jobs.training_set_job import TrainingSetResult
from tensor_pool.pipeline.jobs.verdicts import QualityLimits

HOSTILE = "\"><script>alert('x')</script>&"
NOTHING = {
    "quality": QualityResult(streams=[], limits=QualityLimits(), bytes_read=False),
    "latency": LatencyResult(streams=[]),
    "statistics": StatisticsResult(streams=[], limits=DriftLimits()),
    "lineage": LineageResult(streams=[]),
    "thumbnails": ThumbnailsResult(streams=[]),
    "training-set": TrainingSetResult(dataset="d", manifest="m", hash="0", by="hash", splits=[], streams=[]),
}


def lines(*points):
    return LinePlot(title="t", x_label="x", y_label="y", series=[Series("s", list(points))])


@pytest.mark.parametrize("name", NOTHING)
def test_a_report_of_nothing_says_so(name, tmp_path):
    result = NOTHING[name]
    report = result.report()
    assert any(re.search(r"no frame|No frame", note) for note in report.notes)
    written = write_report(report, result, tmp_path, source="empty")
    assert "no stream" in (tmp_path / f"{name}.html").read_text()
    assert json.loads((tmp_path / f"{name}.json").read_text())["result"]["streams"] == []
    assert written.html.endswith(f"{name}.html")


def test_hostile_names_are_text_everywhere():
    report = Report(
        job="x",
        title=HOSTILE,
        summary=HOSTILE,
        figures=[KeyFigure(HOSTILE, HOSTILE, HOSTILE)],
        plots=[
            LinePlot(title=HOSTILE, x_label=HOSTILE, y_label=HOSTILE, marks=[(0, HOSTILE)],
                     series=[Series(HOSTILE, [(0, 1), (1, 2)]), Series(HOSTILE, [(0, 1)])]),
            BarPlot(title=HOSTILE, x_label=HOSTILE, y_label=HOSTILE, bars=[(HOSTILE, 1)]),
            Picture(title=HOSTILE, png=b"png"),
        ],
        tables=[
            Table(title=HOSTILE, columns=(HOSTILE, "b"), rows=[{HOSTILE: HOSTILE, "b": {HOSTILE: [HOSTILE]}}])
        ],
        notes=[HOSTILE],
    )  # fmt: skip
    html = page(report, source=HOSTILE, made=HOSTILE)
    assert "<script" not in html
    assert not re.search(r"=\"[^\"]*\"><script", html)
    assert html.count("&lt;script&gt;") >= 18
    assert not re.search(r"(src|href)=\"(?!data:)", html)


def test_long_tables_are_cut_and_say_so():
    table = Table(title="t", columns=("n",), rows=[{"n": n} for n in range(600)])
    report = Report(job="x", title="t", summary="", figures=[], plots=[], tables=[table])
    html = page(report, source="", made="")
    assert html.count("<tr>") == 501
    assert "The first 500 of 600 rows" in html


@pytest.mark.parametrize(
    "points",
    [
        [],
        [(0, None)],
        [(0, float("nan")), (1, float("inf"))],
        [(5, 3.0)],
        [(0, 1.0), (1, None), (2, 4.0)],
        [(0, 0.0), (1, 0.0)],
        [(n, float(n % 7)) for n in range(50_000)],
        [(0, -1e300), (1, 1e300)],
    ],
    ids=lambda points: f"{len(points)} {points[:1]}",
)
def test_odd_lines_can_be_drawn(points):
    svg = line_svg(lines(*points))
    assert "nan" not in svg
    assert "inf" not in svg
    assert len(svg) < 40_000
    assert ("nothing to draw" in svg) == (not any(y is not None and np.isfinite(y) for _, y in points))


def test_a_line_is_interrupted_where_there_is_no_value():
    assert line_svg(lines((0, 1), (1, 2), (2, None), (3, 2), (4, 1))).count("<polyline") == 2


def test_bars():
    plot = BarPlot(
        title="t", x_label="x", y_label="y", bars=[(f"{n} and a long label", n) for n in range(40)]
    )
    svg = bar_svg(plot)
    assert svg.count("<rect") == 40
    assert svg.count('text-anchor="middle"') < 15
    assert "nothing to draw" in bar_svg(msgspec.structs.replace(plot, bars=[("a", 0)]))


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-3, 17), (1e-9, 2e-9), (99.9, 100.1), (-1e300, 1e300)])
def test_ticks_lie_between_and_are_few(low, high):
    found = ticks(low, high)
    assert 2 <= len(found) <= 6
    assert all(low - 1e-9 * abs(low) <= tick <= high + 1e-9 * abs(high) for tick in found)


def test_a_report_that_can_not_be_written_is_said(tmp_path):
    (tmp_path / "file").touch()
    result = NOTHING["quality"]
    with pytest.raises(ConfigError, match="can't write a report"):
        write_report(result.report(), result, tmp_path / "file" / "x", source="")


def test_names_that_are_no_text_and_numbers_that_are_none_can_be_written(tmp_path):
    result = QualityResult(
        streams=[StreamQuality(stream="camera\udce9")], limits=QualityLimits(), bytes_read=False
    )
    (tmp_path / "quality.json").touch()
    moment = dt.datetime(2026, 11, 15, tzinfo=dt.UTC)
    write_report(LatencyResult(streams=[StreamLatency(stream="a", mean_s=float("nan"))]).report(),
                 LatencyResult(streams=[StreamLatency(stream="a", mean_s=float("nan"))]), tmp_path,
                 source="s", now=moment)  # fmt: skip
    document = json.loads((tmp_path / "latency.json").read_text())
    assert (document["result"]["streams"][0]["mean_s"], document["made"]) == (
        None,
        "2026-11-15T00:00:00+00:00",
    )
    assert "camera" in page(result.report(), source="", made="")


class TestPictures:
    @pytest.mark.parametrize(
        ("shape", "said"),
        [
            ((), "one value is no picture"),
            ((0, 4), "it has no values"),
            ((5, 6, 7), "7 channels can not be drawn"),
            ((1, 2, 3, 4), "4 dimensions can not be drawn"),
            ((3, 40, 50), None),
            ((40, 50, 4), None),
            ((9,), None),
        ],
    )
    def test_refusals_have_a_reason(self, shape, said):
        assert refusal(shape) == said

    @pytest.mark.parametrize(
        ("array", "size"),
        [
            (np.zeros((480, 640), "uint8"), (64, 48)),
            (np.zeros((640, 480, 3), "float32"), (48, 64)),
            (np.zeros((3, 40, 20), "int16"), (20, 40)),
            (np.zeros((10, 8, 4), bool), (8, 10)),
            (np.zeros((2, 5000), "complex64"), (64, 1)),
            (np.zeros(7), (64, 48)),
            (np.zeros(100_000), (64, 48)),
            (np.full((5, 5), np.nan), (5, 5)),
            (np.full(5, np.nan), (64, 48)),
        ],
        ids=lambda value: str(getattr(value, "shape", value)),
    )
    def test_sizes(self, array, size):
        assert Image.open(io.BytesIO(thumbnail(array, 64, (0.0, 1.0)))).size == size

    def test_contrast_is_fitted_to_percentiles(self):
        array = np.arange(10_000.0).reshape(100, 100)
        array[0, 0] = 1e9  # one hot pixel
        low, high = contrast_of(array)
        assert (low, high) == pytest.approx((100, 9_899), abs=2)
        pixels = np.asarray(Image.open(io.BytesIO(thumbnail(array, 100, (low, high)))))
        assert (pixels[0, 1], pixels[99, 99]) == (0, 255)
        assert pixels[50, 0] == pytest.approx(127, abs=3)
        assert contrast_of(np.full(4, np.nan)) is None

    def test_what_is_no_number_has_a_colour(self):
        array = np.zeros((4, 4))
        array[1, 2] = np.nan
        pixels = np.asarray(Image.open(io.BytesIO(thumbnail(array, 16, (0.0, 1.0)))))
        assert pixels[1, 2].tolist() == [198, 42, 47]
        assert pixels[0, 0].tolist() == [0, 0, 0]

    def test_sheets(self):
        png = thumbnail(np.eye(30), 40, (0.0, 1.0))
        tiles = [Tile(png, (f"#{n}", "a time")) for n in range(7)] + [
            Tile(None, ("#7",), "it is damaged " * 9)
        ]
        with Image.open(io.BytesIO(contact_sheet(HOSTILE * 9, "", tiles, size=40, columns=4))) as sheet:
            assert (sheet.width, sheet.format) == (360, "PNG")
            first = np.asarray(sheet)[62 : 62 + 30, 10 + 5 : 10 + 35].astype(int)
            assert np.array_equal(first[..., 0], np.eye(30) * 255)
        assert Image.open(io.BytesIO(contact_sheet("none", "", [], size=40)))


def test_jobs_are_listed_without_spark():
    code = (
        "import sys; from tensor_pool.ops.cli.root import run; run(['pipeline', 'list']); "
        "sys.exit(any(name in sys.modules for name in ('pyspark', 'PIL', 'pyarrow')))"
    )
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert [line.split()[0] for line in outcome.stdout.splitlines()[1:]] == list(registry.JOBS)


def test_every_listed_job_is_there_and_takes_its_options():
    import inspect

    from tensor_pool.pipeline import jobs

    for each in registry.JOBS.values():
        function = each.load()
        assert getattr(jobs, each.name.replace("-", "_")) is function
        assert {*each.options, "streams"} <= inspect.signature(function).parameters.keys()
    with pytest.raises(ConfigError, match="there is no job 'x'"):
        registry.job("x")
    assert set(jobs.__all__) == {name for name in jobs.__all__ if getattr(jobs, name) is not None}
