"""Tables for people, JSON for programs."""

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tensor_pool.ops.cli import output
from tensor_pool.ops.cli.doctor import print_advice
from tensor_pool.ops.cli.output import print_record, print_rows, print_text
from tensor_pool.ops.doctor.finding import warning

ROWS = [
    {"id": 10000, "name": "camera-1", "rate_hz": 29.97, "tags": ["raw", "u16"], "live": True},
    {"id": 7, "name": "[red]x", "rate_hz": None, "tags": [], "live": False},
]


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_a_plain_table_is_aligned_and_whole(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(ROWS, ["id", "name", "rate_hz", "tags", "live"], "table")

    assert capsys.readouterr().out == (
        "ID     NAME      RATE HZ  TAGS      LIVE\n"
        "10000  camera-1  29.97    raw, u16  yes\n"
        "7      [red]x    -        -         no\n"
    )


def test_a_table_without_rows_has_its_header(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([], ["id", "name"], "table")

    assert capsys.readouterr().out == "ID  NAME\n"


def test_values_with_line_breaks_stay_in_their_row(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([{"a": "one\ntwo"}, {"a": ""}, {}], ["a"], "table")

    assert capsys.readouterr().out == "A\none two\n-\n-\n"


def test_nothing_is_cut_in_a_pipe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    print_rows([{"a": "x" * 500}], ["a"], "table")

    assert "x" * 500 in capsys.readouterr().out


@pytest.mark.parametrize("no_color", [True, False])
def test_a_terminal_gets_a_drawn_table_and_brackets_are_no_markup(
    monkeypatch: pytest.MonkeyPatch, no_color: bool
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    print_rows(ROWS, ["id", "name"], "table")
    text = terminal.getvalue()

    assert "[red]x" in text
    assert "camera-1" in text
    assert "\x1b[3" not in text  # no colour in either case, only weight


WIDE = {
    "stream_id": 20001,
    "name": "depth-of-the-left-camera",
    "producer_id": 4_294_967_295,
    "current_seq": 123_456,
    "why": "newest of its stream, and its process still exists",
}


def drawn(monkeypatch: pytest.MonkeyPatch, width: int, spare: list[str]) -> list[str]:
    monkeypatch.setenv("TERM", "xterm-256color")  # a dumb one always has 80 columns
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    print_rows([WIDE], list(WIDE), "table", spare=spare)
    return [line.rstrip() for line in click.unstyle(terminal.getvalue()).splitlines()]


@pytest.mark.parametrize("width", [120, 90, 81])
def test_lines_are_broken_between_words(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    lines = drawn(monkeypatch, width, ["producer_id"])
    words = {word for line in lines for word in line.split()}

    assert words >= {"20001", "4294967295", "PRODUCER", *WIDE["name"].split(), *WIDE["why"].split()}
    assert max(map(len, lines)) <= width


def test_a_narrow_terminal_does_without_some_columns_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = drawn(monkeypatch, 55, ["producer_id", "current_seq", "stream_id"])

    text = " ".join(lines)
    assert text.endswith("2 columns are left out; --format json or a wider window has all")
    assert "20001" in text
    assert "PRODUCER" not in text
    assert "123456" not in text


def test_nothing_is_left_out_in_a_pipe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    print_rows([WIDE], list(WIDE), "table", spare=["producer_id"])

    assert "4294967295" in capsys.readouterr().out


def test_json_is_one_document_with_everything(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(iter(ROWS), ["id"], "json")

    assert json.loads(capsys.readouterr().out) == ROWS


def test_json_lines_are_printed_as_they_come(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[str] = []

    def endless() -> Iterator[dict]:
        for number in range(3):
            yield {"n": number}
            seen.append(capsys.readouterr().out)

    print_rows(endless(), ["n"], "jsonl")

    assert seen == ['{"n": 0}\n', '{"n": 1}\n', '{"n": 2}\n']


def test_what_json_does_not_know_is_written_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    from pathlib import Path

    print_record({"path": Path("/x"), "name": "ä"}, "jsonl")

    assert capsys.readouterr().out == '{"path": "/x", "name": "ä"}\n'


def test_a_record_has_a_line_for_each_property(capsys: pytest.CaptureFixture[str]) -> None:
    print_record({"a": 1, "long name": None, "c": ""}, "table")

    assert capsys.readouterr().out == "a          1\nlong name  -\nc\n"


def test_a_record_without_properties_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    print_record({}, "table")

    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("output_format", ["json", "jsonl"])
def test_text_is_printed_as_it_is_and_half_characters_as_escapes(
    capfdbinary: pytest.CaptureFixture[bytes], output_format: str
) -> None:
    record = {"file": "größe-\udcff.bin"}  # what Python makes of a file name that is not UTF-8
    print_record(record, output_format)

    printed = capfdbinary.readouterr().out
    assert "größe".encode() in printed
    assert json.loads(printed) == record


LINE = "90.18 Hz   interval ms: min 9.871  p10 9.954  p50 10.027  p90 10.682  max 10.214  jitter 0.061"


class TestNarrowTerminals:
    @pytest.fixture(autouse=True, params=[30, 40, 90])
    def width(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
        monkeypatch.setenv("COLUMNS", str(request.param))
        monkeypatch.setattr(output, "_is_terminal", lambda: True)
        return request.param

    def test_lines_break_between_words(self, width: int, capsys: pytest.CaptureFixture[str]) -> None:
        print_text(LINE)
        lines = capsys.readouterr().out.splitlines()
        assert " ".join(lines).split() == LINE.split()
        assert max(map(len, lines)) <= width
        assert all(line.startswith("  ") for line in lines[1:])

    def test_values_go_below_their_names(self, width: int, capsys: pytest.CaptureFixture[str]) -> None:
        record = {"clock.realtime_offset_ns": 1795027642866143056, "sees": "all that there is to see of it"}
        print_record(record, "table")
        lines = capsys.readouterr().out.splitlines()
        assert " ".join(lines).split() == [
            word for pair in record.items() for word in str(" ".join(map(str, pair))).split()
        ]
        assert max(map(len, lines)) <= width

    def test_a_name_may_be_wider_than_the_window(self, capsys: pytest.CaptureFixture[str]) -> None:
        name = "x" * 100
        print_record({name: ""}, "table")
        assert capsys.readouterr().out.split() == [name]

    def test_the_doctors_advice(self, width: int, capsys: pytest.CaptureFixture[str]) -> None:
        print_advice(
            [warning("real time", "not synchronised", "a container shows its host's clock, run chrony")]
        )
        lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) <= width
        assert "  try: a container" in lines[2] or "  try: a container" in lines[3]


def test_in_a_pipe_lines_stay_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    print_text(LINE)
    assert capsys.readouterr().out == f"{LINE}\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("revoke", "abc"), "'abc' is not a valid integer."),
        (("hz", "a", "--count", "many"), "'many' is not a valid integer."),
        (("hz", "a", "--seconds", "long"), "'long' is not a valid float."),
    ],
    ids=" ".join,
)
def test_what_is_no_number_is_called_so(tpool, arguments: tuple[str, ...], said: str) -> None:
    assert said in tpool(*arguments).err


@pytest.mark.parametrize("command", [("snap",), ("hz",), ("bench", "latency"), ("shm", "gc")], ids=" ".join)
def test_help_shows_no_bounds_where_there_are_none(tpool, command: tuple[str, ...]) -> None:
    told = tpool(*command, "--help").out
    assert "None" not in told
    assert "RANGE" not in told


def test_one_thing_is_not_called_many(tpool, tmp_path: Path) -> None:
    epoch = tmp_path / "tensorpool-ada/default/10000/1"
    epoch.mkdir(parents=True)
    place = f"--set=shm.shm_base_dir={tmp_path}"
    assert tpool("shm", "verify", place).err.endswith("1 epoch, 1 flaw\n")
