"""Logging: text for people, JSON lines with stable keys for everything else."""

import io
import json
import logging
import math
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tensor_pool.runtime import logs

LOGGER = logging.getLogger("tensor_pool.test_logs")
KEYS = ["ts", "level", "logger", "msg", "extras", "exc"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    yield
    logs.reset()


def json_line(stream: io.StringIO) -> dict:
    (line,) = stream.getvalue().splitlines()
    return json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


class TestConfigure:
    def test_json_lines_where_nobody_watches(self) -> None:
        stream = io.StringIO()
        logs.configure(stream=stream)
        LOGGER.info("hello")

        assert json_line(stream)["msg"] == "hello"

    def test_text_on_a_terminal(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("NO_COLOR", raising=False)
        stream = Terminal()
        logs.configure(stream=stream)
        LOGGER.warning("hello")

        assert "\x1b[33mWARNING\x1b[0m tensor_pool.test_logs: hello" in stream.getvalue()

    def test_no_color_is_honoured(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("NO_COLOR", "1")
        stream = Terminal()
        logs.configure(stream=stream)
        LOGGER.error("hello")

        assert "\x1b" not in stream.getvalue()
        assert "ERROR" in stream.getvalue()

    @pytest.mark.parametrize(("style", "stream"), [("text", io.StringIO()), ("json", Terminal())])
    def test_the_style_can_be_forced(self, style: logs.LogFormat, stream: io.StringIO) -> None:
        logs.configure(style=style, stream=stream)
        LOGGER.info("hello")

        assert stream.getvalue().startswith("{") == (style == "json")

    def test_the_level_decides_what_is_written(self) -> None:
        stream = io.StringIO()
        logs.configure("warning", stream=stream)
        LOGGER.info("quiet")
        LOGGER.warning("loud")

        assert json_line(stream)["msg"] == "loud"

    def test_a_second_call_replaces_the_first(self) -> None:
        first, second = io.StringIO(), io.StringIO()
        logs.configure(stream=first)
        logs.configure(stream=second)
        LOGGER.info("hello")

        assert first.getvalue() == ""
        assert json_line(second)["msg"] == "hello"

    def test_the_programs_own_handlers_do_not_write_a_second_line(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        logs.configure(stream=io.StringIO())
        LOGGER.error("hello")

        assert caplog.records == []

    def test_reset_gives_records_back_to_the_program(self, caplog: pytest.LogCaptureFixture) -> None:
        stream = io.StringIO()
        logs.configure(stream=stream)
        logs.reset()
        LOGGER.error("hello")

        assert stream.getvalue() == ""
        assert [record.getMessage() for record in caplog.records] == ["hello"]

    def test_handlers_of_others_are_left_alone(self) -> None:
        root = logging.getLogger("tensor_pool")
        theirs = logging.NullHandler()
        root.addHandler(theirs)
        try:
            logs.configure(stream=io.StringIO())
            logs.reset()
            assert root.handlers == [theirs]
        finally:
            root.removeHandler(theirs)

    def test_importing_the_library_configures_nothing(self) -> None:
        script = """
import logging, tensor_pool, tensor_pool.config, tensor_pool.runtime.logs
names = [None, *(name for name in logging.root.manager.loggerDict if name.startswith("tensor_pool"))]
print([n for n in names if logging.getLogger(n).handlers or (n and logging.getLogger(n).level)])
"""
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

        assert done.stdout.strip() == "[]"


class TestJson:
    @pytest.fixture
    def stream(self) -> io.StringIO:
        stream = io.StringIO()
        logs.configure("debug", "json", stream=stream)
        return stream

    def test_the_keys_are_always_the_same(self, stream: io.StringIO) -> None:
        LOGGER.debug("attached %s", "camera-1")
        line = json_line(stream)

        assert list(line) == KEYS
        assert (line["level"], line["logger"], line["msg"]) == (
            "debug",
            "tensor_pool.test_logs",
            "attached camera-1",
        )
        assert (line["extras"], line["exc"]) == ({}, None)
        assert line["ts"].endswith("Z")

    def test_extras_keep_their_types(self, stream: io.StringIO) -> None:
        LOGGER.info("x", extra={"stream_id": 10000, "names": ["a", "b"], "ratio": 0.5, "where": None})

        assert json_line(stream)["extras"] == {
            "stream_id": 10000,
            "names": ["a", "b"],
            "ratio": 0.5,
            "where": None,
        }

    def test_a_traceback_stays_on_the_line(self, stream: io.StringIO) -> None:
        try:
            raise ValueError("two\nlines")
        except ValueError:
            LOGGER.exception("failed")
        line = json_line(stream)

        assert "ValueError: two\nlines" in line["exc"]
        assert list(line) == KEYS

    @pytest.mark.parametrize(
        "odd",
        [
            math.nan,
            {1: 2, (3, 4): 5},
            "\udc80 lone surrogate",
            b"\xff",
            object(),
            {"deep": [math.inf]},
        ],
        ids=["nan", "keys", "surrogate", "bytes", "object", "deep infinity"],
    )
    def test_odd_extras_still_give_a_line_of_json(self, stream: io.StringIO, odd: object) -> None:
        LOGGER.info("x", extra={"odd": odd})

        assert list(json_line(stream)["extras"]) == ["odd"]

    def test_cycles_and_broken_reprs_still_give_a_line(self, stream: io.StringIO) -> None:
        class Broken:
            def __repr__(self) -> str:
                raise RuntimeError("no")

        loop: list[object] = []
        loop.append(loop)
        LOGGER.info("x", extra={"loop": loop, "broken": Broken()})

        assert "whose repr raised RuntimeError" in json_line(stream)["extras"]["broken"]

    def test_line_breaks_in_a_message_do_not_break_the_line(self, stream: io.StringIO) -> None:
        LOGGER.info("one\ntwo\u2028three")

        assert json_line(stream)["msg"] == "one\ntwo\u2028three"


def test_text_shows_extras_and_the_traceback() -> None:
    stream = io.StringIO()
    logs.configure(style="text", stream=stream)
    try:
        raise ValueError("why")
    except ValueError:
        LOGGER.exception("failed", extra={"stream_id": 7})
    first, *rest = stream.getvalue().splitlines()

    assert first.endswith("ERROR   tensor_pool.test_logs: failed stream_id=7")
    assert rest[-1] == "ValueError: why"
