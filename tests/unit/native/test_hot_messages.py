"""The messages and functions that Rust codes itself."""

from __future__ import annotations

import pytest

from tensor_pool import _native, errors


def test_descriptors_round_trip():
    full = _native.FrameDescriptor(
        stream_id=2**32 - 1, epoch=2**64 - 1, seq=2**63, timestamp_ns=1, meta_version=2, trace_id=3
    )
    bare = _native.FrameDescriptor(stream_id=1, epoch=2, seq=3)
    for descriptor in (full, bare):
        message = descriptor.encode()
        assert len(message) == 48
        for form in (message, bytearray(message), memoryview(message)):
            assert _native.FrameDescriptor.decode(form) == descriptor
    assert (bare.timestamp_ns, bare.meta_version, bare.trace_id) == (None, None, None)
    assert bare != full


def test_progress_round_trips_and_unknown_states_are_refused():
    for state in range(4):
        progress = _native.FrameProgress(stream_id=1, epoch=2, seq=3, payload_bytes_filled=4, state=state)
        assert _native.FrameProgress.decode(progress.encode()) == progress
    with pytest.raises(errors.MalformedMessageError):
        _native.FrameProgress(stream_id=1, epoch=2, seq=3, payload_bytes_filled=4, state=4)


def test_other_messages_are_none():
    descriptor = _native.FrameDescriptor(stream_id=1, epoch=2, seq=3).encode()
    progress = _native.FrameProgress(stream_id=1, epoch=2, seq=3, payload_bytes_filled=4, state=1).encode()
    for message in (b"", b"x", descriptor[:-1], descriptor + b"x", progress):
        assert _native.FrameDescriptor.decode(message) is None
    for message in (b"", progress[:-1], descriptor):
        assert _native.FrameProgress.decode(message) is None
    with pytest.raises(TypeError):
        _native.FrameDescriptor.decode("text")


def test_numbers_out_of_range_are_refused():
    with pytest.raises(OverflowError):
        _native.FrameDescriptor(stream_id=2**32, epoch=0, seq=0)
    with pytest.raises(OverflowError):
        _native.FrameDescriptor(stream_id=-1, epoch=0, seq=0)


def test_crc32c():
    assert _native.crc32c(b"123456789") == 0xE3069283
    assert _native.crc32c(b"") == 0
    data = bytes(range(256)) * 1024
    assert _native.crc32c(data[1000:], _native.crc32c(data[:1000])) == _native.crc32c(data)
    with pytest.raises(errors.TensorLayoutError):
        _native.crc32c(memoryview(data)[::2])


def test_region_uris():
    uri = _native.format_region_uri("/dev/shm/a", require_hugepages=True)
    assert _native.parse_region_uri(uri) == ("/dev/shm/a", True)
    for bad in ("shm:file?path=a", "shm:file?path=/a|x=1", ""):
        with pytest.raises(errors.RegionUriError, match="not a region URI") as caught:
            _native.parse_region_uri(bad)
        assert isinstance(caught.value, ValueError | OSError)
    with pytest.raises(errors.RegionUriError):
        _native.format_region_uri("relative")
