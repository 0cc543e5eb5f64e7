"""A camera with two viewers for as long as one likes: nothing grows, nothing is lost.

`make soak` runs it for SOAK_SECONDS (600). What leaks a little a frame, a second or a keepalive shows here
and nowhere else.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from tensor_pool.testing import Cluster, Process

SECONDS = float(os.environ.get("SOAK_SECONDS", "600"))
SAMPLE_S = min(10.0, SECONDS / 60)
WARM_UP_S = min(60.0, SECONDS / 5)
"""Until then caches fill, and every page of the ring and of the logs is touched once."""

RATE_HZ = 100
FRAME_BYTES = 8 << 20
SLOTS = 32
"""A third of a second: what a machine of two cores may keep a viewer from running."""

GROWTH_KIB = 1024
"""What memory may seem to grow by: the kernel counts pages in batches for each core, and heaps breathe. From
the first to the last quarter of ten minutes pass 40,000 frames, so that 26 bytes a frame are found."""
LOGS_KIB = 2048
"""What shared memory may grow by: slow streams touch the last page of their logs after many minutes."""

# Terms of 64 KiB: with larger ones the logs of Aeron alone would take hours to be touched everywhere.
SETTINGS = {"aeron.term_length": "64k"}

CAMERA = f"""
    import select
    out = pool.producer("camera", dtype="uint8", shape=({FRAME_BYTES},), slots={SLOTS})
    image = np.zeros({FRAME_BYTES}, "uint8")
    print("ready")
    sys.stdin.readline()
    frames, longest, due = 0, 0.0, time.monotonic()
    while not select.select([sys.stdin], [], [], 0)[0]:
        image[0] = image[-1] = frames % 251
        begin = time.monotonic()
        out.publish(image)
        frames += 1
        now = time.monotonic()
        longest = max(longest, now - begin)
        due = max(due + 1 / {RATE_HZ}, now - 0.1)  # no burst after a pause of the machine
        time.sleep(max(0.0, due - now))
    import json
    print(json.dumps(dict(frames=frames, longest_ms=1e3 * longest, lease_losses=out.stats.lease_losses)))
    sys.stdin.readline()
"""

VIEWER = """
    import json, select
    inp = pool.consumer("camera", wait_s=20)
    print("ready")
    wrong, ends = 0, False
    while True:
        frame = inp.poll(timeout=0.5)
        if frame is not None:
            try:
                with frame as image: wrong += not image[0] == image[-1] == frame.seq % 251
            except tp.FrameOverwrittenError:
                pass  # counted
        elif select.select([sys.stdin], [], [], 0)[0]:
            break
    stats = inp.stats
    print(json.dumps(dict(
        delivered=stats.delivered, drops=stats.drops, overwritten=stats.overwritten, wrong=wrong,
        descriptors_missed=stats.descriptors_missed, reconnects=stats.reconnects,
    )))
"""


class Usage(msgspec.Struct, frozen=True):
    """What a process has of the machine at one moment."""

    anon_kib: int
    shared_kib: int
    fds: int
    maps: int
    threads: int

    @classmethod
    def of(cls, pid: int) -> Usage:
        process = Path(f"/proc/{pid}")
        status = dict(
            line.split(":", 1) for line in (process / "status").read_text(encoding="utf-8").splitlines()
        )
        kib = {key: int(status[key].split()[0]) for key in ("RssAnon", "RssShmem", "RssFile")}
        maps = (process / "maps").read_text(encoding="utf-8").splitlines()
        return cls(
            anon_kib=kib["RssAnon"],
            shared_kib=kib["RssShmem"] + kib["RssFile"],
            fds=len(list((process / "fd").iterdir())),
            # Heaps come and go in pieces; what is mapped from files must stay.
            maps=sum(1 for line in maps if len(line.split(maxsplit=5)) == 6 and "/" in line),
            threads=len(list((process / "task").iterdir())),
        )


class Trace:
    """What one process had of the machine, from the warm-up on."""

    def __init__(self, name: str, samples: list[Usage]) -> None:
        assert len(samples) >= 8, f"{name}: {len(samples)} samples say nothing"
        self.name = name
        self.samples = samples
        quarter = len(samples) // 4
        self._first, self._last = samples[:quarter], samples[-quarter:]

    def growth_kib(self, field: str) -> int:
        """By how much the last quarter's most is above the first quarter's."""
        return self._most(self._last, field) - self._most(self._first, field)

    def values(self, field: str) -> set[int]:
        return {getattr(sample, field) for sample in self.samples}

    @staticmethod
    def _most(samples: list[Usage], field: str) -> int:
        return max(getattr(sample, field) for sample in samples)

    def row(self) -> str:
        def memory(field: str) -> str:
            first, last = (self._most(part, field) / 1024 for part in (self._first, self._last))
            return f"{first:8.1f} -> {last:7.1f}"

        def count(field: str) -> str:
            return "/".join(map(str, sorted(self.values(field))))

        return (
            f"{self.name:13}{memory('anon_kib')}{memory('shared_kib')}"
            f"{count('fds'):>9}{count('maps'):>9}{count('threads'):>9}"
        )


HEAD = f"{'':13}{'heap, MiB':>19}{'shared, MiB':>19}{'files':>9}{'maps':>9}{'threads':>9}"


def sample_while_running(processes: Mapping[str, Process]) -> list[Trace]:
    """Looks at all processes every few seconds; they go on meanwhile."""
    samples: dict[str, list[Usage]] = {name: [] for name in processes}
    begin = time.monotonic()
    due = begin + WARM_UP_S
    while due <= begin + SECONDS:
        time.sleep(max(0.0, due - time.monotonic()))
        due += SAMPLE_S
        for name, process in processes.items():
            assert process.exit_code is None, f"{name} ended:\n{process.errors()}"
            samples[name].append(Usage.of(process.pid))
    return [Trace(name, taken) for name, taken in samples.items()]


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 180)
def test_a_camera_with_two_viewers_neither_grows_nor_loses_anything() -> None:
    with Cluster(SETTINGS) as host:
        camera = host.run_python(CAMERA)
        camera.read_line()
        viewers = [host.run_python(VIEWER) for _ in range(2)]
        for viewer in viewers:
            viewer.read_line()
        assert host.driver is not None
        camera.say("go")
        traces = sample_while_running(
            {
                "camera": camera,
                "viewer 1": viewers[0],
                "viewer 2": viewers[1],
                "SHM driver": host.driver,
                "media driver": host.media,
            }
        )
        camera.say("stop")
        published = json.loads(camera.read_line())
        for viewer in viewers:
            viewer.say("stop")
        seen = [json.loads(viewer.read_line()) for viewer in viewers]
        said = [process.errors() for process in (camera, *viewers, host.driver, host.media)]
    print("", HEAD, *(trace.row() for trace in traces), published, *seen, sep="\n")

    assert published["frames"] > 0.9 * RATE_HZ * SECONDS, "the machine was too busy for a camera"
    assert published["lease_losses"] == 0
    for viewer in seen:
        # Every frame, each whole: what was not delivered would stand in the drops, or nowhere.
        assert viewer["delivered"] == published["frames"], viewer
        assert (viewer["drops"], viewer["overwritten"], viewer["wrong"], viewer["reconnects"]) == (0,) * 4
    for trace in traces:
        assert trace.growth_kib("anon_kib") <= GROWTH_KIB, trace.row()
        assert trace.growth_kib("shared_kib") <= LOGS_KIB, trace.row()
        for field in ("fds", "maps", "threads"):
            assert len(trace.values(field)) == 1, f"{field}: {trace.row()}"
    assert said == [""] * 5, said
