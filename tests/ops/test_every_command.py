"""Every command that looks at a running host, against a real driver, a real producer and real consumers."""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from pool_hosts import TALKATIVE
from tensor_pool.ops.cli.exit_codes import NO_DRIVER, OK, PROBLEMS, USAGE
from tensor_pool.testing import Cluster, Process, wait_until

FORMATS = ("table", "json", "jsonl")
SHAPE = (24, 32)
RATE_HZ = 100
SLOTS = 64

CAMERA = f"""
metadata = {{"exposure_ms": 12.5}}
out = pool.producer("camera-1", dtype="uint16", shape={SHAPE}, slots={SLOTS}, metadata=metadata)
print(out.stream_id)
due = time.monotonic()
n = 0
while True:
    n += 1
    out.publish(np.full({SHAPE}, n % 60000, "uint16"))
    due += 1 / {RATE_HZ}
    time.sleep(max(0.0, due - time.monotonic()))
"""
VIEWER = """
inp = pool.consumer("camera-1", wait_s=10)
print(inp.session.consumer_id)
for frame in inp:
    pass
"""
SLEEPER = """
inp = pool.consumer("camera-1", wait_s=10)
while inp.stats.drops == 0:
    inp.poll(timeout=1.0)
    time.sleep(0.1)
print(inp.session.consumer_id)
while True:
    inp.poll(timeout=1.0)
    time.sleep(0.1)
"""


class Host(Cluster):
    """A camera, somebody who keeps up, and somebody who does not."""

    def __init__(self) -> None:
        # Rates come from two reports; a delay of hundredths of a second must not spoil them.
        super().__init__({**TALKATIVE, "client.hello_interval_ms": 300})
        self.camera = self.run_python(CAMERA)
        self.stream_id = int(self.camera.read_line())
        self.viewer = self.run_python(VIEWER)
        self.viewer_id = int(self.viewer.read_line())
        self.sleeper = self.run_python(SLEEPER)
        self.sleeper_id = int(self.sleeper.read_line())

    def options(self, **settings: object) -> list[str]:
        """The configuration of its processes, where these settings don't differ."""
        return [f"--set={key}={value}" for key, value in {**self.settings, **settings}.items()]


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with Host() as host:
        yield host


@pytest.fixture
def ask(tpool: Callable, host: Host) -> Callable:
    return lambda *arguments, **settings: tpool(*arguments, *host.options(**settings))


def parsed(outcome: object, output_format: str) -> list[dict]:
    """The rows of a JSON document or of JSON lines."""
    if output_format == "jsonl":
        return [json.loads(line) for line in outcome.out.splitlines()]
    document = json.loads(outcome.out)
    return document if isinstance(document, list) else [document]


def of_camera(rows: list[dict]) -> dict:
    """The camera's; other tests leave streams behind."""
    (found,) = (row for row in rows if row["name"] == "camera-1")
    return found


def lost(row: dict) -> int:
    """All that a consumer says it has lost."""
    return row["drops_gap"] + row["drops_late"]


def each_format(ask: Callable, *arguments: str, code: int = OK) -> tuple[str, list[dict], list[dict]]:
    """The table's text, and the rows of JSON and of JSON lines."""
    found = [ask(*arguments, "--format", name) for name in FORMATS]
    for outcome in found:
        assert outcome.code == code, outcome.err
    table, document, lines = found
    return table.out, parsed(document, "json"), parsed(lines, "jsonl")


