"""From what a person types to a stream."""

from typing import NamedTuple

import pytest

from tensor_pool.errors import NoStreamError
from tensor_pool.ops.stream_lookup import find_stream, near_names


class Stream(NamedTuple):
    stream_id: int
    name: str | None


STREAMS = [Stream(10000, "camera-1"), Stream(10001, "camera-2"), Stream(10002, None), Stream(10003, "10000")]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        pytest.param("camera-2", 10001, id="name"),
        pytest.param("10002", 10002, id="id"),
        pytest.param("010001", 10001, id="id with a zero"),
        pytest.param("10000", 10003, id="a name that looks like an id"),
    ],
)
def test_by_name_or_id(wanted: str, expected: int) -> None:
    assert find_stream(STREAMS, wanted).stream_id == expected


@pytest.mark.parametrize("wanted", ["Camera-1", "17", "", "9" * 5000, "²", "camera"])
def test_nothing_else_is_taken_for_one(wanted: str) -> None:
    with pytest.raises(NoStreamError, match="there is no stream"):
        find_stream(STREAMS, wanted)


@pytest.mark.parametrize(
    ("wanted", "hint"),
    [
        ("camra-2", "did you mean camera-2 or camera-1? `tpool streams` lists what is there"),
        ("CAMERA", "did you mean camera-2 or camera-1? `tpool streams` lists what is there"),
        ("zzz", "`tpool streams` lists what is there"),
    ],
)
def test_the_hint_names_what_was_meant(wanted: str, hint: str) -> None:
    with pytest.raises(NoStreamError) as refused:
        find_stream(STREAMS, wanted)
    assert refused.value.hint == hint


def test_where_nothing_is_nothing_was_meant() -> None:
    with pytest.raises(NoStreamError) as refused:
        find_stream([], "camera-1")
    assert refused.value.hint == "nobody has named a stream here yet"


def test_the_error_names_the_place_that_was_asked() -> None:
    with pytest.raises(NoStreamError) as refused:
        find_stream(STREAMS, "zzz", where="/dev/shm/aeron-ada")
    assert "\n   at: /dev/shm/aeron-ada\n" in str(refused.value)


def test_near_names_are_few() -> None:
    assert len(near_names("camera", [f"camera-{n}" for n in range(50)])) == 3
    assert near_names("", ["a", "b"]) == []
