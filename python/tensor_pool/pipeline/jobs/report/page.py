"""A report as one page of HTML that needs nothing else: no script, no font, no picture from elsewhere."""

from __future__ import annotations

import base64
from html import escape
from typing import TYPE_CHECKING, Any, Final

from tensor_pool.pipeline.jobs.report.model import BarPlot, LinePlot
from tensor_pool.pipeline.jobs.report.plots import bar_svg, line_svg

if TYPE_CHECKING:
    from tensor_pool.pipeline.jobs.report.model import Figure, KeyFigure, Report, Table

__all__ = ["cell_text", "page"]

_MOST_ROWS: Final = 500
"""A page shows so many rows of a table; the JSON file beside it has all."""
_STYLE: Final = """
:root{color-scheme:light dark;--back:#fff;--card:#f4f5f7;--ink:#1b1f24;--soft:#5b6570;--line:#d9dde2;
--ok:#18794e;--warn:#9a6700;--bad:#c62a2f;--c0:#2563eb;--c1:#d9480f;--c2:#0f8a5f;--c3:#8b3fc7;--c4:#b58900;
--c5:#c2255c}
@media (prefers-color-scheme:dark){:root{--back:#14171a;--card:#1f2429;--ink:#e8eaed;--soft:#a2abb5;
--line:#363d45;--ok:#4cc38a;--warn:#e2a336;--bad:#ff6b70;--c0:#6ea8fe;--c1:#ff9466;--c2:#51cf9b;--c3:#c18cf0;
--c4:#e6c35c;--c5:#f783ac}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1rem;max-width:76rem;background:var(--back);color:var(--ink);
font:16px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}
h1{font-size:1.5rem;margin:.2rem 0}h2{font-size:1.15rem;margin:2rem 0 .6rem}h3{font-size:1rem;margin:.2rem 0}
.soft,.note,figcaption{color:var(--soft)}.soft,.note{font-size:.9rem}
.figures{display:grid;grid-template-columns:repeat(auto-fill,minmax(10rem,1fr));gap:.7rem;margin:1rem 0}
.figure{background:var(--card);border-radius:.5rem;padding:.7rem .9rem;border-left:.3rem solid var(--line)}
.figure b{display:block;font-size:1.35rem;font-weight:600}.figure small{color:var(--soft)}
.ok{border-color:var(--ok)}.warn{border-color:var(--warn)}.bad{border-color:var(--bad)}
.t-ok{color:var(--ok)}.t-warn{color:var(--warn)}.t-bad{color:var(--bad)}
.t-ok,.t-warn,.t-bad{font-weight:600}
.plots{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,30rem),1fr));gap:1rem}
figure{margin:0;background:var(--card);border-radius:.5rem;padding:.7rem .9rem;min-width:0}
figure.wide{grid-column:1/-1}figure svg,figure img{width:100%;height:auto;display:block}
figure img{border-radius:.3rem}
svg text{fill:var(--soft);font:12px system-ui,sans-serif}svg .grid{stroke:var(--line);stroke-width:1}
svg .line{fill:none;stroke-width:2;stroke-linejoin:round}svg line.mark{stroke:var(--bad);stroke-dasharray:4 3}
svg text.mark{fill:var(--bad)}
.c0{stroke:var(--c0);background:var(--c0)}.c1{stroke:var(--c1);background:var(--c1)}
.c2{stroke:var(--c2);background:var(--c2)}.c3{stroke:var(--c3);background:var(--c3)}
.c4{stroke:var(--c4);background:var(--c4)}.c5{stroke:var(--c5);background:var(--c5)}
svg .bar{fill:var(--c0);stroke:none}.empty{color:var(--soft);text-align:center;padding:2rem 0}
.legend{margin:.3rem 0 0;font-size:.85rem;color:var(--soft)}.legend span{margin-right:1rem;white-space:nowrap}
.legend i{display:inline-block;width:.8rem;height:.2rem;margin-right:.3rem;vertical-align:middle}
.table{overflow-x:auto;border:1px solid var(--line);border-radius:.5rem}
table{border-collapse:collapse;width:100%;font-size:.9rem}
th,td{text-align:left;padding:.35rem .7rem;border-bottom:1px solid var(--line);vertical-align:top;
overflow-wrap:normal}
td.n,th.n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
td.t{white-space:nowrap}td.w{min-width:18rem}
tr:last-child td{border-bottom:0}th{background:var(--card);white-space:nowrap}
"""
_SHORT: Final = 32
_TONES: Final = frozenset({"ok", "warn", "bad"})