class TestListings:
    def test_streams(self, ask: Callable, host: Host) -> None:
        def row_with_rate() -> dict | None:
            found = of_camera(parsed(ask("streams", "--format", "json"), "json"))
            return found if found["rate_hz"] == pytest.approx(RATE_HZ, rel=0.5) else None

        row = wait_until(row_with_rate, what="the rate")
        table, rows, lines = each_format(ask, "streams")

        assert (row["stream_id"], row["name"], row["shape"]) == (host.stream_id, "camera-1", list(SHAPE))
        assert (row["dtype"], row["order"], row["slots"]) == ("uint16", "row", SLOTS)
        assert row["bytes_per_s"] == pytest.approx(row["rate_hz"] * 24 * 32 * 2)
        assert row["consumers"] == 2
        assert row["current_seq"] > 0
        assert of_camera(rows)["producer_id"] == of_camera(lines)["producer_id"] == row["producer_id"]
        assert "24x32" in table
        assert "DROPS" not in table

    def test_streams_watched_show_what_is_lost(self, ask: Callable, host: Host) -> None:
        options = ("--watch", "--count", "3", "--interval", "0.7")
        outcome = ask("streams", *options, "--format", "jsonl")
        seen = [row for row in parsed(outcome, "jsonl") if row["name"] == "camera-1"]
        first, _, last = seen

        assert first["drops"] is None, "nobody was heard yet"
        assert last["drops"] > 0, "the sleeper loses frames"
        assert pytest.approx(RATE_HZ, rel=0.5) in [row["rate_hz"] for row in seen], "a late report spoils one"
        assert last["current_seq"] > first["current_seq"]
        assert "DROPS" in ask("streams", "--watch", "--count", "1").out

    def test_leases(self, ask: Callable, host: Host) -> None:
        table, rows, lines = each_format(ask, "leases")

        assert [row["role"] for row in rows] == ["producer", "consumer", "consumer"]
        assert {row["client_id"] for row in rows[1:]} == {host.viewer_id, host.sleeper_id}
        assert all(0 < row["expires_in_s"] <= 3.1 for row in rows)
        assert len(lines) == 3
        assert table.count("camera-1") == 3
        assert parsed(ask("leases", "--stream", "7", "--format", "json"), "json") == []

    def test_clients_have_lag_and_drops(self, ask: Callable, host: Host) -> None:
        table, rows, lines = each_format(ask, "clients")
        by_id = {row["client_id"]: row for row in rows}

        assert [row["role"] for row in rows] == ["producer", "consumer", "consumer"]
        viewer, sleeper = by_id[host.viewer_id], by_id[host.sleeper_id]
        assert lost(viewer) < lost(sleeper)
        assert viewer["lag_frames"] < sleeper["lag_frames"]
        assert rows[0]["lag_frames"] is None
        assert {row["client_id"] for row in lines} == set(by_id)
        assert "LAG FRAMES" in table

    def test_clients_without_listening(self, ask: Callable) -> None:
        rows = parsed(ask("clients", "--listen", "0", "--format", "json"), "json")
        assert [row["drops_gap"] for row in rows] == [None] * 3

    def test_the_driver(self, ask: Callable, host: Host) -> None:
        outcome = ask("driver", "status", "--format", "json")
        row = json.loads(outcome.out)

        assert (row["state"], row["pid"]) == ("running", host.driver.pid)
        assert (row["producers"], row["consumers"]) == (1, 2)
        assert "state                   running" in ask("driver", "status").out


class TestInfo:
    def test_by_name(self, ask: Callable, host: Host) -> None:
        table, rows, lines = each_format(ask, "info", "camera-1")

        (row,) = rows
        assert row["pools"] == [{"pool_id": 1, "slots": SLOTS, "stride_bytes": 2048}]
        assert row["metadata"]["exposure_ms"] == 12.5
        assert row["clock"]["domain"] == "monotonic"
        by_id = {client["client_id"]: client for client in row["clients"]}
        assert lost(by_id[host.viewer_id]) < lost(by_id[host.sleeper_id])
        assert row["epoch"] == lines[0]["epoch"]
        for text in ("exposure_ms", "STRIDE BYTES", "LAG FRAMES", "clock_domain", "24x32"):
            assert text in table

    def test_by_id(self, ask: Callable, host: Host) -> None:
        (row,) = parsed(ask("info", str(host.stream_id), "--format", "json"), "json")
        assert row["name"] == "camera-1"

    @pytest.mark.parametrize("command", ["info", "hz", "bw", "delay", "drops"])
    def test_an_unknown_stream_names_those_near(self, ask: Callable, host: Host, command: str) -> None:
        before = len(parsed(ask("streams", "--format", "json"), "json"))
        outcome = ask(command, "camera1")

        assert outcome.code == PROBLEMS
        assert outcome.err.splitlines() == [
            "error: there is no stream 'camera1'",
            f"   at: {host.aeron_dir}",
            "  try: did you mean camera-1? `tpool streams` lists what is there",
        ]
        assert len(parsed(ask("streams", "--format", "json"), "json")) == before, "asking makes none"


