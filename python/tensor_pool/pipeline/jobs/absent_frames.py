"""Why a frame is not in a recording, as far as its catalogues tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec

from tensor_pool.pipeline.record.named_frames import NamedFrames, may_have_stream

if TYPE_CHECKING:
    from tensor_pool.control.values import FrameRef
    from tensor_pool.pipeline.record.recording import RecordedStream, Recording

__all__ = ["Absence", "absence", "gap_reason", "has_stream", "yet_to_come"]

_LARGEST: Final = 2**63 - 1
_GAPS: Final = {
    "damaged": "its bytes are not those that were recorded",
    "segment_missing": "the segment that it is in is missing",
    "unreadable": "its segment can't be read",
    "disk": "the recorder could not write it",
}


class Absence(msgspec.Struct, frozen=True):
    """A frame that is not there.

    Example:
        >>> Absence("removed", "it is gone: the oldest frame of camera-1 is 3/100").why
        'removed'
    """

    why: Literal["unknown_stream", "not_yet", "removed", "never_recorded"]
    text: str
    """For people."""


def has_stream(recording: Recording, stream_id: int) -> bool:
    """Whether a stream with this number may be in a recording."""
    return bool(_streams(recording, stream_id))


def absence(recording: Recording, frame: FrameRef) -> Absence:
    """Why a recording lacks a frame; only for one that was not found.

    Args:
        recording: What is known of it.
        frame: The frame.
    """
    streams = _streams(recording, frame.stream_id)
    if not streams:
        known = sorted({number for name in recording for number in _numbers(recording[name])})
        return Absence(
            "unknown_stream",
            f"no stream of the recording has the number {frame.stream_id}"
            + (f"; there are {', '.join(map(str, known))}" if known else ""),
        )
    found = [_absent_from(stream, frame) for stream in streams]
    # A name may have had this number before: what may still come, or was there, says more than "never".
    return min(found, key=lambda each: ("not_yet", "removed", "never_recorded").index(each.why))


def yet_to_come(recording: Recording, frame: FrameRef) -> Absence | None:
    """What is said of a frame that is newer than all that is recorded; None for any other one.

    Recorders seal what they write after a while, and nobody sees it before: it makes sense to look again.
    """
    named = NamedFrames([frame])
    streams = _streams(recording, frame.stream_id)
    if any(named.in_segment(stream.catalogue, each) for stream in streams for each in stream.segments()):
        return None
    why = absence(recording, frame)
    return why if why.why == "not_yet" else None


def _absent_from(stream: RecordedStream, frame: FrameRef) -> Absence:
    about = stream.catalogue
    segments = [each for each in about.segments if may_have_stream(about, each, frame.stream_id)]
    if max(frame.epoch, frame.seq) > _LARGEST:
        return Absence("never_recorded", "it was never recorded: recordings have numbers below 2^63")
    if not segments:
        return Absence("not_yet", f"nothing of {stream.name} is recorded yet")
    first, last = segments[0], segments[-1]
    if (frame.epoch, frame.seq) > (last.last_epoch, last.last_seq):
        newest = f"{last.last_epoch}/{last.last_seq}"
        return Absence("not_yet", f"it is not recorded yet: the newest frame of {stream.name} is {newest}")
    oldest = f"{first.first_epoch}/{first.first_seq}"
    if (frame.epoch, frame.seq) < (first.first_epoch, first.first_seq):
        if about.removed_through:
            return Absence("removed", f"it is gone: the oldest frame of {stream.name} is {oldest}")
        return Absence("never_recorded", f"it was never recorded: {stream.name} begins with {oldest}")
    return Absence("never_recorded", f"it was never recorded: {stream.name} has nothing of it")


def gap_reason(status: str) -> str:
    """What a status that is not ok means for one frame.

    Example:
        >>> gap_reason("overwritten")
        'the recorder did not get it: overwritten'
    """
    return _GAPS.get(status) or f"the recorder did not get it: {status}"


def _streams(recording: Recording, stream_id: int) -> list[RecordedStream]:
    return [
        stream
        for stream in recording.values()
        if any(may_have_stream(stream.catalogue, each, stream_id) for each in stream.catalogue.segments)
        or (not stream.catalogue.segments and stream.catalogue.stream_id in (0, stream_id))
    ]


def _numbers(stream: RecordedStream) -> set[int]:
    about = stream.catalogue
    listed = {number for each in about.segments for number in each.stream_ids}
    return listed or ({about.stream_id} if about.stream_id else set())
