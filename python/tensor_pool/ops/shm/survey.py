"""Every epoch with what it is and why: the one listing that commands print and clean-up goes by."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from tensor_pool.errors import NoDriverError, NoMediaDriverError
from tensor_pool.host.aeron import aeron_dir, connect
from tensor_pool.ops.shm.collect import Moment, Served, Verdict, judge, lock_holder, newest_epochs
from tensor_pool.ops.shm.regions import EpochFolder, find_epochs
from tensor_pool.pool.admin import AdminClient
from tensor_pool.runtime import SystemClock
from tensor_pool.transport import is_alive

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tensor_pool.config import Config
    from tensor_pool.runtime import Clock

__all__ = ["EpochRow", "Surveyed", "ask_driver", "survey", "this_moment"]

_NS_PER_S: Final = 1_000_000_000
_ANSWER_TIMEOUT_S: Final = 1.0


class EpochRow(msgspec.Struct, frozen=True, kw_only=True):
    """An epoch as it is printed; the names are the keys of the JSON output."""

    user: str
    namespace: str
    stream_id: int
    epoch: int
    state: str
    bytes: int
    allocated_bytes: int
    slots: int | None
    pools: int
    pid: int | None
    pid_alive: bool | None
    activity_age_s: float | None
    newest: bool
    leases: int | None
    """None when no driver said."""
    reason: str
    path: str


class Surveyed(msgspec.Struct, frozen=True):
    """An epoch, what became of it, and how to print that."""

    folder: EpochFolder
    verdict: Verdict
    row: EpochRow


def this_moment(*, stale_after_s: float, clock: Clock | None = None) -> Moment:
    """Now, with a patience.

    Example:
        >>> this_moment(stale_after_s=60).stale_after_ns
        60000000000
    """
    clock = clock if clock is not None else SystemClock()
    return Moment(
        monotonic_ns=clock.monotonic_ns(),
        realtime_ns=clock.realtime_ns(),
        stale_after_ns=round(stale_after_s * _NS_PER_S),
        booted_ns=_booted_ns(),
    )


def _booted_ns() -> int:
    for line in _text("/proc/stat").splitlines():
        if line.startswith("btime "):
            return int(line.split()[1]) * _NS_PER_S
    return 0


def ask_driver(config: Config) -> Served:
    """What the SHM driver of a configuration serves; says so when none answers, and never raises for that."""
    if not is_alive(aeron_dir(config.aeron)):
        return Served()
    try:
        with (
            connect(config.aeron, name="tpool shm") as client,
            AdminClient(client, config.streams, timeout_s=_ANSWER_TIMEOUT_S) as admin,
        ):
            streams, leases = admin.streams(), admin.leases()
    except (NoDriverError, NoMediaDriverError):
        return Served()
    return Served(
        answered=True,
        current=frozenset((s.stream_id, s.epoch) for s in streams if s.epoch is not None),
        leases=dict(Counter((e.stream_id, e.epoch) for e in leases if e.epoch is not None)),
    )


def survey(base_dirs: Iterable[str], moment: Moment, served: Served) -> list[Surveyed]:
    """All epochs below the base directories, judged."""
    folders = list(find_epochs(base_dirs))
    newest = newest_epochs(folders)
    locks = _text("/proc/locks")
    return [_surveyed(folder, moment, served, folder.path in newest, locks) for folder in folders]


def _surveyed(folder: EpochFolder, moment: Moment, served: Served, is_newest: bool, locks: str) -> Surveyed:
    superblock = folder.superblock
    pid = None if superblock is None else superblock.pid
    # Numbers that no process can have would make a path of their own.
    pid_alive = None if pid is None else 0 < pid < 2**31 and Path(f"/proc/{pid}").exists()
    namespace = Path(folder.path).parents[1]
    verdict = judge(
        folder,
        moment,
        served=served,
        is_newest=is_newest,
        lock_pid=lock_holder(namespace, locks),
        pid_alive=bool(pid_alive),
    )
    activity_ns = folder.activity_ns
    age_s = None if activity_ns is None else (moment.monotonic_ns - activity_ns) / _NS_PER_S
    row = EpochRow(
        user=folder.user,
        namespace=folder.namespace,
        stream_id=folder.stream_id,
        epoch=folder.epoch,
        state=verdict.state,
        bytes=folder.size_bytes,
        allocated_bytes=folder.allocated_bytes,
        slots=None if superblock is None else superblock.nslots,
        pools=len(folder.pools),
        pid=pid,
        pid_alive=pid_alive,
        activity_age_s=None if age_s is None else round(age_s, 3),
        newest=is_newest,
        leases=served.leases.get((folder.stream_id, folder.epoch), 0) if served.answered else None,
        reason=verdict.reason,
        path=folder.path,
    )
    return Surveyed(folder, verdict, row)


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
