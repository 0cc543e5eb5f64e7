"""What processes have of the machine while they go on for minutes or hours: nothing may grow."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from tensor_pool.testing import Process

SECONDS = float(os.environ.get("SOAK_SECONDS", "600"))
SAMPLE_S = min(10.0, SECONDS / 60)
WARM_UP_S = min(60.0, SECONDS / 5)
"""Until then caches fill, and every page of the ring and of the logs is touched once."""

GROWTH_KIB = 1024
"""What memory may seem to grow by: the kernel counts pages in batches for each core, and heaps breathe. From
the first to the last quarter of ten minutes pass 40,000 frames, so that 26 bytes a frame are found."""
LOGS_KIB = 2048
"""What shared memory may grow by: slow streams touch the last page of their logs after many minutes."""

# Terms of 64 KiB: with larger ones the logs of Aeron alone would take hours to be touched everywhere.
SETTINGS = {"aeron.term_length": "64k"}


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


def sample_while_running(
    processes: Mapping[str, Process], *, on_sample: Callable[[], object] = lambda: None
) -> list[Trace]:
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
        on_sample()
    return [Trace(name, taken) for name, taken in samples.items()]


def check_flat(traces: list[Trace]) -> None:
    """Neither memory grows nor do files, mappings or threads come and go."""
    for trace in traces:
        assert trace.growth_kib("anon_kib") <= GROWTH_KIB, trace.row()
        assert trace.growth_kib("shared_kib") <= LOGS_KIB, trace.row()
        for field in ("fds", "maps", "threads"):
            assert len(trace.values(field)) == 1, f"{field}: {trace.row()}"
