"""Sizes as Aeron writes them, and what the patterns of the kinds let through."""

import msgspec
import pytest

from tensor_pool.config import kinds


class TestSizes:
    @pytest.mark.parametrize(
        ("text", "size"),
        [("0", 0), ("100", 100), ("64k", 65_536), ("4m", 4_194_304), ("1G", 2**30), (" 2K ", 2_048)],
    )
    def test_are_read(self, text: str, size: int) -> None:
        assert kinds.parse_size(text) == size

    @pytest.mark.parametrize(
        "text",
        ["", "k", "4 m", "4mb", "-1", "1.5m", "0x10", "٤", "1e3", "9" * 19, "4m\n4m"],
    )
    def test_that_are_none_are_refused(self, text: str) -> None:
        with pytest.raises(ValueError, match="k, m, g"):
            kinds.parse_size(text)

    @pytest.mark.parametrize(
        ("size", "text"), [(0, "0"), (1_000, "1000"), (65_536, "64k"), (3 * 2**20, "3m"), (2**30, "1g")]
    )
    def test_are_written_as_short_as_possible(self, size: int, text: str) -> None:
        assert kinds.format_size(size) == text
        assert kinds.parse_size(text) == size


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

    @pytest.mark.parametrize(
        "channel", ["aeron:ipc", "aeron:ipc?term-length=1m", "aeron:udp?endpoint=127.0.0.1:1"]
    )
    def test_channels(self, channel: str) -> None:
        assert accepts(kinds.Channel, channel)

    @pytest.mark.parametrize(
        "channel", ["", "ipc", "aeron:tcp", "aeron:ipc?", "aeron:udp?a b", "aeron:ipc\n"]
    )
    def test_what_is_no_channel(self, channel: str) -> None:
        assert not accepts(kinds.Channel, channel)

    @pytest.mark.parametrize(("directory", "is_one"), [("", True), ("/dev/shm/my dir", True), ("x", False)])
    def test_media_driver_directories(self, directory: str, is_one: bool) -> None:
        assert accepts(kinds.AeronDirectory, directory) == is_one
