"""What contradicts itself in a bridge's configuration is refused at the start, with the ids and numbers."""

from __future__ import annotations

import itertools
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from tensor_pool.bridging.mapping import LAST_STREAM_ID, ChannelStream, check_bridge_channel
from tensor_pool.errors import ChannelError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tensor_pool.bridging.config import BridgeSection
    from tensor_pool.bridging.mapping import ResolvedMapping
    from tensor_pool.config import StreamsSection
    from tensor_pool.driver.config import DriverSection

__all__ = [
    "check_beside_driver",
    "check_beside_streams",
    "check_found_destination",
    "check_mappings",
    "check_options",
]

_APART = "use ids apart"


def check_options(section: BridgeSection) -> None:
    """Compares the keys of the bridge with each other.

    Raises:
        ConfigError: Two of them don't go together.
    """
    if section.checksums and section.dialect != "newer":
        raise ConfigError(
            f"checksums with the dialect {section.dialect!r}, whose chunks have no room for them",
            hint="set dialect = 'newer', or leave checksums out",
        )
    if section.on_conflict == "move" and section.dest_ids is None:
        raise ConfigError(
            "on_conflict 'move' without a dest_stream_id_range to move to",
            hint="set dest_stream_id_range, for instance to 50000-59999",
        )


def check_mappings(section: BridgeSection) -> None:
    """Compares the mappings with each other and with the bridge.

    Raises:
        ConfigError: They mix up streams, lead in a circle, or ask for what the rest does not allow.
    """
    _check_values(section)
    mappings = section.resolved_mappings
    _check_forwarding(section, mappings)
    _check_destinations(section, mappings)
    _check_limits(section, mappings)
    _check_purposes(mappings)
    _check_loops(mappings)
    _check_sources(mappings)
    _check_same_destination(mappings)
    _check_range(section, mappings)


def check_beside_streams(section: BridgeSection, streams: StreamsSection) -> None:
    """Compares with the ids and channels of the pool's own messages.

    Raises:
        ConfigError: A destination has one of these ids, or the bridge talks where the pool talks.
    """
    reserved = {key: getattr(streams, key) for key in streams.__struct_fields__ if key.endswith("_stream_id")}
    for key, stream_id in reserved.items():
        _check_not_in_range(section, stream_id, f"streams.{key}")
    mappings = section.resolved_mappings
    for mapping, (key, stream_id) in itertools.product(mappings, reserved.items()):
        if mapping.dest_stream_id == stream_id:
            raise ConfigError(
                f"mapping {mapping}: the destination {stream_id} is streams.{key}",
                hint="choose another dest_stream_id, for instance from 50000 to 59999",
            )
    # Else the driver's own messages would reach other hosts [BRG-3-4].
    taken = {
        ChannelStream(getattr(streams, key.replace("_stream_id", "_channel")), stream_id).place: key
        for key, stream_id in reserved.items()
    }
    for mapping, (purpose, stream) in ((m, used) for m in mappings for used in _streams_of(m)):
        if stream.place in taken:
            raise ConfigError(
                f"mapping {mapping}: {purpose} goes over {stream.channel} stream {stream.stream_id}, "
                f"which is streams.{taken[stream.place]}",
                hint="use another port or stream id",
            )


def check_beside_driver(section: BridgeSection, driver: DriverSection) -> None:
    """Compares with the streams and ranges of this host's driver (decision D1).

    Raises:
        ConfigError: Ids that the driver gives away could become those of the bridge, or a profile is missing.
    """
    ids = section.dest_ids
    for name, other in driver.ranges.items():
        if ids is not None and ids.overlaps(other):
            raise ConfigError(f"dest_stream_id_range {ids} and driver.{name} {other} overlap", hint=_APART)
    for stream in driver.streams:
        _check_not_in_range(section, stream.id, "a stream of driver.streams")
    for mapping in section.resolved_mappings:
        if not mapping.receives:
            continue  # its destination is another host's
        for name in ("descriptor_stream_id_range", "control_stream_id_range"):
            private = driver.ranges.get(name)
            if private is not None and mapping.dest_stream_id in private:
                raise ConfigError(
                    f"mapping {mapping}: the destination {mapping.dest_stream_id} is in driver.{name} "
                    f"{private}",
                    hint=_APART,
                )
        profile = mapping.mapping.profile
        if profile and profile not in driver.profiles:
            raise ConfigError(
                f"mapping {mapping} has the profile {profile!r}, which is not defined",
                hint=f"write [driver.profiles.{profile}]",
            )


