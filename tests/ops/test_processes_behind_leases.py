"""``tpool clients|leases|info`` name the processes behind the numbers."""

import json
import os
from collections.abc import Callable, Iterator

import pytest

import tensor_pool as tp
from scripted_driver import ScriptedDriver, lease
from tensor_pool.runtime import AgentRunner, make_idle
from tensor_pool.testing import Cluster
from tensor_pool.transport import AeronClient, EmbeddedMediaDriver


@pytest.fixture
def host() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


def test_ours_are_found(host: Cluster, tpool: Callable) -> None:
    settings = [f"--set={key}={value}" for key, value in host.settings.items()]
    with (
        tp.connect(name="front camera", settings=host.settings) as camera,
        camera.producer("camera-1", dtype="uint8", shape=(4,)),
        tp.connect(settings=host.settings) as viewer,
        viewer.consumer("camera-1"),
    ):
        for command in (["clients"], ["leases", "--stream", "camera-1"]):
            rows = json.loads(tpool(*command, "--listen", "10", "--format", "json", *settings).out)
            told = {row["role"]: (row["pid"], row["name"]) for row in rows}
            assert told == {"producer": (os.getpid(), "front camera"), "consumer": (os.getpid(), None)}
        detail = json.loads(tpool("info", "camera-1", "--listen", "10", "--format", "json", *settings).out)
        told = {row["role"]: (row["pid"], row["name"]) for row in detail["clients"]}
        assert told == {"producer": (os.getpid(), "front camera"), "consumer": (os.getpid(), None)}
        (header, *_) = tpool("leases", *settings).out.splitlines()
        assert header.split("CLIENT ID")[1].split()[:2] == ["PID", "NAME"]


def test_of_others_nothing_is_claimed(
    tpool: Callable, media: EmbeddedMediaDriver, client: AeronClient
) -> None:
    driver = ScriptedDriver(client)
    driver.leases = [lease(1)]
    with AgentRunner(driver, idle=make_idle("sleep", max_pause_s=0.001)):
        for command in ("clients", "leases"):
            outcome = tpool(command, "--listen", "0.1", "--format", "json", "--aeron-dir", media.aeron_dir)
            (row,) = json.loads(outcome.out)
            assert (row["pid"], row["name"]) == (None, None)
