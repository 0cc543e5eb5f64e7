"""Counters as rows: names of kinds, filters, rates; and listings that repeat."""

import json
from collections.abc import Callable

import click
import pytest

from tensor_pool.ops.cli.watching import print_listing
from tensor_pool.ops.counters import CounterRows, counter_kind
from tensor_pool.runtime import CounterType
from tensor_pool.transport import CounterReading

S = 1_000_000_000


def reading(
    counter_id: int = 50, type_id: int = 4001, value: int = 0, label: str = "camera: work", owner: int = 3
) -> CounterReading:
    return CounterReading(
        counter_id, type_id, value, counter_id + 100, owner, b"\1\2".ljust(112, b"\0"), label
    )


def test_every_kind_of_ours_has_its_name() -> None:
    for kind in CounterType:
        assert counter_kind(kind.type_id) == kind.label


def test_a_row_has_everything() -> None:
    (row,) = CounterRows().update([reading(value=7)], now_ns=0)

    assert (row.counter_id, row.kind, row.value, row.owner_id, row.key) == (50, "work", 7, 3, "0102")
    assert row.per_second is None


def test_the_drivers_own_counters_have_no_owner() -> None:
    (row,) = CounterRows().update([reading(type_id=0, owner=-1)], now_ns=0)

    assert row.owner_id is None
    assert row.kind == "media driver"


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({}, [1, 2, 3, 4]),
        ({"ours": True}, [2, 3]),
        ({"type_id": 0}, [1]),
        ({"text": "ERRORS"}, [1, 3]),
        ({"ours": True, "text": "errors"}, [3]),
    ],
)
def test_filters(options: dict[str, object], found: list[int]) -> None:
    readings = [
        reading(1, 0, label="Errors: version"),
        reading(2, 4001, label="camera: work"),
        reading(3, 4002, label="camera: errors"),
        reading(4, 5000, label="somebody's"),
    ]

    assert [row.counter_id for row in CounterRows(**options).update(readings, now_ns=0)] == found


def test_rates_are_by_registration_not_by_number() -> None:
    rows = CounterRows()
    rows.update([reading(value=100)], now_ns=0)
    again = rows.update([reading(value=300)], now_ns=2 * S)
    other = rows.update([reading(value=5)._replace(registration_id=9)], now_ns=3 * S)

    assert again[0].per_second == 100.0
    assert other[0].per_second is None, "another counter under the same number"


def test_time_that_stands_still_gives_no_rate() -> None:
    rows = CounterRows()
    rows.update([reading()], now_ns=S)

    assert rows.update([reading(value=1)], now_ns=S)[0].per_second is None


class TestWatching:
    def listing(self, output_format: str, **options: object) -> Callable[[], None]:
        calls = iter(range(100))
        settings = {"watch": True, "interval": 5.0, "count": 3, **options}
        return lambda: print_listing(lambda: [{"n": next(calls)}], ["n"], output_format, **settings)

    def test_json_lines_say_when(self, capsys: pytest.CaptureFixture[str]) -> None:
        pauses: list[float] = []
        self.listing("jsonl", pause=pauses.append)()
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]

        assert [row["n"] for row in rows] == [0, 1, 2]
        assert all("T" in row["at"] for row in rows)
        assert pauses == [5.0, 5.0], "no pause behind the last"

    def test_tables_follow_each_other_in_a_pipe(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.listing("table", pause=lambda _: None)()
        out = capsys.readouterr().out

        assert out.count("N\n") == 3
        assert "\033" not in out

    def test_ctrl_c_leaves_a_whole_document(self, capsys: pytest.CaptureFixture[str]) -> None:
        def interrupted(_: float) -> None:
            raise KeyboardInterrupt

        self.listing("json", pause=interrupted)()
        assert [row["n"] for row in json.loads(capsys.readouterr().out)] == [0]

    def test_an_endless_document_is_refused(self) -> None:
        with pytest.raises(click.UsageError, match="jsonl"):
            self.listing("json", count=None)()

    def test_a_document_with_an_end_has_all_rows(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.listing("json", pause=lambda _: None)()

        assert [row["n"] for row in json.loads(capsys.readouterr().out)] == [0, 1, 2]

    def test_once_is_the_default(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.listing("json", watch=False)()

        assert json.loads(capsys.readouterr().out) == [{"n": 0}]
