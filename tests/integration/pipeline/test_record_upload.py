"""`tpool record --upload`: a real pool, a real store, and a store that stops answering."""

from __future__ import annotations

import json
import signal
import time

import numpy as np
import pytest

from pool_hosts import quick_host
from s3_server import BUCKET, credentials_of, s3_server
from tensor_pool.pipeline.record.place import Place
from tensor_pool.pipeline.record.recording import Recording
from tensor_pool.pipeline.record.upload import push
from tensor_pool.pipeline.record.verify import verify
from tensor_pool.testing import wait_until

FRAME_BYTES = 200_000
pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(autouse=True)
def credentials(server):
    with credentials_of(server):
        yield


@pytest.fixture(scope="module")
def host():
    with quick_host() as cluster:
        yield cluster


@pytest.fixture
def out(host):
    with host.connect() as pool, pool.producer("camera-1", max_bytes=FRAME_BYTES, slots=256) as out:
        yield out


def publish(out, count):
    for _ in range(count):
        out.publish(np.full(FRAME_BYTES, out.stats.frames % 251, "uint8"))
        time.sleep(0.005)  # what a camera's rate would be; nothing waits for it


def record(host, *arguments, frames):
    """Starts the command."""
    command = [
        "record",
        "camera-1",
        "--segment-mib=1",
        "--format=json",
        f"--frames={frames}",
        *map(str, arguments),
    ]
    return host.start(*command)


def test_segments_are_elsewhere_when_the_command_ends(host, out, server, tmp_path):
    uri = server.uri(BUCKET, "whole", credentials=False)
    recorder = record(host, f"--out={tmp_path}/here", f"--upload={uri}", "--remove-uploaded", frames=60)
    with recorder:
        wait_until(lambda: out.stats.consumers, 60)
        publish(out, 60)
        assert recorder.wait(90) == 0, recorder.errors()
    (stream,) = Recording(uri).values()
    values = [int(frame.array()[0]) for frame in stream.frames()]
    assert values == [n % 251 for n in range(60)]
    assert len(stream.catalogue.segments) > 8
    assert list((tmp_path / "here").rglob("*.arrow")) == []
    assert Recording(tmp_path / "here")["camera-1"].catalogue.removed_through == len(
        stream.catalogue.segments
    )


@pytest.mark.parametrize("silent", ["until told", pytest.param("to the end", marks=pytest.mark.slow)])
def test_a_store_that_stops_answering_does_not_hold_the_recorder_up(host, out, server, tmp_path, *, silent):
    """The command has said all; its last request to a store that stays silent may take half a minute more."""
    uri = server.uri(BUCKET, f"stopped {silent}", credentials=False)
    server.process.send_signal(signal.SIGSTOP)
    try:
        options = [f"--out={tmp_path}", f"--upload={uri}", "--upload-wait=1"]
        with record(host, *options, frames=100) as recorder:
            wait_until(lambda: out.stats.consumers, 60)
            publish(out, 100)
            wait_until(lambda: "are not uploaded" in recorder.errors(), 30)
            assert recorder.exit_code is None
            if silent == "until told":
                server.process.send_signal(signal.SIGCONT)
            assert recorder.wait(120) == 1
            said = recorder.errors()
            (row,) = json.loads("\n".join(iter_lines(recorder)))
    finally:
        server.process.send_signal(signal.SIGCONT)
    assert (row["frames"], row["lost"], row["dropped"]) == (100, 0, 0)
    assert "are not uploaded" in said
    assert "`tpool recordings push" in said
    assert verify(tmp_path).flaws == []
    push(tmp_path, Place(uri))
    assert len(list(Recording(uri)["camera-1"].frames())) == 100


def iter_lines(process):
    """What it printed, up to its end."""
    while True:
        try:
            yield process.read_line(timeout_s=5)
        except AssertionError:
            return
