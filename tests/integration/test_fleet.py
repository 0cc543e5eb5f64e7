"""Three hosts and one registry: what one has, another finds, fetches and commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import tensor_pool as tp
from pool_hosts import QUICK
from tensor_pool.control.client import KnownService
from tensor_pool.host.supervisor import SupervisorClient
from tensor_pool.pipeline.record.verify import verify
from tensor_pool.testing import Host, TwoHosts, wait_until

pytestmark = pytest.mark.skipif(TwoHosts.why_not(3) is not None, reason=str(TwoHosts.why_not(3)))

DEST = 50_000
CAMERA = """
    out = pool.producer("camera", dtype="uint32", shape=(8,), slots=64, metadata={"tags": "camera,roof"})
    print(out.stream_id)
    while True:
        out.publish(np.full(8, out.stats.frames, "uint32"))
        time.sleep(0.01)
"""
FINDER = """
    while not (found := tp.discover(tag="roof", config=config)):
        time.sleep(0.1)
    print(found[0].name, found[0].host, found[0].stream_id)
    try:
        pool.consumer(found[0])
    except tp.NoStreamError as e:
        print(" ".join(str(e).split()))
"""


def udp(host: Host, port: int) -> str:
    return f"aeron:udp?endpoint={host.address}:{port}"


@pytest.fixture(scope="module")
def hosts() -> Iterator[tuple[Host, Host, Host]]:
    """An office that commands and has the registry, a roof with a camera, and a lab that wants to see it."""
    with TwoHosts({**QUICK, "control.status_period_ms": 200}, count=3, driver=False) as (office, roof, lab):
        registry, answers = udp(office, 40_124), udp(office, 40_125)
        office.settings |= {"discovery.channel": answers, "discovery.sources": [{"channel": registry}]}
        office.start("discovery", "run").read_line()
        for name, host in (("roof", roof), ("lab", lab)):
            host.settings |= {
                "discovery.host": name,
                "discovery.registries": [{"channel": registry, "stream_id": 7_001}],
                "discovery.providers": [{"channel": answers}],
            }
        link = {"channel": udp(roof, 20_300), "status_channel": udp(office, 20_301)}
        office.settings["control.links"] = [{"role": "command", **link}]
        roof.settings |= {
            "control.links": [{"role": "serve", **link}],
            "control.access": [
                {"sources": ["ipc"]},
                {"sources": [office.address], "services": ["recorder", "supervisor"]},
            ],
        }
        for host in (roof, lab):
            host.start_driver()
        roof.start("supervisor", "run").read_line()
        yield office, roof, lab


def carry(roof: Host, lab: Host, source: int) -> None:
    """Starts a bridge for the camera."""
    bridge = {
        "bridge.payload_channel": f"{udp(lab, 20_121)}|mtu=8192",
        "bridge.control_channel": udp(lab, 20_122),
        "bridge.metadata_channel": udp(lab, 20_123),
        "bridge.mappings": [{"source_stream_id": source, "dest_stream_id": DEST}],
    }
    for host, role in ((lab, "receiver"), (roof, "sender")):
        host.settings |= {**bridge, "bridge.instance_id": role, "bridge.role": role}
        host.start("bridge", "run").read_line()


def test_a_fleet_finds_fetches_and_records_a_stream(hosts: tuple[Host, Host, Host], tmp_path: Path) -> None:
    office, roof, lab = hosts
    source = int(roof.run_python(CAMERA).read_line())

    # The lab finds the camera by its tag; it can't be had without a bridge, and the text says so.
    finder = lab.run_python(FINDER)
    assert finder.read_line() == f"camera roof {source}"
    refusal = finder.read_line()
    assert "roof" in refusal
    assert "bridge" in refusal

    # Then one is there.
    with lab.connect() as pool:
        carry(roof, lab, source)
        inp = pool.consumer(DEST, wait_s=20)
        seen = [frame.copy() for frame, _ in zip(inp, range(50), strict=False)]
        assert all((frame == frame[0]).all() for frame in seen)
        assert np.all(np.diff([int(frame[0]) for frame in seen]) > 0)

    # The office begins and ends its recording, and sees the echo.
    place = tmp_path / "recording"
    roof.start("record", "camera", "--out", str(place), "--standby")
    with tp.ControlClient(config=office.config) as control:

        def recorder() -> KnownService | None:
            return next(iter(control.services(only="recorder", timeout_s=3)), None)

        wait_until(recorder, timeout_s=30)
        echo = control.send("recorder", "record.enable", value=True, correlation_id=42, timeout_s=5)
        assert (echo.value, echo.correlation_id) == (True, 42)
        assert echo.source.startswith(f"{roof.address}:")
        wait_until(lambda: (now := recorder()) and now.values["record.frames"] >= 50, timeout_s=20)

        # It also sees what the supervisor of the roof knows: the camera, and who reads it.
        with SupervisorClient(office.config) as asking:
            view = asking.view(timeout_s=10)
        (stream,) = (each for each in view.streams if each.stream_id == source)
        assert (stream.name, stream.state) == ("camera", "live")
        conditions = [each.condition for each in view.consumers if each.stream_id == source]
        assert len(conditions) == stream.consumers == 2, "the bridge and the recorder"
        assert "stale" not in conditions

        control.send("recorder", "record.enable", value=False, timeout_s=5)
        wait_until(lambda: (now := recorder()) and not now.values["record.active"], timeout_s=20)
        with pytest.raises(tp.CommandRefusedError, match="not allowed"):
            control.send("driver", "log.level", "debug", timeout_s=5)
    assert verify(place).flaws == []
