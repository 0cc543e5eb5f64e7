"""Printing data: tables for people, JSON for programs, the same rows in each.

A table is drawn with rich on a terminal, without what does not fit there, and is plain aligned text in a
pipe, where nothing is left out or cut off, so that ``grep`` and ``awk`` see whole values.
"""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from typing import TYPE_CHECKING, Any, Literal

import click

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["OutputFormat", "print_json", "print_record", "print_rows", "print_text"]

OutputFormat = Literal["table", "json", "jsonl"]


def print_rows(
    rows: Iterable[Mapping[str, Any]],
    columns: Sequence[str],
    output_format: OutputFormat,
    *,
    spare: Sequence[str] = (),
) -> None:
    """Print a listing.

    Args:
        rows: One mapping a row. With ``jsonl`` each is printed as it comes, so a listing may be endless.
        columns: What a table shows, in this order; JSON has everything that a row has.
        output_format: How.
        spare: Columns that a narrow terminal does without, the least important first.

    Example:
        >>> print_rows([{"id": 10000, "name": "camera-1"}], ["id", "name"], "jsonl")
        {"id": 10000, "name": "camera-1"}
        >>> print_rows([{"id": 10000, "name": "camera-1"}], ["id", "name"], "table")
        ID     NAME
        10000  camera-1
    """
    if output_format == "jsonl":
        for row in rows:
            click.echo(_json(row))
            sys.stdout.flush()
    elif output_format == "json":
        print_json([dict(row) for row in rows])
    elif _is_terminal():
        _print_rich_table(rows, columns, spare)
    else:
        _print_plain_table(rows, columns)


def print_record(record: Mapping[str, Any], output_format: OutputFormat) -> None:
    """Print one thing with its properties, one a line.

    Example:
        >>> print_record({"version": "1.0", "python": "3.11"}, "table")
        version  1.0
        python   3.11
    """
    if output_format == "json":
        print_json(dict(record))
    elif output_format == "jsonl":
        click.echo(_json(record))
    else:
        width = max((len(name) for name in record), default=0)
        for name, value in record.items():
            _print_property(f"{name:<{width}}  ", _cell(value))


def print_text(text: str, *, indent: str = "  ") -> None:
    """Print a line; on a terminal it is broken between words, and what follows is indented.

    Example:
        >>> print_text("hint: mount a larger tmpfs")
        hint: mount a larger tmpfs
    """
    if _is_terminal():
        text = "\n".join(_broken(text, _terminal_width(), indent=indent))
    click.echo(text)


def _print_property(name: str, value: str) -> None:
    """Below its name where there is no room beside it."""
    room = _terminal_width() - len(name) if _is_terminal() else None
    if room is None or len(value) <= room:
        click.echo(f"{name}{value}".rstrip())
    elif max(map(len, value.split()), default=0) <= room:
        print_text(name + value, indent=" " * len(name))
    else:
        click.echo(name.rstrip())
        print_text(f"  {value}")


def _broken(text: str, width: int, *, indent: str) -> list[str]:
    return textwrap.wrap(
        text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _terminal_width() -> int:
    return shutil.get_terminal_size().columns


def print_json(value: Any) -> None:
    """Print one JSON document."""
    click.echo(_json(value, indent=2))


def _json(value: Any, indent: int | None = None) -> str:
    text = json.dumps(value, indent=indent, ensure_ascii=False, default=str)
    # Half characters, as in file names that are not UTF-8, can't be printed; their escapes are JSON's own.
    return text.encode("utf-8", "backslashreplace").decode()


def _is_terminal() -> bool:
    return sys.stdout.isatty()


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple | list):
        return ", ".join(map(_cell, value))
    return str(value)


def _title(column: str) -> str:
    return column.replace("_", " ").upper()


def _print_plain_table(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> None:
    cells = [[_title(column) for column in columns]]
    # A cell stays on its line: a value with a line break would look like another row.
    cells += [[" ".join(_cell(row.get(column)).split()) or "-" for column in columns] for row in rows]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    for line in cells:
        padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        click.echo("  ".join(padded).rstrip())


def _print_rich_table(
    rows: Iterable[Mapping[str, Any]], columns: Sequence[str], spare: Sequence[str]
) -> None:
    from rich.console import Console  # noqa: PLC0415 - most commands print no table, rich takes 50 ms
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    from tensor_pool.ops.cli.table_fit import GAP, fit  # noqa: PLC0415 - it needs rich

    console = Console(file=sys.stdout)  # honours NO_COLOR and TERM=dumb
    cells = [{column: _cell(row.get(column)) for column in columns} for row in rows]
    texts = {column: [_title(column), *(row[column] for row in cells)] for column in columns}
    widths = fit(texts, spare, console.width)
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for column, width in widths.items():
        table.add_column(_title(column), overflow="fold", width=width)
    for row in cells:
        # Text, not str: brackets in values are not markup.
        table.add_row(*(Text(row[column]) for column in widths))
    console.print(table)
    left_out = len(columns) - len(widths)
    if left_out:
        some = "1 column is" if left_out == 1 else f"{left_out} columns are"
        console.print(Text(f"{some} left out; --format json or a wider window has all", style="dim"))