class TestMeasuring:
    @pytest.mark.quiet
    def test_hz(self, ask: Callable) -> None:
        options = ("--seconds", "1.2", "--window", "0.5")
        table, rows, lines = each_format(ask, "hz", "camera-1", *options)

        (total,) = rows
        assert total["rate_hz"] == pytest.approx(RATE_HZ, rel=0.5)
        assert (
            total["min_ms"] <= total["p10_ms"] <= total["p50_ms"] <= total["p90_ms"] <= total["max_ms"] * 1.01
        )
        assert total["frames"] > RATE_HZ * 0.5
        assert [line["kind"] for line in lines] == ["window", "window", "total"]
        assert sum(line["frames"] for line in lines[:2]) <= lines[2]["frames"]
        assert table.splitlines()[0].split()[1] == "Hz"
        assert table.splitlines()[-1].startswith("in all, ")

    @pytest.mark.quiet
    def test_hz_by_timestamp(self, ask: Callable) -> None:
        (total,) = parsed(
            ask("hz", "camera-1", "--by", "timestamp", "--count", "20", "--format", "json"), "json"
        )
        assert (total["frames"], total["missed"]) == (20, 0)
        assert total["rate_hz"] == pytest.approx(RATE_HZ, rel=0.5)

    def test_bw(self, ask: Callable) -> None:
        table, rows, lines = each_format(ask, "bw", "camera-1", "--seconds", "0.8", "--window", "0.3")

        (total,) = rows
        assert (total["min_frame_bytes"], total["max_frame_bytes"]) == (1536, 1536)
        assert total["bytes"] == 1536 * total["frames"]
        assert total["bytes_per_s"] == pytest.approx(1536 * total["rate_hz"], rel=1e-3)
        assert lines[-1]["kind"] == "total"
        assert " MB/s " in table

    @pytest.mark.quiet
    def test_delay(self, ask: Callable) -> None:
        table, rows, lines = each_format(ask, "delay", "camera-1", "--count", "60", "--window", "0.3")

        (total,) = rows
        assert total["frames"] == 60
        assert 0 < total["min_us"] <= total["p50_us"] <= total["p99_us"] <= total["p999_us"]
        assert total["p50_us"] < 50_000, "frames of the past do not count"
        assert lines[-1]["frames"] == 60
        assert table.splitlines()[-1].startswith("in all, 60 frames")

    def test_every_lease_is_given_back(self, ask: Callable, host: Host) -> None:
        for command in ("hz", "bw", "delay"):
            assert ask(command, "camera-1", "--count", "20").code == OK
        held = parsed(ask("leases", "--stream", str(host.stream_id), "--format", "json"), "json")
        assert [row["role"] for row in held] == ["producer", "consumer", "consumer"]

    def test_ctrl_c_prints_the_summary(self, host: Host) -> None:
        process = host.start("hz", "camera-1", "--window", "0.2")
        assert " Hz " in process.read_line()
        os.kill(process.pid, signal.SIGINT)
        assert process.wait() == OK
        lines = [process.read_line()]
        while not lines[-1].startswith("in all, "):
            lines.append(process.read_line())
        assert " Hz " in lines[-1]

    @pytest.mark.parametrize(
        "arguments",
        [
            ("tap", "qos", "--format", "jsonl"),
            ("streams", "--watch", "--interval", "0.1", "--format", "jsonl"),
            ("clients", "--watch", "--interval", "0.1", "--format", "jsonl"),
            ("events", "--follow", "--format", "jsonl"),
        ],
        ids=lambda arguments: arguments[0],
    )
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
    def test_stop_signals_are_how_watching_ends(
        self, host: Host, arguments: tuple[str, ...], number: int
    ) -> None:
        process = host.start(*arguments)
        assert process.read_line().startswith("{")
        os.kill(process.pid, number)
        assert process.wait() == OK

    def test_a_json_document_must_end(self, ask: Callable) -> None:
        outcome = ask("hz", "camera-1", "--format", "json")
        assert outcome.code == USAGE
        assert "add --count or --seconds" in outcome.err


