"""What the kinds of values let through."""

import re

import msgspec
import pytest

from tensor_pool.config import kinds
from tensor_pool.config.keys import find_key


def accepts(kind: object, value: object) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


class TestPatterns:
    @pytest.mark.parametrize("path", ["/", "/dev/shm", "/a//b", "/tmp/x@y{1}~"])
    def test_base_directories(self, path: str) -> None:
        assert accepts(kinds.AbsolutePath, path)

    @pytest.mark.parametrize(
        "path", ["", "dev/shm", "./x", "/a b", "/a?b", "/a|b", "/a\n", "/a\0", "/ä", "/a\x7f"]
    )
    def test_base_directories_that_no_region_uri_could_name(self, path: str) -> None:
        assert not accepts(kinds.AbsolutePath, path)

    @pytest.mark.parametrize("name", ["default", "lab1", "_x", "a.b-c", "x" * 64])
    def test_namespaces(self, name: str) -> None:
        assert accepts(kinds.Namespace, name)

    @pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-x", ".hidden", "a b", "x" * 65, "x\n"])
    def test_namespaces_that_would_lead_elsewhere(self, name: str) -> None:
        assert not accepts(kinds.Namespace, name)

    @pytest.mark.parametrize(("directory", "is_one"), [("", True), ("/dev/shm/my dir", True), ("x", False)])
    def test_media_driver_directories(self, directory: str, is_one: bool) -> None:
        assert accepts(kinds.AeronDirectory, directory) == is_one


class TestChannels:
    KEY = find_key("streams.descriptor_channel")

    @pytest.mark.parametrize(
        "channel", ["aeron:ipc", "aeron:ipc?", "aeron:ipc?term-length=1m", "aeron:udp?endpoint=127.0.0.1:1"]
    )
    def test_are_taken_as_they_are_written(self, channel: str) -> None:
        assert self.KEY.read(channel) == channel

    @pytest.mark.parametrize(
        ("channel", "why"),
        [
            ("", "'' is not a channel"),
            ("ipc", "'ipc' is not a channel"),
            ("aeron:tcp", "'aeron:tcp' is not a channel"),
            ("aeron:ipc\n", "is not a channel"),
            ("aeron:ipc?foo=1", "Aeron knows no channel parameter 'foo', and would ignore it"),
            ("aeron:ipc?term-length=3m", "term-length=3m"),
            ("aeron:udp", "a UDP channel needs an endpoint or a control address"),
            ("aeron-spy:aeron:udp?endpoint=127.0.0.1:1", "can't be published to"),
        ],
    )
    def test_are_refused_for_the_reason_that_using_them_would_give(self, channel: str, why: str) -> None:
        with pytest.raises(ValueError, match=re.escape(why)) as caught:
            self.KEY.read(channel)
        assert "\n" not in str(caught.value)


def test_sizes_may_have_spaces_around_them_but_not_inside() -> None:
    key = find_key("aeron.term_length")
    assert key.read(" 64K ") == 64 << 10
    with pytest.raises(ValueError, match="'64 k' is not a size"):
        key.read("64 k")