def page(report: Report, *, source: str, made: str) -> str:
    """The whole page.

    Args:
        report: What it says.
        source: What the report is about, such as the name of a recording.
        made: When, as text.

    Example:
        >>> from tensor_pool.pipeline.jobs.report.model import Report
        >>> report = Report(job="quality", title="<b>", summary="", figures=[], plots=[], tables=[])
        >>> "<b>" in page(report, source="run 1", made="today")
        False
    """
    body = [
        f"<h1>{escape(report.title)}</h1>",
        f'<p class="soft">{escape(source)} · {escape(made)}</p>',
        f"<p>{escape(report.summary)}</p>" if report.summary else "",
        f'<div class="figures">{"".join(map(_figure, report.figures))}</div>' if report.figures else "",
        *(f'<p class="note">{escape(note)}</p>' for note in report.notes),
    ]
    if report.plots:
        body.append(f'<h2>Plots</h2><div class="plots">{"".join(map(_plot, report.plots))}</div>')
    body += map(_table, report.tables)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        # Whatever a name contains: the page runs nothing and fetches nothing.
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'; img-src data:\">"
        f"<title>{escape(report.title)}</title><style>{_STYLE}</style></head>"
        f"<body>{''.join(body)}</body></html>\n"
    )


def _figure(figure: KeyFigure) -> str:
    note = f"<small>{escape(figure.note)}</small>" if figure.note else ""
    return (
        f'<div class="figure {figure.tone}"><small>{escape(figure.name)}</small>'
        f'<b class="t-{figure.tone}">{escape(figure.value)}</b>{note}</div>'
    )


def _plot(plot: Figure) -> str:
    if isinstance(plot, LinePlot):
        drawn, kind = line_svg(plot), ""
    elif isinstance(plot, BarPlot):
        drawn, kind = bar_svg(plot), ""
    else:
        data = base64.b64encode(plot.png).decode("ascii")
        drawn = f'<img alt="{escape(plot.title)}" src="data:image/png;base64,{data}">'
        kind = ' class="wide"'
    return f"<figure{kind}><h3>{escape(plot.title)}</h3>{drawn}</figure>"


def _table(table: Table) -> str:
    shown, note = table.rows[:_MOST_ROWS], table.note
    if len(shown) < len(table.rows):
        note = f"The first {len(shown)} of {len(table.rows)} rows; the JSON file has all. {note}".strip()
    parts = [f"<h2>{escape(table.title)}</h2>"]
    if note or not shown:
        parts.append(f'<p class="note">{escape(note or "no rows")}</p>')
    if shown:
        numeric = {name for name in table.columns if _is_numeric(shown, name)}
        heads = "".join(
            f"<th{' class=n' if name in numeric else ''}>{escape(name.replace('_', ' '))}</th>"
            for name in table.columns
        )
        lines = "".join(
            f"<tr>{''.join(_cell(row.get(name), is_number=name in numeric) for name in table.columns)}</tr>"
            for row in shown
        )
        parts.append(f'<div class="table"><table><tr>{heads}</tr>{lines}</table></div>')
    return "".join(parts)


def _is_numeric(rows: list[dict[str, Any]], name: str) -> bool:
    values = [row.get(name) for row in rows]
    return all(value is None or isinstance(value, int | float) for value in values) and any(
        value is not None for value in values
    )


def _cell(value: Any, *, is_number: bool) -> str:
    text = escape(cell_text(value))
    if isinstance(value, str) and value in _TONES:
        text = f'<span class="t-{value}">{text}</span>'
    if is_number:
        return f'<td class="n">{text}</td>'
    # Short texts, such as times, stay on their line; long ones get room for some words.
    return f'<td class="{"t" if len(text) <= _SHORT else "w"}">{text}</td>'


def cell_text(value: Any) -> str:
    """A value as a table shows it.

    Example:
        >>> [cell_text(value) for value in (1234567, 0.123456789, None, {"lost": 3}, [1, 2], True)]
        ['1,234,567', '0.12346', '-', 'lost: 3', '1, 2', 'yes']
    """
    if value is None or (isinstance(value, dict | list | tuple | str) and not value):
        return "-"
    if isinstance(value, dict):
        return ", ".join(f"{key}: {cell_text(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(cell_text, value))
    return _scalar_text(value)


def _scalar_text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.5g}" if isinstance(value, float) else str(value)
