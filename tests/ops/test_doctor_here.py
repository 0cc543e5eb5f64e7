"""``tpool doctor`` on the machine that runs the tests, with real media drivers, dead and alive."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from bridges import end_of_bridge
from tensor_pool.ops.doctor.look import read_kernel, read_shared_memory
from tensor_pool.ops.doctor.look_services import find_leftovers, measure_timer_ms
from tensor_pool.transport import AeronClient, EmbeddedMediaDriver, MediaDriverOptions
from tensor_pool.transport.media import temporary_aeron_dir


def by_check(out: str) -> dict[str, dict[str, str]]:
    return {row["check"]: row for row in json.loads(out)}


@pytest.mark.quiet
def test_this_machine_with_a_media_driver(tpool: Callable, media: EmbeddedMediaDriver) -> None:
    outcome = tpool("doctor", "--aeron-dir", media.aeron_dir, "--format", "json")
    found = by_check(outcome.out)

    assert outcome.code == (1 if any(row["status"] == "problem" for row in found.values()) else 0)
    assert found["media driver"]["status"] == "ok"
    assert str(os.getpid()) in found["media driver"]["found"]
    assert found["media driver version"]["status"] == "ok"
    assert found["media driver timer"]["status"] == "ok", found["media driver timer"]
    assert found["flow control"]["status"] == "ok"
    assert found["SHM driver"]["status"] == "warning", "nobody answers"
    assert found["versions"]["status"] == "ok"


def test_a_table_ends_with_what_to_do(tpool: Callable) -> None:
    outcome = tpool("doctor", "--aeron-dir", temporary_aeron_dir())

    assert outcome.out.splitlines()[0].split() == ["STATUS", "CHECK", "FOUND"]
    assert "warning: media driver: none at /dev/shm/tensor-pool-" in outcome.out
    assert "  try: `tpool up`" in outcome.out
    assert re.fullmatch(r"0 problems, (1 warning|\d+ warnings)", outcome.out.splitlines()[-1])


def test_a_base_directory_that_is_missing_is_exit_code_1(tpool: Callable) -> None:
    base = "shm.shm_base_dir=/nonexistent/shm"
    outcome = tpool("doctor", "--set", base, "--aeron-dir", "/nonexistent/aeron", "--set", "log.level=error")

    assert outcome.code == 1
    assert "problem: shared memory: /nonexistent/shm does not exist" in outcome.out


def test_a_bridge_that_would_listen_at_another_host_is_a_problem(tpool: Callable, tmp_path: Path) -> None:
    file = tmp_path / "tensor-pool.toml"
    elsewhere = "192.0.2.77:20121"  # an address for examples
    file.write_text(textwrap.dedent(end_of_bridge("receiver", elsewhere, "127.0.0.1:1", "127.0.0.1:2")))
    outcome = tpool("doctor", "--config", str(file), "--aeron-dir", "/nonexistent/aeron", "--format", "json")
    found = by_check(outcome.out)

    assert outcome.code == 1
    assert found["bridge"]["found"] == "1 mappings: 10000->50000"
    assert found["bridge addresses"]["status"] == "problem"
    assert found["bridge addresses"]["found"] == f"this host has no endpoint={elsewhere}"


def test_an_ordinary_file_system_is_a_warning(tpool: Callable, tmp_path: Path) -> None:
    here = read_shared_memory(str(tmp_path))
    outcome = tpool("doctor", "--set", f"shm.shm_base_dir={tmp_path}", "--format", "json")

    expected = "ok" if here.file_system == "tmpfs" else "warning"
    assert by_check(outcome.out)["file system"]["status"] == expected


@pytest.mark.quiet
def test_a_coarse_timer_is_measured() -> None:
    slow = MediaDriverOptions(
        timer_interval_ms=400,
        untethered_window_limit_ms=500,
        untethered_linger_ms=500,
        untethered_resting_ms=500,
    )
    with EmbeddedMediaDriver.temporary(slow) as media:
        measured = measure_timer_ms(media.aeron_dir)

    assert measured is not None
    assert 300 < measured < 1_400


def test_a_tethered_subscription_of_another_program_is_found(
    tpool: Callable, media: EmbeddedMediaDriver, client: AeronClient
) -> None:
    publication = client.add_publication("aeron:ipc", 1100)
    theirs = client.native.add_subscription("aeron:ipc?term-length=4m", 1100, 1 << 20, 1 << 20, 5_000_000_000)
    assert publication.wait_connected(5_000)
    found = by_check(tpool("doctor", "--aeron-dir", media.aeron_dir, "--format", "json").out)
    theirs.close()

    assert found["flow control"]["status"] == "warning"
    assert f"subscription of client {client.client_id} to stream 1100" in found["flow control"]["found"]


def test_what_a_killed_media_driver_left_is_found(tpool: Callable) -> None:
    directory = temporary_aeron_dir()
    code = (
        "import sys, time; from tensor_pool.transport import EmbeddedMediaDriver;"
        "d = EmbeddedMediaDriver(sys.argv[1]); print('up', flush=True); time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, directory], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        os.kill(process.pid, signal.SIGSTOP)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=20)
        # Aeron counts it as alive until its heartbeat is 10 s old; the file says when that was.
        _age_heartbeat(Path(directory) / "cnc.dat")
        found = by_check(tpool("doctor", "--aeron-dir", directory, "--format", "json").out)
        left = dict(find_leftovers(Path("/dev/shm"), besides=""))
    finally:
        shutil.rmtree(directory, ignore_errors=True)

    assert found["media driver"]["status"] == "warning"
    assert "dead at" in found["media driver"]["found"]
    assert left[directory] > 0


def _age_heartbeat(cnc: Path) -> None:
    """Sets the time of the driver's last sign of life back by a minute; it ends the first ring buffer."""
    with cnc.open("r+b") as file:
        metadata = file.read(128)
        ring_end = 128 + int.from_bytes(metadata[4:8], "little")
        trailer = ring_end - 12 * 64  # positions, caches, correlation and heartbeat, two cache lines each
        place = trailer + 10 * 64
        file.seek(place)
        heartbeat_ms = int.from_bytes(file.read(8), "little", signed=True)
        assert heartbeat_ms > 1_600_000_000_000, "this is where the heartbeat stands"
        file.seek(place)
        file.write((heartbeat_ms - 60_000).to_bytes(8, "little", signed=True))


def test_the_kernel_is_asked_without_harm() -> None:
    first, second = read_kernel(), read_kernel()

    assert first == second
    assert first.openat2 is not None
