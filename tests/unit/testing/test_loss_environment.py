"""What a media driver is told to lose; that it does is shown by `test_two_hosts`."""

from __future__ import annotations

import pytest

from tensor_pool.errors import ConfigError
from tensor_pool.testing import Cluster, loss_environment

ARGUMENTS = "AERON_UDP_CHANNEL_TRANSPORT_BINDINGS_LOSS_ARGS"


def test_what_is_set() -> None:
    assert loss_environment(None) == {}
    assert loss_environment(0.05, seed=3)[ARGUMENTS] == "rate=0.050000000|seed=3|recv-msg-mask=0xfff"
    assert loss_environment(0)[ARGUMENTS].startswith("rate=0.000000000|")
    assert loss_environment(1e-5)[ARGUMENTS].startswith("rate=0.000010000|")


@pytest.mark.parametrize("rate", [-0.1, 1, 5, float("nan")])
def test_a_rate_that_is_none(rate: float) -> None:
    with pytest.raises(ConfigError, match="the loss is"):
        loss_environment(rate)
    with pytest.raises(ConfigError, match="the loss is"):
        Cluster(loss=rate)


@pytest.mark.parametrize("seed", [-1, 2**48])
def test_a_seed_that_is_none(seed: int) -> None:
    with pytest.raises(ConfigError, match="seed"):
        loss_environment(0.1, seed=seed)
