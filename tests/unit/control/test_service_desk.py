"""What a service declares, and which commands it takes."""

from __future__ import annotations

import math

import msgspec
import pytest

from tensor_pool.control.declared import Command, Property
from tensor_pool.control.desk import ServiceDesk
from tensor_pool.control.events import event_message
from tensor_pool.control.values import FrameRef
from tensor_pool.errors import ConfigError
from tensor_pool.wire.messages import EventMessage, Format

TAG = "service:camera"


def tell(desk, key, value=None, **options):
    return desk.take(event_message(TAG, key, value, correlation_id=9, **options))


@pytest.fixture
def done() -> list:
    return []


@pytest.fixture
def desk(done):
    def fail(_):
        raise ConfigError("the lamp is broken", hint="buy one")

    return ServiceDesk(
        {
            "gain": Property(float, default=1.0, least=0, most=10, on_change=done.append),
            "count": Property(int, default=0, most=7),
            "mode": Property(str, default="fast", choices=("fast", "slow")),
            "enable": Property(bool, default=False),
            "blob": Property(bytes, default=b""),
            "last": Property(FrameRef, default=FrameRef(0, 0, 0)),
            "even": Property(int, default=0, check=_check_even),
            "frames": Property(int, default=0, read_only=True),
            "lamp": Property(bool, default=False, on_change=fail),
            "flash": Command(done.append),
            "wait": Command(done.append, kind=float, least=0),
            "crash": Command(lambda _: 1 / 0),
            "later": Command(lambda *given: done.append(given), kind=str, takes_correlation_id=True),
        }
    )


def _check_even(number):
    if number % 2:
        raise ValueError(f"{number} is odd")


def test_what_is_right_counts(desk, done):
    wanted = {
        "gain": 2.5,
        "count": -3,
        "mode": "slow",
        "enable": True,
        "blob": b"\1",
        "last": FrameRef(1, 2, 3),
        "even": 4,
    }
    for key, value in wanted.items():
        assert tell(desk, key, value) is None
    assert desk.values == wanted | {"frames": 0, "lamp": False}
    assert tell(desk, "flash") is None
    assert tell(desk, "wait", 2) is None
    assert done == [2.5, None, 2.0]


@pytest.mark.parametrize("kind", [Format.UINT8, Format.INT8, Format.INT16, Format.UINT32, Format.INT64])
def test_whole_numbers_may_come_in_any_size(desk, kind):
    assert tell(desk, "count", 5, format=kind) is None
    assert desk["count"] == 5


@pytest.mark.parametrize(
    ("key", "value", "reason", "text"),
    [
        ("gain", -0.1, "wrong_value", "-0.1 is not a number from 0 up to 10"),
        ("gain", math.nan, "wrong_value", "no number to work with"),
        ("gain", "2", "wrong_value", "'2' is not a number"),
        ("gain", True, "wrong_value", "True is not a number"),
        ("count", 8, "wrong_value", "8 is not a whole number up to 7"),
        ("count", 1.0, "wrong_value", "1.0 is not a whole number"),
        ("mode", "odd", "wrong_value", "'odd' is not one of fast, slow"),
        ("enable", 1, "wrong_value", "1 is not true or false"),
        ("enable", None, "wrong_value", "nothing is not true or false"),
        ("blob", bytes(70_000), "wrong_value", "too long"),
        ("even", 3, "wrong_value", "3 is odd"),
        ("flash", 1, "wrong_value", "1 is not nothing"),
        ("frames", 1, "read_only", "only the service itself"),
        ("lamp", True, "failed", "the lamp is broken"),
        ("crash", None, "failed", "division by zero"),
        ("nothing", 1, "unknown_key", "there are gain, count"),
        ("service.info", 1, "unknown_key", "there are gain, count"),
    ],
)
def test_what_is_wrong_is_refused_and_changes_nothing(desk, done, *, key, value, reason, text):
    before = desk.values
    refusal = tell(desk, key, value)
    assert (refusal.key, refusal.correlation_id, refusal.reason) == (key, 9, reason)
    assert text in refusal.text
    assert (desk.values, done) == (before, [])


def test_broken_bytes_are_refused(desk):
    refusal = desk.take(EventMessage(1, 9, Format.FLOAT64, tag=TAG, key="gain", value=b"\0"))
    assert refusal.reason == "malformed"


def test_the_service_itself_sets_what_others_may_not(desk, done):
    desk.set("frames", 3)
    desk.set("gain", 3)
    desk.set("gain", 3.0)
    assert desk.take_changed() == {"frames": 3, "gain": 3.0}
    assert desk.take_changed() == {}
    assert done == []
    for key, value in (("frames", "3"), ("gain", 99)):
        with pytest.raises(ValueError, match="is not"):
            desk.set(key, value)
    for key in ("flash", "nothing"):
        with pytest.raises(KeyError):
            desk.set(key, 1)


@pytest.mark.parametrize("key", ["", "a b", "service.info"])
def test_keys_that_can_not_be_are_said_at_once(key):
    with pytest.raises(ValueError, match="key"):
        ServiceDesk({key: Property(int, default=0)})


class UnspeakableError(Exception):
    def __str__(self):
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("bad name \udcff"), "bad name \\udcff"),
        (UnspeakableError(), "UnspeakableError"),
        (KeyError(), "KeyError"),
    ],
)
def test_whatever_a_service_raises_becomes_a_refusal(error, text):
    def fail(_):
        raise error

    desk = ServiceDesk(
        {"act": Command(fail), "checked": Command(lambda _: None, kind=int, check=_after(7, fail))}
    )
    for refusal in (tell(desk, "act"), tell(desk, "checked", 8)):
        assert text in refusal.text
        msgspec.json.encode(refusal)


def _after(allowed, fail):
    return lambda value: None if value == allowed else fail(value)


@pytest.mark.parametrize("wrong", [5, print, None])
def test_what_is_declared_is_a_property_or_a_command(wrong):
    with pytest.raises(TypeError, match="neither a Property nor a Command"):
        ServiceDesk({"key": wrong})


def test_too_much_is_not_told():
    with pytest.raises(ValueError, match="up to 262,144"):
        ServiceDesk({}).post("key", bytes(300_000))


def test_declarations_that_contradict_themselves_are_said_at_once():
    with pytest.raises(TypeError, match="can't be called"):
        Command("blink")
    with pytest.raises(ValueError, match="there is nothing"):
        Command(print, kind=int, least=5, most=1)
    with pytest.raises(ValueError, match="5 is not a whole number up to 4"):
        Property(int, default=5, most=4)
    with pytest.raises(TypeError, match="there is no kind"):
        Property(list, default=[])


def test_who_answers_later_gets_the_id_of_the_command(desk, done):
    assert tell(desk, "later", "now") is None
    assert done == [("now", 9)]