class TestDrops:
    def test_by_consumer(self, ask: Callable, host: Host) -> None:
        # Else each command would hear what the one before it reported of itself.
        silently = functools.partial(ask, **{"client.hello_interval_ms": 5_000})
        table, rows, lines = each_format(silently, "drops", "camera-1", "--listen", "0.5", code=PROBLEMS)

        by_consumer = {row["consumer"]: row for row in rows}
        assert set(by_consumer) == {host.viewer_id, host.sleeper_id, "this command"}
        viewer, sleeper = by_consumer[host.viewer_id], by_consumer[host.sleeper_id]
        assert lost(viewer) < lost(sleeper)
        assert sleeper["by_reason"] is None
        assert by_consumer["this command"]["by_reason"] is not None, "only who reads knows reasons"
        assert "DROPS GAP" in table
        assert len(lines) == 3

    def test_watched(self, ask: Callable, host: Host) -> None:
        options = ("--watch", "--count", "6", "--interval", "0.3", "--format", "jsonl")
        rows = parsed(ask("drops", "camera-1", *options), "jsonl")
        sleeper = [row for row in rows if row["consumer"] == host.sleeper_id]

        assert len(sleeper) == 6
        assert any(row["drops_per_s"] for row in sleeper), "it loses many at once, and then none for a while"


class TestSnap:
    def test_npy_is_the_frame(self, ask: Callable, tmp_path: Path) -> None:
        (row,) = parsed(ask("snap", "camera-1", str(tmp_path / "a.npy"), "--format", "json"), "json")
        values = np.load(tmp_path / "a.npy")

        assert (values.dtype, values.shape) == (np.uint16, SHAPE)
        assert set(values.flat) == {(row["seq"] + 1) % 60000}
        assert row["bytes"] == (tmp_path / "a.npy").stat().st_size
        assert [file.name for file in tmp_path.glob(".*")] == [], "nothing is left beside it"

    def test_several(self, ask: Callable, tmp_path: Path) -> None:
        outcome = ask("snap", "camera-1", str(tmp_path / "a.pgm"), "--count", "3", "--format", "jsonl")
        rows = parsed(outcome, "jsonl")

        assert [Path(row["file"]).name for row in rows] == ["a-0001.pgm", "a-0002.pgm", "a-0003.pgm"]
        assert [row["seq"] - rows[0]["seq"] for row in rows] == [0, 1, 2]
        assert all((tmp_path / row["file"]).read_bytes().startswith(b"P5\n32 24\n65535\n") for row in rows)

    def test_png_in_a_table(self, ask: Callable, tmp_path: Path) -> None:
        outcome = ask("snap", "camera-1", str(tmp_path / "a.png"), "--min", "0", "--max", "60000")
        assert outcome.out.splitlines()[1].split()[2:4] == ["uint16", "24x32"]
        assert (tmp_path / "a.png").read_bytes()[1:4] == b"PNG"

    @pytest.mark.parametrize(
        ("arguments", "code", "text"),
        [
            (["a.jpg"], USAGE, "a.jpg does not end with one of .png, .npy, .pgm"),
            (["a.png", "--min", "3", "--max", "2"], USAGE, "--min 3 is not below --max 2"),
            (["no/such/place/a.png"], PROBLEMS, "can't write no/such/place/a.png: No such file or directory"),
        ],
        ids=["format", "range", "place"],
    )
    def test_what_can_not_be_saved(self, ask: Callable, arguments: list[str], code: int, text: str) -> None:
        outcome = ask("snap", "camera-1", *arguments)
        assert outcome.code == code
        assert text in outcome.err


