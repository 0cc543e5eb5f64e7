"""Checks of what runs on a machine: the media driver, what dead ones left, the SHM driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tensor_pool.ops.doctor.finding import counted, fine, human_bytes, problem, warning
from tensor_pool.transport.aeron_dir import SHARE_HINT

if TYPE_CHECKING:
    from tensor_pool.ops.doctor.finding import Finding
    from tensor_pool.ops.doctor.machine import Driver, Machine

__all__ = [
    "check_driver",
    "check_leftovers",
    "check_media_driver",
    "check_media_timer",
    "check_media_version",
    "check_tethers",
]

_LITTLE_ROOM: Final = 64 << 20
_SLOW_ANSWER_MS: Final = 500
_SHOWN: Final = 3


def check_media_driver(machine: Machine) -> Finding:
    """Is there one, and does it live?"""
    aeron, name = machine.aeron, "media driver"
    if aeron.is_somebody_elses:
        return problem(name, f"this user may not use the one at {aeron.directory}", SHARE_HINT)
    if not aeron.found:
        return warning(
            name,
            f"none at {aeron.directory}",
            "`tpool up` starts everything, `tpool media run` only a media driver",
        )
    if aeron.alive:
        return fine(name, f"process {aeron.pid} at {aeron.directory}")
    silence = "" if aeron.heartbeat_age_s is None else f", silent for {aeron.heartbeat_age_s:.0f} s"
    if aeron.process_exists and aeron.heartbeat_age_s is not None:
        return problem(
            name,
            f"process {aeron.pid} at {aeron.directory} exists but shows no life{silence}",
            f"look at it (ps -o stat= -p {aeron.pid}: T is stopped, D waits for a device), then restart it",
        )
    return warning(
        name,
        f"dead at {aeron.directory}{silence}",
        "`tpool up` or `tpool media run` starts a new one and replaces what it left",
    )


def check_media_version(machine: Machine) -> Finding | None:
    """Client and media driver should be of one minor version."""
    theirs, ours, name = machine.aeron.version, machine.versions.aeron, "media driver version"
    if not machine.aeron.alive or theirs is None or ours is None:
        return None
    if theirs.split(".")[:2] != ours.split(".")[:2]:
        return warning(
            name,
            f"{theirs}; the client that is built in here has {ours}",
            "run `tpool media run`, or a media driver of a near version",
        )
    return fine(name, theirs)


def check_media_timer(machine: Machine) -> Finding | None:
    """With a coarse timer, one stuck process silences the others until it ticks."""
    aeron, name = machine.aeron, "media driver timer"
    if not aeron.alive or aeron.timer_interval_ms is None:
        return None
    found = f"ticks about every {aeron.timer_interval_ms:.0f} ms"
    if aeron.timer_interval_ms >= aeron.shortest_timeout_ms:
        return warning(
            name,
            f"{found}; time-outs of {aeron.shortest_timeout_ms:g} ms can't be kept",
            "start it as `tpool media run` does, or set AERON_TIMER_INTERVAL=20ms "
            "(aeron.timer.interval for the Java media driver)",
        )
    return fine(name, found)


def check_tethers(machine: Machine) -> Finding | None:
    """Ends of streams that let a stuck process hold back everybody."""
    aeron, name = machine.aeron, "flow control"
    if not aeron.alive:
        return None
    if aeron.tethered:
        shown = "; ".join(aeron.tethered[:_SHOWN])
        more = f"; and {len(aeron.tethered) - _SHOWN} more" if len(aeron.tethered) > _SHOWN else ""
        return warning(
            name,
            f"can hold back others when stuck: {shown}{more}",
            "give subscriptions of other programs tether=false, and publications "
            "untethered-window-limit-timeout=50ms",
        )
    return fine(name, "nobody on our streams can hold back others")


def check_leftovers(machine: Machine) -> Finding:
    """Directories of media drivers that were killed keep their memory."""
    leftovers, name = machine.aeron.leftovers, "leftovers"
    if not leftovers:
        return fine(name, "no dead media driver's directory")
    paths = [path for path, _ in leftovers]
    total = human_bytes(sum(size for _, size in leftovers))
    dots = " ..." if len(paths) > _SHOWN else ""
    whose = "dead media driver's directory" if len(paths) == 1 else "dead media drivers' directories"
    return warning(
        name,
        f"{len(paths)} {whose} with {total}: {' '.join(paths[:_SHOWN])}{dots}",
        f"if nobody of yours needs them: rm -r {' '.join(paths[:_SHOWN])}{dots}",
    )


def check_driver(machine: Machine) -> Finding | None:
    """Does an SHM driver answer, and is it well?"""
    driver, name = machine.driver, "SHM driver"
    if not driver.asked:
        return None
    if driver.refusal is not None:
        return problem(name, driver.refusal, "look into its log; `tpool driver status` asks again")
    if driver.answer_ms is None:
        return warning(
            name,
            "none answers on the control stream",
            "`tpool driver run` starts one; drivers of other makers don't answer this question",
        )
    return _health(driver, driver.answer_ms)


def _health(driver: Driver, answer_ms: float) -> Finding:
    name = "SHM driver"
    found = (
        f"process {driver.pid}, {driver.version or 'unknown version'}, {counted(driver.streams, 'stream')}"
    )
    if driver.state != "RUNNING":
        return warning(name, f"{found}, {driver.state}", "wait until it runs; it takes no new clients now")
    if driver.free_bytes is not None and driver.free_bytes < _LITTLE_ROOM:
        return problem(
            name,
            f"{found}; only {human_bytes(driver.free_bytes)} left for regions",
            "`tpool shm gc` removes stale epochs; larger shared memory takes more streams",
        )
    if answer_ms > _SLOW_ANSWER_MS:
        return warning(
            name,
            f"{found}; took {answer_ms:.0f} ms to answer",
            "the machine or the driver is overloaded: `tpool counters` shows its cycle times",
        )
    return fine(name, found)
