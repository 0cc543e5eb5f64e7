"""What drivers are called, and which streams are elsewhere."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from tensor_pool.config import Config, load_config
from tensor_pool.host.naming import driver_name, is_elsewhere
from tensor_pool.pool.discovering import FoundStream


def config(**values: Any) -> Config:
    overrides = {key.replace("__", "."): value for key, value in values.items()}
    return load_config(overrides=overrides, environ={}, search=False)


def stream(driver: str, host: str) -> FoundStream:
    return FoundStream(
        stream_id=1,
        name="camera",
        epoch=1,
        producer_id=7,
        driver_instance_id=driver,
        driver_control_channel="aeron:ipc",
        driver_control_stream_id=1000,
        tags=(f"host:{host}",) if host else (),
    )


HERE = config(aeron__dir="/dev/shm/here")
CLONE = config(aeron__dir="/dev/shm/there")


def test_a_name_that_was_given_counts() -> None:
    assert driver_name(config(driver__instance_id="second", discovery__host="lab-3")) == "second"
    assert driver_name(config(discovery__host="lab-3")) == "lab-3"


def test_unnamed_drivers_differ_by_their_media_drivers_and_stay_the_same() -> None:
    assert driver_name(HERE).startswith(f"{socket.gethostname()}-")
    assert driver_name(HERE) == driver_name(config(aeron__dir="/dev/shm/here")) != driver_name(CLONE)


@pytest.mark.parametrize(
    ("found", "is_far"),
    [
        (stream(driver_name(HERE), socket.gethostname()), False),
        (stream(driver_name(CLONE), socket.gethostname()), True),
        (stream("second", socket.gethostname()), False),
        (stream("second-0123abcd", socket.gethostname()), False),
        (stream("lab-9", "lab-9"), True),
        (stream("nobody said", ""), False),
    ],
)
def test_where_a_stream_is(found: FoundStream, *, is_far: bool) -> None:
    assert is_elsewhere(HERE, found) == is_far
