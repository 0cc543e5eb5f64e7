"""The doctor's judgement: every sick machine that a check knows, and the healthy one."""

import msgspec
import pytest

from tensor_pool.ops.cli.doctor import print_advice
from tensor_pool.ops.doctor import CHECKS, examine
from tensor_pool.ops.doctor.finding import fine, human_bytes, warning
from tensor_pool.ops.doctor.machine import (
    Aeron,
    Bridge,
    Clocks,
    Cpus,
    Driver,
    Hugepages,
    Kernel,
    Limits,
    Machine,
    Namespaces,
    SharedMemory,
    Versions,
)

MIB = 1 << 20
ALIVE = Aeron(found=True, alive=True, pid=7, process_exists=True, version="1.54.0", timer_interval_ms=21)
SERVED = Driver(asked=True, answer_ms=3.0, pid=8, state="RUNNING", version="0.1.0", streams=2)
BRIDGED = Bridge(mappings=("10000->50000",))
HEALTHY = Machine(aeron=ALIVE, driver=SERVED, bridge=BRIDGED)

SICK = [
    # facts, the check that notices, how bad it is, a word of what to do
    ({"shared_memory": SharedMemory(exists=False)}, "shared memory", "problem", "mkdir"),
    ({"shared_memory": SharedMemory(is_directory=False)}, "shared memory", "problem", "shm_base_dir"),
    ({"shared_memory": SharedMemory(mount_options=("ro",))}, "shared memory", "problem", "remount"),
    ({"shared_memory": SharedMemory(writable=False)}, "shared memory", "problem", "permission"),
    (
        {"shared_memory": SharedMemory(total_bytes=64 * MIB, free_bytes=64 * MIB)},
        "shared memory size",
        "problem",
        "--shm-size",
    ),
    ({"shared_memory": SharedMemory(free_bytes=10 * MIB)}, "shared memory size", "problem", "tpool shm gc"),
    (
        {"shared_memory": SharedMemory(total_bytes=256 * MIB, free_bytes=256 * MIB)},
        "shared memory size",
        "warning",
        "remount,size=",
    ),
    ({"shared_memory": SharedMemory(file_system="ext4")}, "file system", "warning", "tmpfs"),
    ({"shared_memory": SharedMemory(mode=0o777)}, "directory mode", "warning", "chmod +t"),
    ({"limits": Limits(open_files=64)}, "open files", "problem", "ulimit -n"),
    ({"limits": Limits(open_files=512)}, "open files", "warning", "ulimit -n"),
    ({"limits": Limits(locked_bytes=64 << 10)}, "locked memory", "warning", "ulimit -l"),
    ({"limits": Limits(max_map_count=1000)}, "memory mappings", "warning", "vm.max_map_count"),
    ({"hugepages": Hugepages(configured=8, free=8)}, "huge pages", "warning", "mount -t hugetlbfs"),
    (
        {"hugepages": Hugepages(configured=8, free=0, mounts=("/dev/hugepages",))},
        "huge pages",
        "warning",
        "nr_hugepages",
    ),
    ({"clocks": Clocks(source="hpet")}, "clock source", "warning", "dmesg"),
    ({"clocks": Clocks(monotonic_offset_ns=10**9)}, "monotonic clock", "warning", "one time namespace"),
    ({"clocks": Clocks(synchronised=False)}, "real time", "warning", "chrony"),
    ({"kernel": Kernel(futex_waitv=False)}, "kernel", "warning", "5.16"),
    ({"kernel": Kernel(openat2=False)}, "kernel", "warning", "5.6"),
    ({"namespaces": Namespaces(pid=True)}, "namespaces", "warning", "same mount"),
    ({"namespaces": Namespaces(user=True, time=True)}, "namespaces", "warning", "same mount"),
    ({"cpus": Cpus(usable=1)}, "processors", "warning", "eco"),
    ({"cpus": Cpus(quota=0.5)}, "processors", "warning", "eco"),
    ({"cpus": Cpus(governor="powersave")}, "processors", "warning", "performance"),
    ({"versions": Versions(native_error="wrong ELF class")}, "versions", "problem", "pip install"),
    ({"versions": Versions(numpy="1.26.4")}, "versions", "problem", "numpy>=2.1"),
    ({"versions": Versions(numpy=None)}, "versions", "problem", "numpy>=2.1"),
    ({"versions": Versions(msgspec="0.19.0")}, "versions", "problem", "msgspec>=0.20"),
    ({"versions": Versions(python="3.10.2")}, "versions", "problem", "3.11"),
    ({"aeron": Aeron()}, "media driver", "warning", "tpool up"),
    ({"aeron": Aeron(found=True, pid=7, heartbeat_age_s=60.0)}, "media driver", "warning", "replaces"),
    (
        {"aeron": Aeron(found=True, pid=7, process_exists=True, heartbeat_age_s=60.0)},
        "media driver",
        "problem",
        "stopped",
    ),
    (
        {"aeron": msgspec.structs.replace(ALIVE, version="1.40.0")},
        "media driver version",
        "warning",
        "near version",
    ),
    (
        {"aeron": msgspec.structs.replace(ALIVE, timer_interval_ms=1000)},
        "media driver timer",
        "warning",
        "AERON_TIMER_INTERVAL=20ms",
    ),
    (
        {"aeron": msgspec.structs.replace(ALIVE, tethered=tuple(f"subscription {n}" for n in range(5)))},
        "flow control",
        "warning",
        "tether=false",
    ),
    (
        {"aeron": msgspec.structs.replace(ALIVE, leftovers=(("/dev/shm/aeron-x", 12 * MIB),))},
        "leftovers",
        "warning",
        "rm -r /dev/shm/aeron-x",
    ),
    ({"aeron": Aeron(is_somebody_elses=True)}, "media driver", "problem", "umask 007"),
    ({"driver": Driver(asked=True)}, "SHM driver", "warning", "tpool driver run"),
    ({"driver": Driver(asked=True, refusal="INTERNAL_ERROR: x")}, "SHM driver", "problem", "log"),
    ({"driver": msgspec.structs.replace(SERVED, state="DRAINING")}, "SHM driver", "warning", "wait"),
    ({"driver": msgspec.structs.replace(SERVED, free_bytes=MIB)}, "SHM driver", "problem", "shm gc"),
    ({"driver": msgspec.structs.replace(SERVED, answer_ms=900.0)}, "SHM driver", "warning", "overloaded"),
    (
        {"limits": Limits(receive_buffer_bytes=212_992)},
        "socket buffers",
        "warning",
        "sysctl -w net.core.rmem_max=4194304",
    ),
    (
        {"limits": Limits(receive_buffer_bytes=212_992, send_buffer_bytes=212_992)},
        "socket buffers",
        "warning",
        "sysctl -w net.core.rmem_max=4194304 net.core.wmem_max=4194304",
    ),
    (
        {"bridge": msgspec.structs.replace(BRIDGED, refusal="ids collide", hint="take others")},
        "bridge",
        "problem",
        "take others",
    ),
    (
        {"bridge": msgspec.structs.replace(BRIDGED, missing=("interface=10.0.0.0/24",))},
        "bridge addresses",
        "problem",
        "ip -brief address",
    ),
]


