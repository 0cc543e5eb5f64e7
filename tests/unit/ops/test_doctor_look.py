"""The doctor's eyes: what it reads from /proc and /sys, of which a test can write its own."""

from pathlib import Path

import pytest

from bridge_configs import CONTROL, GROUP, bridge, config_of
from tensor_pool.bridging.config import BridgeMapping
from tensor_pool.config import load_config
from tensor_pool.ops.doctor import look, look_services
from tensor_pool.ops.doctor.look_bridge import local_networks, missing_places, read_bridge
from tensor_pool.ops.doctor.look_services import find_leftovers, find_tethered
from tensor_pool.ops.doctor.machine import Machine
from tensor_pool.transport import CounterReading

MOUNTS = """overlay / overlay rw,relatime 0 0
tmpfs /dev/shm tmpfs rw,size=65536k 0 0
tmpfs /mnt/my\\040memory tmpfs ro 0 0
none /dev/hugepages hugetlbfs rw,pagesize=2M 0 0
short line
"""


def write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


@pytest.mark.parametrize(
    ("path", "kind", "option"),
    [
        ("/dev/shm", "tmpfs", "size=65536k"),
        ("/dev/shm/tensorpool-x", "tmpfs", "size=65536k"),
        ("/dev/shmem", "overlay", "relatime"),
        ("/mnt/my memory/x", "tmpfs", "ro"),
    ],
)
def test_the_longest_mount_wins(path: str, kind: str, option: str) -> None:
    place, file_system, options = look.mount_of(path, MOUNTS)

    assert path.startswith(place)
    assert file_system == kind
    assert option in options


def test_of_two_mounts_at_one_place_the_last_holds() -> None:
    assert look.mount_of("/dev/shm", MOUNTS + "tmpfs /dev/shm tmpfs ro 0 0") == (
        "/dev/shm",
        "tmpfs",
        ("ro",),
    )


def test_no_mounts_are_unknown() -> None:
    assert look.mount_of("/dev/shm", "") == ("", "unknown", ())


def test_hugepages(tmp_path: Path) -> None:
    write(tmp_path, "proc/meminfo", "HugePages_Total:  16\nHugePages_Free:  4\nHugepagesize:  2048 kB\nbad\n")
    write(tmp_path, "proc/self/mounts", MOUNTS)
    found = look.read_hugepages(tmp_path)

    assert (found.configured, found.free, found.page_bytes) == (16, 4, 2 << 20)
    assert found.mounts == ("/dev/hugepages",)


def test_clocks(tmp_path: Path) -> None:
    write(tmp_path, "proc/self/timens_offsets", "monotonic      -5       250\nboottime    0    0\n")
    write(tmp_path, "sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n")
    found = look.read_clocks(tmp_path)

    assert (found.source, found.monotonic_offset_ns) == ("hpet", -5_000_000_000 + 250)


def test_namespaces(tmp_path: Path) -> None:
    directory = tmp_path / "proc/self/ns"
    directory.mkdir(parents=True)
    (directory / "user").symlink_to("user:[4026531837]")
    (directory / "pid").symlink_to("pid:[4026532517]")
    found = look.read_namespaces(tmp_path)

    assert (found.user, found.pid, found.time) == (False, True, False)


@pytest.mark.parametrize(
    ("text", "quota"), [("50000 100000", 0.5), ("max 100000", None), ("5 0", None), ("", None)]
)
def test_a_containers_share_of_processors(tmp_path: Path, text: str, quota: float | None) -> None:
    write(tmp_path, "sys/fs/cgroup/cpu.max", text)
    write(tmp_path, "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n")
    found = look.read_cpus(tmp_path)

    assert (found.quota, found.governor) == (quota, "powersave")


def test_what_can_not_be_read_is_left_open(tmp_path: Path) -> None:
    assert look.read_limits(tmp_path).max_map_count is None
    assert look.read_clocks(tmp_path).source is None
    assert look.read_hugepages(tmp_path).configured == 0
    assert look.read_shared_memory(str(tmp_path / "none")).exists is False


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = look.read_shared_memory(str(tmp_path / "file"))

    assert (found.exists, found.is_directory) == (True, False)


def reading(type_id: int, label: str) -> CounterReading:
    return CounterReading(50, type_id, 0, 1, 7, b"", label)


@pytest.mark.parametrize(
    ("type_id", "label", "found"),
    [
        (4, "sub-pos: 3 -14 1000 aeron:ipc?term-length=4m @0", ["subscription of client 7 to stream 1000"]),
        (4, "sub-pos: 3 -14 1000 aeron:ipc?tether=false @0", []),
        (4, "sub-pos: 3 -14 2000 aeron:ipc @0", []),
        (4, "sub-pos: 3 -14 1000 aeron:udp?endpoint=127.0.0.1:4000 @0", []),
        (12, "pub-pos (exclusive): 2 -14 1000 aeron:ipc", ["publication of client 7 on stream 1000"]),
        (12, "pub-pos (exclusive): 2 -14 1000 aeron:ipc?untethered-window-limit-timeout=50ms", []),
        (12, "aeron:ipc", []),
        (12, "pub-pos: 2 -14 1000 aeron:ipc?strange", []),
        (0, "Errors", []),
    ],
)
def test_who_can_hold_back_others(type_id: int, label: str, found: list[str]) -> None:
    assert find_tethered([reading(type_id, label)], {1000, 1100}) == found


