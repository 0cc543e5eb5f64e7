"""Closing: at the end of a block, whatever happened in it."""

import pytest

from tensor_pool.closing import Closing


class Shutter(Closing):
    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def test_the_block_gets_the_object_and_closes_it() -> None:
    with Shutter() as shutter:
        assert shutter.closed == 0
    assert shutter.closed == 1


def test_an_error_in_the_block_closes_and_goes_on() -> None:
    shutter = Shutter()
    with pytest.raises(ZeroDivisionError), shutter:
        _ = 1 // 0
    assert shutter.closed == 1


def test_who_forgets_to_write_close_can_not_be_made() -> None:
    class Forgetful(Closing):
        pass

    with pytest.raises(TypeError, match="close"):
        Forgetful()


def test_slots_stay_slots() -> None:
    class Small(Closing):
        __slots__ = ()

        def close(self) -> None: ...

    assert not hasattr(Small(), "__dict__")