@pytest.mark.parametrize(("facts", "check", "status", "advice"), SICK)
def test_a_sickness_is_noticed_by_one_check_with_advice(
    facts: dict[str, object], check: str, status: str, advice: str
) -> None:
    machine = msgspec.structs.replace(HEALTHY, **facts)
    found = [finding for finding in examine(machine) if finding.status != "ok"]

    assert [(finding.check, finding.status) for finding in found] == [(check, status)]
    assert found[0].advice is not None
    assert advice in found[0].advice


def test_every_check_can_fail() -> None:
    noticed = {check for _, check, _, _ in SICK}

    assert noticed == {finding.check for finding in examine(HEALTHY)}
    assert len(CHECKS) == len(noticed)


def test_a_healthy_machine_is_fine() -> None:
    findings = examine(HEALTHY)

    assert {finding.status for finding in findings} == {"ok"}
    assert len({finding.check for finding in findings}) == len(findings) == len(CHECKS)


def test_without_a_media_driver_what_it_would_tell_is_left_out() -> None:
    checks = {finding.check for finding in examine(Machine())}

    assert not checks & {"media driver version", "media driver timer", "flow control", "SHM driver"}


def test_without_mappings_nothing_is_said_of_a_bridge() -> None:
    checks = {finding.check for finding in examine(Machine())}

    assert not checks & {"bridge", "bridge addresses"}
    assert "socket buffers" in checks


