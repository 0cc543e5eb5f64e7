"""Splits of a training set, as they are typed."""

from __future__ import annotations

from typing import Any

import click

__all__ = ["Splits"]


class Splits(click.ParamType[dict[str, Any]]):
    """Names with fractions, or with times up to which they last.

    Example:
        >>> Splits().convert("train=0.8,val=0.2", None, None)
        {'train': 0.8, 'val': 0.2}
        >>> Splits().convert("train=2026-11-15T12:00:00Z,val", None, None)
        {'train': '2026-11-15T12:00:00Z', 'val': None}
    """

    name = "splits"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, Any]:
        """See `click.ParamType.convert`."""
        if isinstance(value, dict):
            return value
        found: dict[str, Any] = {}
        for part in str(value).split(","):
            name, _, size = (text.strip() for text in part.partition("="))
            if not name or name in found:
                self.fail(f"{value!r} should be like train=0.8,val=0.2, each name once.", param, ctx)
            found[name] = _part(size)
        return found


def _part(text: str) -> float | str | None:
    """Which numbers and times make sense is known to who makes the splits."""
    try:
        return float(text)
    except ValueError:
        return text or None