class TestOtherStreams:
    """Streams that a test publishes itself."""

    def test_a_picture_in_colour_and_one_of_floats(self, ask: Callable, host: Host, tmp_path: Path) -> None:
        with host.connect() as pool, pool.producer("colours", dtype="uint8", shape=(4, 5, 3)) as out:
            out.publish(np.arange(60, dtype="uint8").reshape(4, 5, 3))
            assert ask("snap", "colours", str(tmp_path / "a.png")).code == OK
            out.publish(np.linspace(-1, 1, 20, dtype="float32").reshape(4, 5)[:, :3])
            assert ask("snap", "colours", str(tmp_path / "b.pgm")).code == OK
        assert (tmp_path / "a.png").read_bytes()[25] == 2, "RGB"
        assert (tmp_path / "b.pgm").read_bytes().startswith(b"P5\n3 4\n65535\n\x00\x00")

    def test_silence(self, ask: Callable, host: Host, tmp_path: Path) -> None:
        with host.connect() as pool, pool.producer("quiet", dtype="uint8", shape=(4,)):
            for command in (["hz", "quiet"], ["bw", "quiet"], ["delay", "quiet"]):
                outcome = ask(*command, "--seconds", "0.3", "--window", "0.1")
                assert outcome.code == PROBLEMS
                assert "error: no frame of quiet" in outcome.err
                assert "came within 0.3 s" in outcome.err
                assert outcome.out.splitlines()[0] == "no frame"
            outcome = ask("snap", "quiet", str(tmp_path / "a.npy"), "--wait", "0.2")
            assert outcome.code == PROBLEMS
            assert "no frame of quiet" in outcome.err
        for command in (
            ["snap", "quiet", str(tmp_path / "a.npy"), "--wait", "0.2"],
            ["hz", "quiet", "--seconds", "0.2"],
        ):
            outcome = ask(*command)
            assert outcome.code == PROBLEMS
            assert "error: nobody produces quiet" in outcome.err

    def test_a_foreign_clock_is_refused(self, ask: Callable, host: Host) -> None:
        with (
            host.connect() as pool,
            pool.producer("dated", dtype="uint8", shape=(4,), clock="realtime") as out,
        ):
            camera = _Repeating(out)
            with camera:
                (row,) = parsed(ask("delay", "dated", "--count", "5", "--format", "json"), "json")
                assert row["frames"] == 5
                assert row["p50_us"] < 1e6
                camera.timestamp_ns = 2**62
                outcome = ask("delay", "dated", "--seconds", "5")
        assert outcome.code == PROBLEMS
        assert "in the future: its time stamp is not of the clock realtime_synced of this host" in outcome.err


class _Repeating:
    """Publishes a frame every few milliseconds, on a thread."""

    def __init__(self, out: object) -> None:
        self.timestamp_ns: int | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(out,))

    def _run(self, out: object) -> None:
        while not self._stop.wait(0.01):
            out.publish(np.zeros(4, "uint8"), timestamp_ns=self.timestamp_ns)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


