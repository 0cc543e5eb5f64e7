"""Setting up logging: text for people at a terminal, JSON lines for everything else.

Library code only ever logs to loggers named ``tensor_pool.*`` and configures nothing. A program calls
`configure` once; the ``tpool`` command does so with the ``log`` section of the configuration, and so with
``TENSOR_POOL__LOG__LEVEL`` and ``TENSOR_POOL__LOG__FORMAT``.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import os
import sys
from typing import Any, Final, Literal, TextIO

__all__ = ["JsonFormatter", "LogFormat", "LogLevel", "TextFormatter", "configure", "reset"]

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["auto", "text", "json"]

_ROOT: Final = logging.getLogger("tensor_pool")

# What a record always has; anything else came in by `extra=`.
_USUAL_ATTRIBUTES: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

_COLOURS: Final = {logging.DEBUG: "2", logging.WARNING: "33", logging.ERROR: "31", logging.CRITICAL: "1;31"}


def configure(
    level: LogLevel = "info", style: LogFormat = "auto", *, stream: TextIO | None = None
) -> logging.Handler:
    """Send the library's log to a stream; calling it again replaces the earlier set-up.

    Args:
        level: What is worth a line.
        style: ``text``, ``json``, or ``auto``: text on a terminal, JSON lines otherwise.
        stream: Where to; standard error by default, since standard output is for data.

    Returns:
        The handler, for programs that want to add filters to it.

    Example:
        >>> handler = configure("warning", "json", stream=sys.stdout)
        >>> isinstance(handler.formatter, JsonFormatter)
        True
        >>> reset()
    """
    reset()
    stream = sys.stderr if stream is None else stream
    handler = _PoolHandler(stream)
    if style == "json" or (style == "auto" and not stream.isatty()):
        handler.setFormatter(JsonFormatter())
    else:
        # https://no-color.org: set and not empty means no colour, whatever its value.
        handler.setFormatter(TextFormatter(colour=stream.isatty() and not os.environ.get("NO_COLOR")))
    _ROOT.addHandler(handler)
    _ROOT.setLevel(level.upper())
    _ROOT.propagate = False  # the program's own root handlers would write each line a second time
    return handler


def reset() -> None:
    """Undo `configure`: no handler, no level, records go to the program's own logging again."""
    for handler in [h for h in _ROOT.handlers if isinstance(h, _PoolHandler)]:
        _ROOT.removeHandler(handler)
    _ROOT.setLevel(logging.NOTSET)
    _ROOT.propagate = True


class _PoolHandler(logging.StreamHandler[TextIO]):
    """The handler of `configure`, told apart from handlers that others put there."""


class JsonFormatter(logging.Formatter):
    """One JSON object a line, always with the keys ts, level, logger, msg, extras and exc.

    ``ts`` is UTC in ISO 8601 with microseconds, ``extras`` what the call passed as ``extra=``, ``exc`` the
    traceback or null.

    Example:
        >>> record = logging.makeLogRecord({"msg": "hi", "created": 0.5, "stream": 7})
        >>> line = json.loads(JsonFormatter().format(record))
        >>> line["ts"], line["msg"], line["extras"]
        ('1970-01-01T00:00:00.500000Z', 'hi', {'stream': 7})
    """

    def format(self, record: logging.LogRecord) -> str:
        """Write the record on one line; nothing in it can make that fail."""
        moment = dt.datetime.fromtimestamp(record.created, dt.UTC)
        line: dict[str, Any] = {
            "ts": moment.isoformat(timespec="microseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
            "extras": _extras(record),
            "exc": self.formatException(record.exc_info) if record.exc_info else None,
        }
        try:
            return json.dumps(line, default=_safe_repr, allow_nan=False)
        except (TypeError, ValueError, RecursionError):  # odd keys, NaN, cycles: only extras can have them
            line["extras"] = {str(name): _safe_repr(value) for name, value in line["extras"].items()}
            return json.dumps(line)


class TextFormatter(logging.Formatter):
    """Time, level, logger, message and extras as ``name=value``.

    Args:
        colour: Whether the level is coloured; it is always also a word.

    Example:
        >>> record = logging.makeLogRecord({"name": "tensor_pool.x", "levelname": "INFO", "msg": "hi"})
        >>> record.stream = 7
        >>> TextFormatter().format(record).split(maxsplit=1)[1]
        'INFO    tensor_pool.x: hi stream=7'
    """

    def __init__(self, *, colour: bool = False) -> None:
        super().__init__()
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        """Write the record on one line, followed by its traceback if it has one."""
        moment = dt.datetime.fromtimestamp(record.created).astimezone()
        level = f"{record.levelname:<7}"
        if self._colour and record.levelno in _COLOURS:
            level = f"\x1b[{_COLOURS[record.levelno]}m{level}\x1b[0m"
        extras = "".join(f" {name}={_safe_repr(value)}" for name, value in _extras(record).items())
        text = f"{moment:%H:%M:%S.%f} {level} {record.name}: {record.getMessage()}{extras}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def _extras(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _USUAL_ATTRIBUTES}


def _safe_repr(value: object) -> str:
    try:
        return repr(value)
    except Exception as e:  # a log line must not fail because of what it shows
        return f"<{type(value).__qualname__} whose repr raised {type(e).__qualname__}>"
