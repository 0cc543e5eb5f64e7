"""How wide the columns of a table are on a terminal, and which ones it does without."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.cells import cell_len

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["GAP", "fit"]

GAP: Final = 2
"""Spaces between two columns."""
_READABLE: Final = 16
"""Sentences are not broken into narrower lines than this."""


def fit(
    texts: Mapping[str, Sequence[str]], spare: Sequence[str], terminal_width: int
) -> dict[str, int | None]:
    """The width of each column that is shown, so that no word is broken.

    Lines are broken between words first, then spare columns are left out.

    Args:
        texts: Of each column its title and its cells.
        spare: Columns that may be left out, the first one first.
        terminal_width: What there is.

    Returns:
        Widths by column, in their order; None where even words must be broken, for whoever draws to decide.

    Example:
        >>> texts = {"id": ["ID", "10000"], "pid": ["PID", "4711"], "reason": ["REASON", "no lease left"]}
        >>> fit(texts, ["pid"], 80)
        {'id': 5, 'pid': 4, 'reason': 13}
        >>> fit(texts, ["pid"], 22)
        {'id': 5, 'reason': 13}
    """
    least = {column: _least(title, cells) for column, (title, *cells) in texts.items()}
    for column in spare:
        if _total(least) <= terminal_width:
            break
        least.pop(column, None)
    if _total(least) > terminal_width:
        return dict.fromkeys(least)
    # No column is ever wider than the terminal, however long its texts are.
    widths = {
        column: min(_longest(line for text in texts[column] for line in text.splitlines()), terminal_width)
        for column in least
    }
    while _total(widths) > terminal_width:
        widest = max((column for column in widths if widths[column] > least[column]), key=widths.__getitem__)
        widths[widest] -= 1
    return dict(widths)


def _least(title: str, cells: Sequence[str]) -> int:
    words = _longest(word for text in (title, *cells) for word in text.split())
    return max(words, min(_longest(cells), _READABLE))


def _longest(texts: Iterable[str]) -> int:
    return max(map(cell_len, texts), default=1)


def _total(widths: Mapping[str, int]) -> int:
    return sum(widths.values()) + GAP * (len(widths) - 1)
