"""What a program says of a stream that it wants to publish."""

from __future__ import annotations

from typing import Any

import pytest

from tensor_pool.errors import ConfigError
from tensor_pool.pool.wishes import producer_wish


@pytest.mark.parametrize(
    ("arguments", "said", "hint"),
    [
        ({"max_bytes": 10, "slots": 10}, "10 slots", "8 or 16"),
        ({"pools": [100]}, "pool slots of 100 bytes", "64 or 128"),
        ({"pools": [64, 64]}, "repeat a slot size", "once"),
        (
            {"pools": [4096], "max_bytes": 1 << 20},
            r"pools=\[4096\] has no room for .*max_bytes=1048576",
            "leave",
        ),
        ({"dtype": "f4", "shape": (100,), "max_bytes": 10}, "max_bytes=10 has no room for the 400", "leave"),
        ({"dtype": "f4", "shape": (100,), "pools": [64, 128]}, "no room for the 400 bytes", "leave"),
        ({"consumer_latency_s": 0.5}, "consumer_latency_s=0.5 without rate_hz", "rate_hz="),
        ({"shape": (4,)}, "without a dtype", "dtype="),
    ],
)
def test_what_can_not_be_is_said_before_a_driver_is_asked(
    arguments: dict[str, Any], said: str, hint: str
) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        producer_wish("a", **arguments)
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"slots": 8, "rate_hz": 5},
        {"max_bytes": 10, "rate_hz": 5},
        {"rate_hz": 5, "consumer_latency_s": 0.5},
        {"pools": [64, 1024], "max_bytes": 1000, "dtype": "f4", "shape": (250,)},
        {"max_bytes": 400, "dtype": "f4", "shape": (100,)},
        {"dtype": "f4"},
    ],
)
def test_what_agrees_is_a_wish(arguments: dict[str, Any]) -> None:
    assert producer_wish("a", **arguments).name == "a"
