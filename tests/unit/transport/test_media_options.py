"""Options of a media driver, and where it is looked for."""

from __future__ import annotations

import pytest

from tensor_pool.errors import ConfigError
from tensor_pool.transport import MediaDriverOptions, default_aeron_dir


@pytest.mark.parametrize(
    "wrong",
    [
        {"threading": "many"},
        {"idle": "sleep"},
        {"timer_interval_ms": 0},
        {"timer_interval_ms": 50},
        {"timer_interval_ms": 10_000, "untethered_window_limit_ms": 20_000},
        {"idle_max_sleep_ms": 0},
        {"idle_max_sleep_ms": 21},
        {"max_counters": 8_191},
        {"max_counters": 4_096_001},
    ],
    ids=str,
)
def test_values_that_would_make_it_useless_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        MediaDriverOptions(**wrong)  # type: ignore[arg-type]


def test_defaults_leave_stuck_subscribers_behind_soon() -> None:
    options = MediaDriverOptions()
    assert options.timer_interval_ms == 20
    assert (
        options.untethered_window_limit_ms,
        options.untethered_linger_ms,
        options.untethered_resting_ms,
    ) == (
        50,
        50,
        100,
    )
    assert options.ipc_term_bytes == 4 << 20


def test_the_directory_comes_from_the_environment_and_else_is_aerons(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("TENSOR_POOL__AERON__DIR", "TENSOR_POOL__AERON_DIR", "AERON_DIR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("USER", "ada")
    assert default_aeron_dir() == "/dev/shm/aeron-ada"
    monkeypatch.setenv("AERON_DIR", "/dev/shm/theirs")
    assert default_aeron_dir() == "/dev/shm/theirs"
    monkeypatch.setenv("TENSOR_POOL__AERON_DIR", "/dev/shm/ours")
    assert default_aeron_dir() == "/dev/shm/ours"
    monkeypatch.delenv("TENSOR_POOL__AERON_DIR")
    monkeypatch.delenv("AERON_DIR")
    monkeypatch.delenv("USER")
    assert default_aeron_dir().startswith("/dev/shm/aeron-")