def test_a_missing_directory_is_said_once() -> None:
    missing = Machine(shared_memory=SharedMemory(exists=False, total_bytes=0, free_bytes=0))

    assert [finding.check for finding in examine(missing) if finding.status == "problem"] == ["shared memory"]


@pytest.mark.parametrize("driver", [Aeron(found=True, pid=7, process_exists=True, heartbeat_age_s=None)])
def test_a_clean_end_whose_pid_is_used_again_is_no_problem(driver: Aeron) -> None:
    (found,) = (f for f in examine(Machine(aeron=driver)) if f.check == "media driver")

    assert found.status == "warning"


def test_unknown_facts_are_no_problem() -> None:
    vague = msgspec.structs.replace(
        HEALTHY,
        limits=Limits(
            open_files=None,
            locked_bytes=None,
            max_map_count=None,
            receive_buffer_bytes=None,
            send_buffer_bytes=None,
        ),
        clocks=Clocks(source=None, synchronised=None, max_error_ms=None),
        kernel=Kernel(openat2=None, futex_waitv=None),
        cpus=Cpus(governor=None),
        aeron=msgspec.structs.replace(ALIVE, version=None, timer_interval_ms=None),
    )

    assert {finding.status for finding in examine(vague)} == {"ok"}


@pytest.mark.parametrize(
    ("option", "has_tip"),
    [("rw", True), ("huge=advise", True), ("huge=within_size", False), ("huge=always", False)],
)
def test_transparent_huge_pages_are_a_matter_of_the_mount(option: str, *, has_tip: bool) -> None:
    memory = SharedMemory(path="/dev/shm/lab", mount_options=("rw", option))
    machine = msgspec.structs.replace(HEALTHY, shared_memory=memory)
    (found,) = [each for each in examine(machine) if each.check == "huge pages"]

    assert found.status == "ok"
    assert found.advice == (
        "for large frames: mount -o remount,huge=within_size /dev/shm" if has_tip else None
    )


def test_nothing_is_said_of_the_mount_of_a_directory_that_is_not_there() -> None:
    machine = msgspec.structs.replace(HEALTHY, shared_memory=SharedMemory(path="/nowhere", exists=False))
    (found,) = [each for each in examine(machine) if each.check == "huge pages"]

    assert (found.found, found.advice) == ("none configured", None)


def test_a_file_system_of_huge_pages_is_as_large_as_their_number() -> None:
    unlimited = SharedMemory(file_system="hugetlbfs", total_bytes=0, free_bytes=0, mode=0o700)
    pages = Hugepages(configured=8, free=8, mounts=("/dev/hugepages",))
    machine = msgspec.structs.replace(HEALTHY, shared_memory=unlimited, hugepages=pages)
    findings = {finding.check: finding for finding in examine(machine)}
    assert "shared memory size" not in findings
    assert {finding.status for finding in findings.values()} == {"ok"}


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 bytes"), (1023, "1023 bytes"), (1024, "1 KiB"), (5 << 40, "5 TiB")]
)
def test_sizes_for_people(count: int, text: str) -> None:
    assert human_bytes(count) == text


def test_what_could_be_better_stands_below_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    print_advice(
        [
            fine("memory", "enough"),
            fine("pages", "small", "take large ones"),
            warning("clock", "slow", "wind it"),
        ]
    )

    assert capsys.readouterr().out.splitlines()[1:] == [
        "warning: clock: slow",
        "  try: wind it",
        "",
        "tip: pages: take large ones",
        "",
        "0 problems, 1 warning",
    ]