def _check_values(section: BridgeSection) -> None:
    """What a file's reader has looked at already, and a program may still get wrong."""
    for owner in (section, *section.mappings):
        said = "" if owner is section else f"mapping {owner}: "
        for name in ("payload_channel", "control_channel", "metadata_channel"):
            try:
                check_bridge_channel(getattr(owner, name))
            except ChannelError as e:
                raise ConfigError(f"{said}{name}: {e.message}", hint=e.hint) from None
    for mapping in section.mappings:
        ids = {"source_stream_id": 1, "dest_stream_id": 0, "metadata_stream_id": 0}
        for name, least in ids.items():
            value = getattr(mapping, name)
            if not least <= value <= LAST_STREAM_ID:
                raise ConfigError(
                    f"mapping {mapping}: {name} {value} is not within {least} to {LAST_STREAM_ID}",
                    hint="ids of streams are whole numbers of 32 bits without a sign",
                )


def _check_forwarding(section: BridgeSection, mappings: Iterable[ResolvedMapping]) -> None:
    switches = [name for name in ("forward_qos", "forward_progress") if getattr(section, name)]
    for mapping in mappings:
        if section.forward_metadata is True and mapping.metadata is None:
            raise ConfigError(
                f"forward_metadata is true, and mapping {mapping} has no metadata_channel",
                hint="set bridge.metadata_channel, or leave forward_metadata out",
            )
        source, dest = mapping.mapping.source_control_stream_id, mapping.mapping.dest_control_stream_id
        if switches and not (source and dest):
            raise ConfigError(
                f"{switches[0]} is true, and mapping {mapping} has source_control_stream_id {source} and "
                f"dest_control_stream_id {dest}",
                hint="set both, for instance to the control stream ids of the two hosts",
            )


def _check_destinations(section: BridgeSection, mappings: Iterable[ResolvedMapping]) -> None:
    own = {
        key: getattr(section, key) for key in ("payload_stream_id", "control_stream_id", "metadata_stream_id")
    }
    unnamed = 0
    names: dict[str, ResolvedMapping] = {}
    for mapping in mappings:
        if not mapping.dest_stream_id and section.wire_stream_id == "dest":
            raise ConfigError(
                f"wire_stream_id 'dest', and mapping {mapping} has no dest_stream_id",
                hint="name the destination, or set wire_stream_id = 'source'",
            )
        for key, stream_id in own.items():
            if mapping.dest_stream_id == stream_id:
                raise ConfigError(
                    f"mapping {mapping}: the destination {stream_id} is the bridge's {key}", hint=_APART
                )
        if not mapping.receives:
            continue
        name = mapping.mapping.name
        if name and name in names:
            raise ConfigError(
                f"mappings {names[name]} and {mapping} are both called {name!r}", hint="rename one"
            )
        names[name] = mapping
        if not mapping.dest_stream_id:
            unnamed += 1
            if section.dest_ids is None and not name:
                raise ConfigError(
                    f"mapping {mapping} has no dest_stream_id and no name, "
                    "and there is no dest_stream_id_range",
                    hint="give it a name or an id, or set dest_stream_id_range, such as 50000-59999",
                )
    if section.dest_ids is not None and unnamed > len(section.dest_ids):
        raise ConfigError(
            f"{unnamed} mappings want an id of dest_stream_id_range {section.dest_ids}, which has "
            f"{len(section.dest_ids)}",
            hint="use a larger range",
        )


def _check_limits(section: BridgeSection, mappings: Iterable[ResolvedMapping]) -> None:
    if section.max_payload_bytes > section.max_inflight_bytes and any(m.receives for m in mappings):
        raise ConfigError(
            f"max_payload_bytes {section.max_payload_bytes} is more than max_inflight_bytes "
            f"{section.max_inflight_bytes}: one such frame alone would be beyond it",
            hint="raise max_inflight_bytes, or lower max_payload_bytes",
        )


def _streams_of(mapping: ResolvedMapping) -> Iterator[tuple[str, ChannelStream]]:
    yield "payload", mapping.payload
    yield "control", mapping.control
    if mapping.metadata is not None:
        yield "metadata", mapping.metadata


def _check_purposes(mappings: Iterable[ResolvedMapping]) -> None:
    """One Aeron stream carries one purpose: payload, control or metadata [BRG-2.3-4]."""
    seen: dict[tuple[str, str, str, str, int], tuple[str, ResolvedMapping]] = {}
    for mapping in mappings:
        for purpose, stream in _streams_of(mapping):
            earlier, owner = seen.setdefault(stream.place, (purpose, mapping))
            if earlier != purpose:
                raise ConfigError(
                    f"{earlier} of mapping {owner} and {purpose} of mapping {mapping} share {stream.channel} "
                    f"stream {stream.stream_id}",
                    hint="give them different stream ids or ports",
                )


