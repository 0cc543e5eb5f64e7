"""What a request may have: everything that a stream can have, and not much more."""

from __future__ import annotations

import struct

import pytest

from discoveries import request
from tensor_pool.channels import MAX_CHANNEL_LENGTH
from tensor_pool.discovery.metadata import MAX_NAME_BYTES, MAX_TAG_BYTES
from tensor_pool.discovery.request_limits import (
    MAX_REQUEST_BYTES,
    MAX_REQUEST_TAGS,
    has_too_many_tags,
    refuse_unread,
)
from tensor_pool.wire import encode
from tensor_pool.wire.messages import DiscoveryRequest


def longest() -> DiscoveryRequest:
    """The longest request that could find a stream."""
    return request(
        *(f"{number:0{MAX_TAG_BYTES}}" for number in range(MAX_REQUEST_TAGS)),
        response_channel="aeron:udp?endpoint=10.0.0.9:40125|alias=".ljust(MAX_CHANNEL_LENGTH, "x"),
        data_source_name="n" * MAX_NAME_BYTES,
    )


def test_the_longest_request_that_makes_sense_is_read() -> None:
    data = encode(longest())
    assert len(data) == MAX_REQUEST_BYTES
    assert refuse_unread(data) is None
    assert refuse_unread(data + b"x") == "too_long"
    assert not has_too_many_tags(longest())


@pytest.mark.req("DSC-5.1-14")
def test_a_tag_that_is_named_again_is_not_one_more() -> None:
    asked = request(*["lab"] * (MAX_REQUEST_TAGS + 1))
    assert refuse_unread(encode(asked)) is None
    assert not has_too_many_tags(asked)
    assert has_too_many_tags(request(*map(str, range(MAX_REQUEST_TAGS + 1))))


@pytest.mark.parametrize(("count", "reason"), [(4 * MAX_REQUEST_TAGS, None), (261, "too_many_tags")])
def test_only_so_many_tags_are_read(count: int, reason: str | None) -> None:
    assert refuse_unread(encode(request(*[""] * count))) == reason


def test_what_is_cut_short_is_left_to_who_reads_it() -> None:
    data = encode(request("lab"))
    assert [refuse_unread(data[:length]) for length in range(len(data))] == [None] * len(data)
    wide = bytearray(data)
    struct.pack_into("<H", wide, 0, 0xFFFF)  # a block that is longer than the message
    assert refuse_unread(bytes(wide)) is None
