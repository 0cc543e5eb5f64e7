"""Media drivers in all three forms, their directories, and their ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tensor_pool import _native
from tensor_pool.errors import ChannelError, NoMediaDriverError, TransportError
from tensor_pool.transport import (
    AeronClient,
    EmbeddedMediaDriver,
    ExternalMediaDriver,
    MediaDriver,
    MediaDriverOptions,
    SpawnedMediaDriver,
    is_alive,
    media_driver_status,
)

RunScript = Callable[..., "subprocess.CompletedProcess[str]"]
Eventually = Callable[[Callable[[], object]], None]


@pytest.mark.parametrize("form", [EmbeddedMediaDriver, SpawnedMediaDriver])
def test_clients_meet_it_until_it_is_closed(form: Callable[[str], MediaDriver], aeron_dir: str) -> None:
    with form(aeron_dir) as driver:
        assert driver.is_alive()
        assert is_alive(aeron_dir, timeout_ms=2_000)
        status = media_driver_status(aeron_dir)
        assert status is not None
        assert (status.pid, status.alive, status.client_liveness_ms) == (driver.pid, True, 10_000)
        assert abs(status.start_ms / 1e3 - time.time()) < 60
        assert status.heartbeat_age_s is not None
        with AeronClient.connect(aeron_dir) as client, ExternalMediaDriver(aeron_dir) as seen_by_others:
            client.check()
            assert (seen_by_others.pid, seen_by_others.is_alive()) == (driver.pid, True)
        assert driver.is_alive(), "closing somebody else's driver ends nothing"
    assert not driver.is_alive()
    assert not is_alive(aeron_dir)
    assert not Path(aeron_dir).exists()
    driver.close()


@pytest.mark.parametrize("form", [EmbeddedMediaDriver, SpawnedMediaDriver])
def test_a_second_one_is_refused_and_harms_nothing(
    form: Callable[[str], MediaDriver], aeron_dir: str
) -> None:
    with EmbeddedMediaDriver(aeron_dir), AeronClient.connect(aeron_dir) as client:
        with pytest.raises(
            TransportError, match=rf"\(pid {os.getpid()}\) already serves {aeron_dir}"
        ) as caught:
            form(aeron_dir)
        assert "choose another directory" in (caught.value.hint or "")
        client.add_publication("aeron:ipc", 1)


@pytest.mark.parametrize("form", [EmbeddedMediaDriver, SpawnedMediaDriver])
def test_a_directory_with_other_peoples_files_is_left_alone(
    form: Callable[[Path], MediaDriver], tmp_path: Path
) -> None:
    treasure = tmp_path / "thesis.txt"
    treasure.write_text("ten years of work")
    with pytest.raises(TransportError, match=r"thesis\.txt"):
        form(tmp_path)
    assert treasure.read_text() == "ten years of work"


def test_what_a_dead_one_left_is_replaced_or_kept(aeron_dir: str) -> None:
    keep = MediaDriverOptions(delete_dir_on_shutdown=False)
    EmbeddedMediaDriver(aeron_dir, keep).close()
    assert Path(aeron_dir, "cnc.dat").exists()
    status = media_driver_status(aeron_dir)
    assert status is not None
    assert (status.alive, status.heartbeat_ms, status.heartbeat_age_s) == (False, -1, None)
    with pytest.raises(NoMediaDriverError, match="was shut down"):
        AeronClient.connect(aeron_dir, connect_timeout_ms=0)
    with pytest.raises(TransportError, match="left its files"):
        EmbeddedMediaDriver(aeron_dir, MediaDriverOptions(delete_dir_on_start=False))
    with EmbeddedMediaDriver(aeron_dir):
        assert is_alive(aeron_dir)


@pytest.mark.parametrize("content", [b"", b"x", bytes(5000), b"\xff" * 5000], ids=len)
def test_a_damaged_file_is_neither_trusted_nor_fatal(aeron_dir: str, content: bytes) -> None:
    Path(aeron_dir).mkdir()
    Path(aeron_dir, "cnc.dat").write_bytes(content)
    assert media_driver_status(aeron_dir) is None
    with pytest.raises(NoMediaDriverError):
        AeronClient.connect(aeron_dir, connect_timeout_ms=0)
    with pytest.raises(NoMediaDriverError):
        ExternalMediaDriver(aeron_dir)
    with EmbeddedMediaDriver(aeron_dir):
        assert is_alive(aeron_dir)


@pytest.mark.parametrize(
    "aeron_dir", ["relative/path", "/dev/shm/" + "x" * 5000, "/proc/nothing/here", "/dev/shm/a\0b"]
)
def test_impossible_directories_are_errors(aeron_dir: str) -> None:
    with pytest.raises((TransportError, ValueError)):
        EmbeddedMediaDriver(aeron_dir)


def test_a_client_waits_for_one_that_is_about_to_start(aeron_dir: str) -> None:
    script = """
