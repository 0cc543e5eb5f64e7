"""A reader that gives its ring up takes the frames that lie in it along (decision L3)."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from tensor_pool import errors


@pytest.fixture
def ring(make_ring):
    return make_ring(nslots=4, strides=(4096,))


def test_frames_in_the_ring_are_not_valid_any_more(ring):
    writer, reader = ring.writer(), ring.reader()
    writer.publish(np.arange(6, dtype="u1"))
    frame = reader.poll()
    view = frame.array
    assert frame.still_valid()
    reader.revoke()
    reader.revoke()
    assert reader.closed
    assert not frame.still_valid()
    for use in (frame.copy, lambda: frame.array, lambda: memoryview(frame), lambda: np.from_dlpack(frame)):
        with pytest.raises(errors.FrameOverwrittenError, match=r"ring of frame 0 was given up.* lease ended"):
            use()
    assert not frame.copy_into(bytearray(6))
    assert view.tolist() == list(range(6)), "what was handed out stays mapped"
    assert reader.drops == {}, "giving up is not being late"


def test_a_block_that_used_the_frame_is_told(ring):
    writer, reader = ring.writer(), ring.reader()
    writer.publish(b"abc")
    with pytest.raises(errors.FrameOverwrittenError), reader.poll() as array:
        reader.revoke()
        assert bytes(array) == b"abc"


def test_an_error_inside_the_block_is_not_hidden(ring):
    writer, reader = ring.writer(), ring.reader()
    writer.publish(b"abc")
    with pytest.raises(KeyError), reader.poll():
        reader.revoke()
        raise KeyError


def test_closing_alone_leaves_frames_valid(ring):
    writer, reader = ring.writer(), ring.reader()
    writer.publish(b"abc")
    frame = reader.poll()
    reader.close()
    assert frame.still_valid()
    assert bytes(frame.copy()) == b"abc"


def test_other_readers_and_private_copies_are_not_concerned(ring):
    writer, reader, other, snapshot = ring.writer(), ring.reader(), ring.reader(), ring.reader("copy")
    writer.publish(b"abc")
    theirs, copied = other.poll(), snapshot.poll()
    reader.revoke()
    snapshot.revoke()
    assert theirs.still_valid()
    assert copied.still_valid()
    assert bytes(copied.copy()) == b"abc"


def test_a_prefix_says_that_its_frame_is_gone(ring):
    writer, reader = ring.writer(), ring.reader()
    slot = writer.claim((8,), 1)
    slot.write_header()
    prefix = reader.read_prefix(0, 4)
    assert prefix.state() == "in_progress"
    reader.revoke()
    assert prefix.state() == "gone"
    slot.abort()


def test_revoking_while_others_read_never_gives_a_frame_that_counts(ring):
    writer, reader = ring.writer(), ring.reader()
    writer.publish(bytes(4096))
    frames = [reader.read(0) for _ in range(200)]
    results: list[bool] = []
    revoked = threading.Event()

    def read() -> None:
        for frame in frames:
            after = revoked.is_set()
            valid = frame.still_valid()
            results.append(not (after and valid))

    thread = threading.Thread(target=read)
    thread.start()
    reader.revoke()
    revoked.set()
    thread.join()
    assert len(results) == 200
    assert all(results)
    assert not any(frame.still_valid() for frame in frames)
