"""What a recording keeps of its consumers: totals, bounded, checked when they are read."""

from __future__ import annotations

import json
import logging

import pytest

from recordings import record
from tensor_pool.errors import MalformedMessageError
from tensor_pool.pipeline.record import consumers as module
from tensor_pool.pipeline.record.consumers import (
    CONSUMERS,
    ConsumerNotes,
    RecordedConsumer,
    load_consumers,
    save_consumers,
)
from tensor_pool.pipeline.record.place import Place
from tensor_pool.pipeline.record.recording import Recording
from tensor_pool.pipeline.record.upload import push
from tensor_pool.pipeline.record.verify import verify
from tensor_pool.pipeline.record.verify_elsewhere import verify_elsewhere
from tensor_pool.wire.messages import Mode, QosConsumer

SECOND = 1_000_000_000
NOTHING_SEEN = 2**64 - 1


def report(seq, gaps=0, late=0, *, consumer_id=9, epoch=5):
    return QosConsumer(1, consumer_id, epoch, seq, gaps, late, Mode.STREAM)


def noted(directory, *reports, is_recorder=False):
    notes = ConsumerNotes(directory)
    for second, each in enumerate(reports):
        notes.on_report(each, is_recorder, now_ns=second)
    notes.save()
    return {each.consumer_id: each for each in load_consumers(directory)}


def consumer(consumer_id=9, **changes):
    known = {"mode": "stream", "first_seen_ns": 1, "last_seen_ns": 2, "epoch": 5} | changes
    return RecordedConsumer(consumer_id=consumer_id, **known)


@pytest.mark.parametrize(
    ("reports", "passed", "drops", "before", "share"),
    [
        ([report(9)], 0, (0, 0), 0, None),
        ([report(9), report(19)], 10, (0, 0), 0, 0.0),
        # What it lost before it was heard is known, and no part of the rest.
        ([report(9, 3, 4), report(29, 8, 4)], 20, (5, 0), 7, 0.25),
        # In another epoch numbers begin anew, totals go on.
        ([report(9, 1), report(9, 2, epoch=6)], 10, (1, 0), 1, 0.1),
        # Another program with the same id: totals that fall began anew.
        ([report(9, 50), report(19, 5, 2)], 10, (5, 2), 50, 0.7),
        ([report(NOTHING_SEEN), report(NOTHING_SEEN), report(3)], 4, (0, 0), 0, 0.0),
        # A number that goes back passes nothing.
        ([report(9), report(4, 1)], 0, (1, 0), 0, 1.0),
        ([report(0), report(2**64 - 2, 2**64 - 1, 2**64 - 1)], 2**63 - 1, (2**63 - 1,) * 2, 0, 1.0),
    ],
)
def test_totals(tmp_path, reports, *, passed, drops, before, share):
    (found,) = noted(tmp_path, *reports).values()
    assert (found.passed, (found.drops_gap, found.drops_late), found.drops_before) == (passed, drops, before)
    assert found.lost_share == share
    assert (found.first_seen_ns, found.last_seen_ns) == (0, len(reports) - 1)
    assert (found.mode, found.is_recorder) == ("stream", False)


def test_the_next_recorder_goes_on_and_counts_nothing_of_the_time_between(tmp_path):
    noted(tmp_path, report(9, 1), report(19, 3), is_recorder=True)
    found = noted(tmp_path, report(1_000, 500), report(1_010, 501), report(7, consumer_id=8))
    assert (found[9].drops_gap, found[9].passed, found[9].is_recorder) == (3, 20, True)
    assert set(found) == {8, 9}


def test_only_so_many_are_kept_those_who_were_heard_last(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_MOST_CONSUMERS", 3)
    reports = [report(0, consumer_id=number) for number in (1, 2, 3, 1, 4, 5)]
    assert set(noted(tmp_path, *reports)) == {1, 4, 5}


def test_it_is_written_only_now_and_then(tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(module, "save_consumers", lambda _, consumers: written.append(list(consumers)))
    notes = ConsumerNotes(tmp_path)
    for second in range(600):
        notes.on_report(report(second), False, now_ns=second)
        notes.on_time(second * SECOND)
    assert len(written) == 10  # nobody loses anything: once a minute
    for second in range(600, 700):
        notes.on_report(report(second, second), False, now_ns=second)
        notes.on_time(second * SECOND)
    assert len(written) == 10 + 20  # every five seconds
    notes.save()
    notes.save()
    assert len(written) == 10 + 20 + 1


def test_a_disk_that_fails_is_logged_once_and_tried_again(tmp_path, monkeypatch, caplog):
    def full(*_):
        raise OSError(28, "No space left on device")

    notes = ConsumerNotes(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(module, "save_consumers", full)
        for second in range(0, 30, 10):
            notes.on_report(report(second, second), False, now_ns=second)
            notes.on_time(second * SECOND)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    notes.on_time(100 * SECOND)
    assert load_consumers(tmp_path)[0].drops_gap == 20


def damage(path, how):
    content = path.read_bytes()
    if how == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif how == "flipped":
        path.write_bytes(content.replace(b'"drops_gap":0', b'"drops_gap":7'))
    elif how == "huge":
        path.write_bytes(content + b" " * (1 << 20))
    elif how == "no text":
        path.write_bytes(b"\xff\xfe\x00")
    else:
        document = json.loads(content)
        document["version" if how == "newer" else "consumers"] = 99 if how == "newer" else "all"
        path.write_bytes(json.dumps(document).encode())


@pytest.mark.parametrize("how", ["cut", "flipped", "huge", "no text", "newer", "no list"])
def test_what_can_not_be_trusted_is_refused_named_and_set_aside(tmp_path, how, caplog):
    directory = record(tmp_path)["camera/1"].place.local
    save_consumers(directory, [consumer()])
    assert verify(tmp_path).flaws == []
    damage(directory / CONSUMERS, how)
    with pytest.raises(
        MalformedMessageError, match="has format 99" if how == "newer" else "can't be understood"
    ):
        Recording(tmp_path)["camera/1"].consumers()
    for flaws in (verify(tmp_path, repair=True).flaws, verify_elsewhere(Place(tmp_path)).flaws):
        assert [(flaw.file, flaw.repaired) for flaw in flaws] == [(CONSUMERS, False)]
    damaged = (directory / CONSUMERS).read_bytes()
    assert set(noted(directory, report(1, consumer_id=8))) == {8}
    assert (directory / "consumers.json.unreadable").read_bytes() == damaged
    assert "is set aside" in caplog.text


@pytest.mark.parametrize(
    "changes", [{"drops_gap": -1}, {"epoch": 2**63}, {"mode": "x" * 33}, {"mode": 7}, {"last_seen_ns": None}]
)
def test_entries_are_checked(tmp_path, changes):
    save_consumers(tmp_path, [consumer(**changes)])
    with pytest.raises(MalformedMessageError, match="can't be understood"):
        load_consumers(tmp_path)


def test_more_entries_than_there_can_be_are_refused(tmp_path):
    save_consumers(tmp_path, [consumer(number) for number in range(1_025)])
    with pytest.raises(MalformedMessageError):
        load_consumers(tmp_path)


def test_copies_have_it_and_follow_it(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    directory = record(here)["camera/1"].place.local
    push(here, Place(there))
    assert Recording(there)["camera/1"].consumers() == []  # as of an older release
    for drops in (1, 2):
        save_consumers(directory, [consumer(drops_gap=drops)])
        push(here, Place(there))
        assert Recording(there)["camera/1"].consumers() == [consumer(drops_gap=drops)]