import sys, time
time.sleep(0.3)
from tensor_pool.transport import EmbeddedMediaDriver
with EmbeddedMediaDriver(sys.argv[1]):
    sys.stdin.read()
"""
    late = subprocess.Popen(
        [sys.executable, "-c", script, aeron_dir],
        stdin=subprocess.PIPE,
    )
    try:
        with AeronClient.connect(aeron_dir, connect_timeout_ms=30_000) as client:
            client.check()
    finally:
        late.communicate(timeout=20)
    assert late.returncode == 0


def test_a_spawned_one_ends_with_its_owner_however_that_ends(
    run_script: RunScript, aeron_dir: str, eventually: Eventually
) -> None:
    script = """
import os, signal, sys
from tensor_pool.transport import SpawnedMediaDriver
print(SpawnedMediaDriver(sys.argv[1]).pid, flush=True)
driver = SpawnedMediaDriver(sys.argv[1] + "-b")
print(driver.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    result = run_script(script, aeron_dir)
    assert result.returncode == -signal.SIGKILL
    first, second = map(int, result.stdout.split())

    def gone(pid: int) -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False

    assert gone(first), "collected, hence ended"
    eventually(lambda: gone(second))
    assert not Path(aeron_dir).exists()
    eventually(lambda: not Path(f"{aeron_dir}-b").exists())


@pytest.mark.parametrize("delete", [True, False])
def test_what_a_killed_one_left_is_removed_with_it_if_it_was_to_be(aeron_dir: str, delete: bool) -> None:
    options = MediaDriverOptions(delete_dir_on_shutdown=delete)
    with SpawnedMediaDriver(aeron_dir, options) as driver:
        os.kill(driver.pid, signal.SIGKILL)
    assert not driver.is_alive()
    assert Path(aeron_dir, "cnc.dat").exists() != delete
    with EmbeddedMediaDriver(aeron_dir):
        assert is_alive(aeron_dir)


def test_the_successor_of_a_killed_one_is_left_alone(aeron_dir: str, eventually: Eventually) -> None:
    driver = SpawnedMediaDriver(aeron_dir)
    os.kill(driver.pid, signal.SIGKILL)
    eventually(lambda: not driver.is_alive())
    with EmbeddedMediaDriver(aeron_dir), AeronClient.connect(aeron_dir) as client:
        driver.close()
        client.add_publication("aeron:ipc", 1)
        assert is_alive(aeron_dir)


def test_a_spawned_one_that_can_not_run_says_why(aeron_dir: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(TransportError, match="ended without a word"):
        SpawnedMediaDriver(aeron_dir)


@pytest.mark.parametrize(
    "options", [{"threading": "shared_network"}, {"threading": "dedicated", "idle": "yield"}], ids=str
)
def test_other_ways_to_run_pass_messages_too(aeron_dir: str, options: dict[str, str]) -> None:
    with (
        EmbeddedMediaDriver(aeron_dir, MediaDriverOptions(**options)),  # type: ignore[arg-type]
        AeronClient.connect(aeron_dir) as client,
    ):
        subscription = client.add_subscription("aeron:ipc", 7)
        publication = client.add_publication("aeron:ipc", 7)
        assert publication.wait_connected(20_000)
        assert publication.offer(b"x")
        assert subscription.receive() == [b"x"]


def test_terms_that_are_not_sparse_need_room_at_once(aeron_dir: str) -> None:
    with (
        EmbeddedMediaDriver(aeron_dir, MediaDriverOptions(sparse_terms=False)),
        AeronClient.connect(aeron_dir) as client,
    ):
        client.add_publication("aeron:ipc?term-length=1m", 1)
        (log,) = Path(aeron_dir, "publications").iterdir()
        assert log.stat().st_blocks * 512 >= 3 << 20


def test_values_that_only_aeron_knows_are_refused_by_it(aeron_dir: str) -> None:
    with pytest.raises(TransportError, match="term length"):
        EmbeddedMediaDriver(aeron_dir, MediaDriverOptions(ipc_term_bytes=12345))
    with (
        EmbeddedMediaDriver(aeron_dir),
        AeronClient.connect(aeron_dir) as client,
        pytest.raises(ChannelError, match=r"(?i)unknown host|unresolved"),
    ):
        client.add_publication("aeron:udp?endpoint=no-such-host.invalid:40123", 1)


def test_the_built_in_version_is_told() -> None:
    assert _native.aeron_version().startswith("1.")
