"""Every code that an answer can have, and the kind of request that gets it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from driver_bench import DriverBench, only
from tensor_pool.errors import RegionError
from tensor_pool.wire.messages import (
    ControlResponse,
    PublishMode,
    ResponseCode,
    Role,
    ShmDriverShutdownRequest,
    ShutdownReason,
)

StartDriver = Callable[..., DriverBench]


def ask_to_end(driver: DriverBench, token: str) -> ControlResponse:
    request = ShmDriverShutdownRequest(correlation_id=77, reason=ShutdownReason.ADMIN, token=token)
    return only(ControlResponse, driver.say(request))


@pytest.mark.req("WIRE-15.17-1")
def test_ok(start: StartDriver) -> None:
    driver = start(shutdown_token="secret")
    assert ask_to_end(driver, "secret") == ControlResponse(77, ResponseCode.OK)


@pytest.mark.req("WIRE-15.17-2")
def test_unsupported(driver: DriverBench) -> None:
    """A capability that is not there: no token is configured, and no hidden one exists."""
    answer = ask_to_end(driver, "anything")
    assert (answer.code, answer.correlation_id) == (ResponseCode.UNSUPPORTED, 77)
    assert "shutdown_token" in answer.error_message


@pytest.mark.req("WIRE-15.17-3")
@pytest.mark.parametrize("wrong", [{"stream_id": 999_999}, {"client_id": 0}])
def test_invalid_params(driver: DriverBench, wrong: dict[str, int]) -> None:
    answer = driver.attach(**wrong)
    assert answer.code is ResponseCode.INVALID_PARAMS
    assert answer.error_message


@pytest.mark.req("WIRE-15.17-4")
def test_rejected(start: StartDriver) -> None:
    driver = start(shutdown_token="secret")
    assert ask_to_end(driver, "guessed").code is ResponseCode.REJECTED
    assert driver.attach(client_id=1).code is ResponseCode.OK
    assert driver.attach(client_id=2).code is ResponseCode.REJECTED, "another producer has the stream"


@pytest.mark.req("WIRE-15.17-5")
def test_internal_error(driver: DriverBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes wrong in the driver itself; asking again later may help, and does."""

    def fail(*_args: object, **_kwargs: object) -> None:
        raise RegionError("the disk is on fire")

    with monkeypatch.context() as patched:
        patched.setattr(driver.agent._files, "create", fail)
        answer = driver.attach()
    assert (answer.code, answer.lease_id) == (ResponseCode.INTERNAL_ERROR, None)
    assert "the disk is on fire" in answer.error_message
    assert driver.attach(client_id=8).code is ResponseCode.OK


@pytest.mark.req("DRV-4.3-7")
@pytest.mark.parametrize("mode", [PublishMode.EXISTING_OR_CREATE])
def test_all_pools_have_the_rings_slots(driver: DriverBench, mode: PublishMode) -> None:
    driver.describe(10_000, nslots=16, strides=(64, 4096, 65_536))
    answer = driver.attach(mode=mode, role=Role.PRODUCER)
    assert {pool.pool_nslots for pool in answer.payload_pools} == {answer.header_nslots} == {16}