def test_leftovers_of_embedded_pools_are_found_wherever_files_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[Path] = []
    monkeypatch.setattr(look_services, "find_leftovers", lambda base, besides: looked_at.append(base) or [])
    config = load_config(environ={}, search=False, overrides={"shm.shm_base_dir": str(tmp_path)})
    look_services.add_services(Machine(), config.replace({"aeron.dir": "/nonexistent"}))
    assert sorted(looked_at) == [Path("/dev/shm"), tmp_path]
    looked_at.clear()
    config = load_config(environ={}, search=False, overrides={"aeron.dir": "/nonexistent"})
    look_services.add_services(Machine(), config)
    assert looked_at == [Path("/dev/shm")], "once"


def test_leftovers_are_looked_for_without_following_links(tmp_path: Path) -> None:
    (tmp_path / "aeron-x").mkdir()
    (tmp_path / "aeron-x" / "cnc.dat").write_bytes(bytes(64))
    (tmp_path / "link").symlink_to(tmp_path / "aeron-x")
    (tmp_path / "other").mkdir()

    assert find_leftovers(tmp_path, besides="") == [], "a file that is no media driver's is not judged"
    assert find_leftovers(tmp_path / "missing", besides="") == []


FIB_TRIE = """Main:
     +-- 127.0.0.0/8 2 0 2
           |-- 127.0.0.0
              /8 host LOCAL
           |-- 127.0.0.1
              /32 host LOCAL
        |-- 127.255.255.255
           /32 link BROADCAST
           |-- 10.0.0.0
              /24 link UNICAST
           |-- 10.0.0.2
              /32 host LOCAL
Local:
           |-- 10.0.0.2
              /32 host LOCAL
"""
IF_INET6 = "fd000000000000000000000000000002 04 40 00 82     eth0\n"


class TestBridge:
    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        write(tmp_path, "proc/net/fib_trie", FIB_TRIE)
        write(tmp_path, "proc/net/if_inet6", IF_INET6)
        write(tmp_path, "sys/class/net/eth0/mtu", "1500")
        return tmp_path

    def test_addresses(self, root: Path) -> None:
        assert list(map(str, local_networks(root))) == [
            "127.0.0.0/8", "127.0.0.1/32", "10.0.0.2/32", "fd00::2/128",
        ]  # fmt: skip
        assert local_networks(root / "none") == []

    @pytest.mark.parametrize(
        ("role", "channel", "missing"),
        [
            ("receiver", "endpoint=10.0.0.2:4000", []),
            ("receiver", "endpoint=10.0.0.3:4000", ["endpoint=10.0.0.3:4000"]),
            ("sender", "endpoint=10.0.0.3:4000", []),
            ("receiver", "endpoint=localhost:4000", []),
            ("receiver", "endpoint=127.0.5.1:4000", []),
            ("receiver", "endpoint=0.0.0.0:4000", []),
            ("receiver", "endpoint=[fd00::2]:4000", []),
            ("receiver", "endpoint=[fd00::3]:4000", ["endpoint=[fd00::3]:4000"]),
            ("receiver", "endpoint=camera-host:4000", []),
            ("both", "endpoint=224.0.1.1:4000|interface=10.0.0.0/24", []),
            ("both", "endpoint=224.0.1.1:4000|interface=10.0.0.2", []),
            ("both", "endpoint=224.0.1.1:4000|interface=10.0.1.0/24", ["interface=10.0.1.0/24"]),
            ("sender", "endpoint=10.0.0.3:4000|interface=10.0.1.7", ["interface=10.0.1.7"]),
        ],
    )
    def test_what_channels_name(self, root: Path, role: str, channel: str, missing: list[str]) -> None:
        config = config_of(role=role, payload_channel=f"aeron:udp?{channel}", control_channel=CONTROL)
        found = read_bridge(config, root)

        assert found.mappings == ("10000->50000",)
        assert list(found.missing) == missing

    def test_devices_by_name(self, root: Path) -> None:
        routes = bridge(payload_channel=f"{GROUP.partition('|')[0]}|interface={{eth0}}").resolved_mappings
        networks = local_networks(root)

        assert missing_places(routes, networks, {"eth0", "lo"}) == []
        assert missing_places(routes, networks, {"lo"}) == ["interface={eth0}"]
        assert missing_places(routes, [], set()) == [], "nothing is known"

    def test_what_contradicts_itself_is_told_with_its_hint(self, root: Path) -> None:
        found = read_bridge(
            config_of(BridgeMapping(10_000, 1001), driver__stream_id_range="20000-20010"), root
        )

        assert found.refusal is not None
        assert found.hint
        assert found.missing == ()

    def test_without_mappings_there_is_nothing_to_see(self, root: Path) -> None:
        assert read_bridge(load_config(environ={}, search=False), root).mappings == ()