class TestMemoryMessagesAndMachine:
    def test_shm_ls(self, ask: Callable, host: Host) -> None:
        table, rows, lines = each_format(ask, "shm", "ls")
        (row,) = (row for row in rows if row["stream_id"] == host.stream_id)

        assert (row["state"], row["slots"], row["leases"]) == ("current", SLOTS, 3)
        assert row["pid"] == host.driver.pid
        assert any(line["epoch"] == row["epoch"] for line in lines)
        assert "the driver serves it" in table

    def test_shm_inspect(self, ask: Callable, host: Host) -> None:
        outcome = ask("shm", "inspect", str(host.stream_id), "--format", "json")
        assert outcome.code == OK, outcome.err
        row = json.loads(outcome.out)
        assert f"/{host.stream_id}/" in row["path"]
        assert row["slots"]["newest_seq"] > 0
        assert "N newest" in ask("shm", "inspect", str(host.stream_id)).out

    def test_shm_verify_and_gc(self, ask: Callable, host: Host) -> None:
        verified = ask("shm", "verify")
        assert (verified.code, verified.err) == (OK, "")
        assert "0 flaws" in verified.out
        collected = ask("shm", "gc", "--yes", "--older-than", "5", "--format", "json")
        assert collected.code == OK, collected.err
        assert all(row["stream_id"] != host.stream_id for row in json.loads(collected.out))
        assert ask("hz", "camera-1", "--count", "3").code == OK, "the stream goes on"

    def test_counters(self, ask: Callable) -> None:
        table, rows, lines = each_format(ask, "counters", "--ours")
        values = {row["label"]: row["value"] for row in rows}

        assert values["driver: leases"] == 3
        assert values["shm-driver: errors"] == 0
        assert {row["label"] for row in lines} == set(values)
        assert "driver: leases" in table

    @pytest.mark.parametrize("command", ["info", "drops"])
    def test_ids_are_whole_in_a_narrow_terminal(
        self, ask: Callable, command: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("COLUMNS", "60")
        found = json.loads(ask(command, "camera-1", "--format=json").out)
        ids = (
            [client[part] for client in found["clients"] for part in ("client_id", "lease_id")]
            if command == "info"
            else [row["consumer"] for row in found if row["consumer"] != "this command"]
        )
        words = set(ask(command, "camera-1").out.split())
        assert ids
        assert {str(number) for number in ids} <= words

    def test_counters_in_a_narrow_terminal(self, ask: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COLUMNS", "60")
        words = set(ask("counters", "--ours").out.split())
        labels = " ".join(row["label"] for row in json.loads(ask("counters", "--ours", "--format=json").out))
        assert {"VALUE", "LABEL"} <= words
        assert set(labels.split()) <= words, "no word is broken"

    def test_errors(self, ask: Callable) -> None:
        assert ask("errors") == (OK, "no errors\n", "")
        for output_format in ("json", "jsonl"):
            assert parsed(ask("errors", "--format", output_format), output_format) == []

    def test_doctor(self, ask: Callable, host: Host) -> None:
        found = {row["check"]: row for row in parsed(ask("doctor", "--format", "json"), "json")}
        assert found["SHM driver"]["status"] == "ok"
        assert f"process {host.driver.pid}" in found["SHM driver"]["found"]
        assert found["media driver"]["status"] == "ok"

    @pytest.mark.parametrize(
        ("source", "kinds"),
        [
            ("qos", {"QosProducer", "QosConsumer"}),
            ("announce", {"ShmPoolAnnounce"}),
            ("metadata", {"DataSourceAnnounce", "DataSourceMeta"}),
            ("control", {"ShmLeaseKeepalive", "ConsumerHello"}),
            ("descriptor", {"FrameDescriptor"}),
        ],
    )
    def test_tap(self, ask: Callable, host: Host, source: str, kinds: set[str]) -> None:
        options = ("--stream", str(host.stream_id), "--seconds", "0.7", "--format", "json")
        rows = parsed(ask("tap", source, *options), "json")
        assert kinds <= {row["message"] for row in rows}

    def test_tap_in_other_formats(self, ask: Callable) -> None:
        outcome = ask("tap", "descriptor", "--count", "3", "--format", "jsonl")
        sequence = [json.loads(line)["fields"]["seq"] for line in outcome.out.splitlines()]
        assert sequence == [sequence[0], sequence[0] + 1, sequence[0] + 2]
        assert "FrameDescriptor" in ask("tap", "descriptor", "--count", "1").out


class TestEnds:
    def test_revoke(self, ask: Callable, host: Host) -> None:
        with host.connect() as pool, pool.producer("short", dtype="uint8", shape=(4,)) as out:
            (held,) = parsed(ask("leases", "--stream", str(out.stream_id), "--format", "json"), "json")
            outcome = ask("revoke", str(held["lease_id"]), "--yes", "--reason", "test", "--format", "json")

            assert outcome.code == OK, outcome.err
            assert json.loads(outcome.out)["revoked"] == held["lease_id"]
            wait_until(lambda: out.stats.lease_losses == 1, what="the end of the lease")
            assert out.publish(np.zeros(4, "uint8")) >= 0, "the producer attaches again"

    def test_without_a_driver_everything_says_so(self, tpool: Callable, tmp_path: Path) -> None:
        with Cluster(driver=False) as cluster:
            options = [f"--set={key}={value}" for key, value in cluster.settings.items()]
            for command in (["info"], ["hz"], ["bw"], ["delay"], ["drops"], ["snap", "a.npy"]):
                arguments = [command[0], "camera-1", *command[1:], "--timeout", "0.3"]
                outcome = tpool(*arguments, *options)
                assert (command, outcome.code) == (command, NO_DRIVER)
                assert "no SHM driver answers" in outcome.err
                assert f"`tpool driver run --aeron-dir {cluster.aeron_dir}`" in outcome.err

    def test_up_and_its_end(self, tpool: Callable, host: Host) -> None:
        base = f"{host.directory}/up"
        os.mkdir(base)  # noqa: PTH102 - a string is what the configuration takes
        places = [f"--set=aeron.dir={host.directory}/aeron-up", f"--set=shm.shm_base_dir={base}"]
        command = [sys.executable, "-c", "from tensor_pool.ops.cli import main; main()", "up", *places]
        with Process(command, environ=os.environ) as process:
            assert f"aeron-dir={host.directory}/aeron-up" in process.read_line()
            row = json.loads(tpool("driver", "status", "--format", "json", *places).out)
            assert (row["state"], row["pid"]) == ("running", process.pid)
            assert process.terminate() == OK
        assert tpool("driver", "status", *places).code == NO_DRIVER
