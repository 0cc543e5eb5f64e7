"""What a supervisor knows, in pieces that fit into events, and put together again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from tensor_pool.control.supervisor.journal import Entry  # noqa: TC001 - msgspec reads annotations at run time
from tensor_pool.control.supervisor.view import SupervisorView  # noqa: TC001 - the same

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["HEALTH", "LOG", "Page", "PageCollector", "pages_of_log", "pages_of_view"]

HEALTH: Final = "health"
"""Key of the events that carry a view."""
LOG: Final = "log"
"""Key of the events that carry the journal."""
_ROWS: Final = 200
"""Of one page: about 64 KiB of JSON."""
_MOST_PAGES: Final = 100
_MAX_TEXT: Final = 64

RowT = TypeVar("RowT")


class Page(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of an answer; which one, of how many, and to which question."""

    request: str
    number: int
    pages: int
    view: SupervisorView | None = None
    """With some of its streams or consumers."""
    entries: tuple[Entry, ...] = ()


def pages_of_view(view: SupervisorView, request: str) -> list[str]:
    """A view as JSON texts, streams first.

    Example:
        >>> view = SupervisorView(at_ns=0, dry_run=True, is_authority=True)
        >>> len(pages_of_view(view, "a"))
        1
    """
    empty = msgspec.structs.replace(view, streams=(), consumers=())
    parts = [msgspec.structs.replace(empty, streams=part) for part in _split(view.streams)]
    parts += [msgspec.structs.replace(empty, consumers=part) for part in _split(view.consumers)]
    parts = (parts or [empty])[:_MOST_PAGES]
    return [
        _text(Page(request=request[:_MAX_TEXT], number=number, pages=len(parts), view=part))
        for number, part in enumerate(parts)
    ]


def pages_of_log(entries: Sequence[Entry], request: str) -> list[str]:
    """The journal as JSON texts; when it is too long, its end."""
    parts = (_split(tuple(entries)) or [()])[-_MOST_PAGES:]
    return [
        _text(Page(request=request[:_MAX_TEXT], number=number, pages=len(parts), entries=part))
        for number, part in enumerate(parts)
    ]


class PageCollector:
    """Puts an answer together.

    Args:
        request: The question.

    Example:
        >>> view = SupervisorView(at_ns=5, dry_run=True, is_authority=True)
        >>> collector = PageCollector("a")
        >>> [collector.add(text) for text in pages_of_view(view, "a")], collector.view == view
        ([True], True)
    """

    def __init__(self, request: str) -> None:
        self._request = request
        self._pages: dict[int, Page] = {}

    def add(self, text: Any) -> bool:
        """Takes the value of an event; whether everything is there."""
        try:
            page = msgspec.json.decode(text, type=Page)
        except (msgspec.MsgspecError, TypeError):
            return False  # somebody else's words
        if page.request == self._request and page.number < page.pages <= _MOST_PAGES:
            self._pages[page.number] = page
        return bool(self._pages) and len(self._pages) == next(iter(self._pages.values())).pages

    @property
    def view(self) -> SupervisorView | None:
        """The view, once everything is there."""
        views = [page.view for _, page in sorted(self._pages.items()) if page.view is not None]
        if not views:
            return None
        return msgspec.structs.replace(
            views[-1],
            streams=tuple(stream for view in views for stream in view.streams),
            consumers=tuple(consumer for view in views for consumer in view.consumers),
        )

    @property
    def entries(self) -> list[Entry]:
        """The journal, once everything is there."""
        return [entry for _, page in sorted(self._pages.items()) for entry in page.entries]


def _split(rows: tuple[RowT, ...]) -> list[tuple[RowT, ...]]:
    return [rows[start : start + _ROWS] for start in range(0, len(rows), _ROWS)]


def _text(page: Page) -> str:
    return msgspec.json.encode(page).decode()
