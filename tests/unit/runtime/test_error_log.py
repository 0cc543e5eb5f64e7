"""Distinct errors: counted, bounded, written once."""

import gc
import logging
import threading
import weakref

import pytest

from tensor_pool.errors import ConfigError
from tensor_pool.runtime import ErrorLog

LOGGER = logging.getLogger("tensor_pool.test_error_log")


def raised(kind: type[Exception], message: str) -> Exception:
    """An error with a traceback, always from the same line."""
    try:
        raise kind(message)
    except Exception as e:
        return e


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> ErrorLog:
    caplog.set_level(logging.DEBUG, logger=LOGGER.name)
    return ErrorLog(capacity=4, logger=LOGGER)


def test_the_first_occurrence_is_kept_and_written_once(
    log: ErrorLog, caplog: pytest.LogCaptureFixture
) -> None:
    for now in (100, 200, 300):
        log.record(raised(ValueError, "bad slot"), now_ns=now)

    (entry,) = log
    assert (entry.kind, entry.message, entry.count) == ("ValueError", "bad slot", 3)
    assert (entry.first_ns, entry.last_ns) == (100, 300)
    assert "test_error_log.py" in entry.where
    assert entry.where.endswith("in raised")
    assert len(caplog.records) == 1
    assert caplog.records[0].getMessage().startswith("ValueError: bad slot (")


def test_says_whether_it_is_new(log: ErrorLog) -> None:
    assert log.record(raised(ValueError, "x"), now_ns=0)
    assert not log.record(raised(ValueError, "x"), now_ns=1)


def test_numbers_in_a_message_do_not_make_it_another_error(log: ErrorLog) -> None:
    log.record(raised(ValueError, "slot 17 at 0xBEEF is torn"), now_ns=0)
    log.record(raised(ValueError, "slot 4 at 0xff01 is torn"), now_ns=1)

    assert [entry.count for entry in log] == [2]


@pytest.mark.parametrize(
    "other", [raised(KeyError, "bad slot"), raised(ValueError, "bad pool"), ValueError("bad slot")]
)
def test_another_type_message_or_place_is_another_error(log: ErrorLog, other: Exception) -> None:
    log.record(raised(ValueError, "bad slot"), now_ns=0)
    log.record(other, now_ns=1)

    assert len(log) == 2


def test_what_finds_no_room_is_counted_and_mentioned_once(
    log: ErrorLog, caplog: pytest.LogCaptureFixture
) -> None:
    for letter in "abcdefgh":
        log.record(raised(ValueError, f"error {letter}"), now_ns=0)

    assert (len(log), log.overflow, log.total) == (4, 4, 8)
    messages = [record.getMessage() for record in caplog.records]
    assert sum("further ones are only counted" in message for message in messages) == 1
    assert len(messages) == 4 + 2  # the kept ones, the notice, and the error that caused it


def test_known_errors_still_count_when_there_is_no_room(log: ErrorLog) -> None:
    for letter in "abcdef":
        log.record(raised(ValueError, f"error {letter}"), now_ns=0)
    log.record(raised(ValueError, "error a"), now_ns=9)

    assert next(iter(log)).count == 2


def test_members_of_a_group_are_noted_one_by_one(log: ErrorLog) -> None:
    members = [
        raised(ValueError, "a"),
        ExceptionGroup("inner", [raised(KeyError, "b"), raised(OSError, "c")]),
    ]
    log.record(ExceptionGroup("outer", members), now_ns=0)

    assert [entry.kind for entry in log] == ["ValueError", "KeyError", "OSError"]


def test_errors_of_the_library_are_written_without_traceback_and_without_hint(
    log: ErrorLog, caplog: pytest.LogCaptureFixture
) -> None:
    log.record(ConfigError("unknown key", hint="did you mean"), now_ns=0)
    log.record(raised(ValueError, "a bug"), now_ns=0)

    ours, bug = caplog.records
    assert (ours.exc_info, "did you mean" in ours.getMessage()) == (None, False)
    assert bug.exc_info is not None
    assert next(iter(log)).kind == "tensor_pool.errors.ConfigError"


def test_a_huge_message_is_cut(log: ErrorLog) -> None:
    log.record(raised(ValueError, "x" * 1_000_000), now_ns=0)

    assert len(next(iter(log)).message) == 1024


def test_entries_do_not_keep_errors_or_their_frames_alive() -> None:
    class MarkedError(Exception):
        pass

    log = ErrorLog(logger=logging.getLogger("tensor_pool.test_error_log.silent"))
    logging.getLogger("tensor_pool.test_error_log.silent").disabled = True
    error = raised(MarkedError, "x")
    alive = weakref.ref(error)
    log.record(error, now_ns=0)
    del error
    gc.collect()

    assert alive() is None
    assert len(log) == 1


def test_threads_lose_no_count(log: ErrorLog) -> None:
    def fail_often() -> None:
        for _ in range(500):
            log.record(raised(ValueError, "from a thread"), now_ns=0)

    threads = [threading.Thread(target=fail_often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [entry.count for entry in log] == [2_000]


def test_a_log_keeps_at_least_one_error() -> None:
    with pytest.raises(ValueError, match="at least one"):
        ErrorLog(capacity=0)