def _pairs(
    mappings: Iterable[ResolvedMapping], key: Callable[[ResolvedMapping], int]
) -> Iterator[tuple[ResolvedMapping, ResolvedMapping]]:
    """Every two mappings with the same key that is not 0."""
    groups = defaultdict(list)
    for mapping in mappings:
        if key(mapping):
            groups[key(mapping)].append(mapping)
    for group in groups.values():
        yield from itertools.combinations(group, 2)


def _check_sources(mappings: Iterable[ResolvedMapping]) -> None:
    """Whoever hears a stream id must know whose it is [BRG-2.3-2, BRG-2.3-4]."""
    for one, other in _pairs(mappings, lambda mapping: mapping.source_stream_id):
        theirs = dict(_streams_of(other))
        for purpose, stream in _streams_of(one):
            # Announces and metadata of one and the same local stream may go out twice.
            harmless = purpose != "payload" and one.sends and other.sends
            if purpose in theirs and stream.place == theirs[purpose].place and not harmless:
                raise ConfigError(
                    f"mappings {one} and {other} have the source {one.source_stream_id} both, and share "
                    f"{stream.channel} stream {stream.stream_id} for {purpose}",
                    hint="remove one, or give one of them a channel of its own",
                )


def _check_same_destination(mappings: Iterable[ResolvedMapping]) -> None:
    for one, other in _pairs(mappings, lambda mapping: mapping.dest_stream_id):
        two_hosts = not one.receives and not other.receives and one.payload.place != other.payload.place
        if not two_hosts:
            raise ConfigError(
                f"mappings {one} and {other} have the destination {one.dest_stream_id} both",
                hint="give each its own dest_stream_id",
            )
    kept = [mapping for mapping in mappings if mapping.receives and mapping.forwards_metadata]
    for one, other in _pairs(kept, lambda mapping: mapping.metadata_stream_id):
        raise ConfigError(
            f"mappings {one} and {other} republish metadata of the stream {one.metadata_stream_id} both",
            hint="give each its own metadata_stream_id",
        )


def _check_loops(mappings: Iterable[ResolvedMapping]) -> None:
    """Refuses mappings that lead a stream back to itself [BRG-2.3-3].

    Ids are compared whatever host they are on: a configuration can't tell which of its peers is which.
    """
    flow: TopologicalSorter[int] = TopologicalSorter()
    for mapping in mappings:
        # The same id on two hosts is two streams; on one host it is the stream itself.
        if mapping.dest_stream_id != mapping.source_stream_id or mapping.role == "both":
            flow.add(mapping.dest_stream_id, mapping.source_stream_id)
    try:
        flow.prepare()
    except CycleError as e:
        chain = " -> ".join(map(str, e.args[1]))
        raise ConfigError(
            f"the mappings lead a stream back to itself: {chain}",
            hint="give a destination an id that is the source of no other mapping",
        ) from None


def check_found_destination(mappings: Iterable[ResolvedMapping], found: ResolvedMapping) -> None:
    """Looks for loops again when a destination, known by its name before, has an id.

    Args:
        mappings: All of this bridge.
        found: One of them, with the id of its destination.

    Raises:
        ConfigError: The stream would be led back to itself.
    """
    mappings = list(mappings)
    dest = found.dest_stream_id
    is_sent = any(each.sends and each.source_stream_id == dest for each in mappings)
    if dest == found.source_stream_id and is_sent:
        raise ConfigError(
            f"mapping {found}: the destination {found.mapping.name!r} is stream {dest} of this host, which "
            "this bridge sends itself: it would be led back to itself",
            hint="give the mapping another name, or the role of the one end that this host has",
        )
    _check_loops([found if each.mapping == found.mapping else each for each in mappings])


def _check_range(section: BridgeSection, mappings: Iterable[ResolvedMapping]) -> None:
    for key in ("payload_stream_id", "control_stream_id", "metadata_stream_id", "source_metadata_stream_id"):
        _check_not_in_range(section, getattr(section, key), f"bridge.{key}")
    for mapping in mappings:
        for key in (
            "dest_stream_id",
            "metadata_stream_id",
            "source_control_stream_id",
            "dest_control_stream_id",
        ):
            _check_not_in_range(section, getattr(mapping.mapping, key), f"{key} of mapping {mapping}")
        if mapping.sends:
            _check_not_in_range(section, mapping.source_stream_id, f"source_stream_id of mapping {mapping}")


def _check_not_in_range(section: BridgeSection, stream_id: int, owner: str) -> None:
    ids = section.dest_ids
    if ids is not None and stream_id in ids:
        raise ConfigError(
            f"dest_stream_id_range {ids} contains {stream_id}, {owner}",
            hint="choose a range that nothing else uses, for instance 50000-59999",
        )
