"""The schemas of the package: numbers, block lengths, and rules that all of them keep."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from tensor_pool.wire import SCHEMA_NAMES, compiled_layout, load_schema, message_layouts, message_types, shm
from tensor_pool.wire.schema import BlockLayout
from tensor_pool.wire.schema.compiler import __file__ as compiler_file
from tensor_pool.wire.schema.source import Element, parse_xml

FOLDER = Path(compiler_file).parent.parent / "schemas"


def elements(name: str) -> list[Element]:
    """Every element of a schema file."""
    found, left = [], [parse_xml((FOLDER / f"{name}.xml").read_bytes(), name)]
    while left:
        element = left.pop()
        found.append(element)
        left += element.children
    return found


def blocks(layout: BlockLayout) -> list[BlockLayout]:
    return [layout] + [inner for group in layout.groups for inner in blocks(group.entry)]


def test_every_file_is_used():
    assert sorted(path.stem for path in FOLDER.glob("*.xml")) == sorted(SCHEMA_NAMES)


@pytest.mark.parametrize(
    ("name", "schema_id", "package", "semantic_version"),
    [
        pytest.param("control", 900, "shm.tensorpool.control", "1.1", marks=pytest.mark.req("WIRE-16-1")),
        pytest.param("driver", 901, "shm.tensorpool.driver", "1.0", marks=pytest.mark.req("DRV-A-1")),
        pytest.param("bridge", 902, "shm.tensorpool.bridge", "1.0", marks=pytest.mark.req("BRG-11-1")),
        pytest.param("discovery", 910, "shm.tensorpool.discovery", "1.0", marks=pytest.mark.req("DSC-15-1")),
        ("join_barrier", 903, "shm.tensorpool.joinbarrier", "1.0"),
        ("trace", 904, "shm.tensorpool.tracelink", "1.0"),
        ("service_control", 905, "shm.tensorpool.event", "1.0"),
        ("admin", 906, "shm.tensorpool.admin", "1.0"),
    ],
)
def test_identity(name, schema_id, package, semantic_version):
    schema = load_schema(name)
    assert (schema.schema_id, schema.version) == (schema_id, 1)
    assert (schema.package, schema.semantic_version) == (package, semantic_version)


def test_dialects_share_the_numbers_of_what_they_vary():
    for name, base in (
        ("driver_newer", "driver"),
        ("bridge_newer", "bridge"),
        ("service_control_packed", "service_control"),
    ):
        variant, original = load_schema(name), load_schema(base)
        assert (variant.schema_id, variant.version) == (original.schema_id, original.version)
        for message, layout in variant.messages.items():
            assert layout.template_id == original.messages[message].template_id
            assert layout.block_length != original.messages[message].block_length


TABLE = {
    "control": {
        "ShmPoolAnnounce": (1, 35),
        "ConsumerHello": (2, 39),
        "ConsumerConfig": (3, 18),
        "FrameDescriptor": (4, 40),
        "QosConsumer": (5, 41),
        "QosProducer": (6, 28),
        "DataSourceAnnounce": (7, 20),
        "DataSourceMeta": (8, 16),
        "ControlResponse": (9, 12),
        "MetaBlobAnnounce": (10, 28),
        "FrameProgress": (11, 29),
        "MetaBlobChunk": (12, 16),
        "MetaBlobComplete": (13, 16),
        "ShmRegionSuperblock": (50, 64),
        "SlotHeader": (51, 60),
        "TensorHeader": (52, 184),
    },
    "driver": {
        "ShmAttachRequest": (1, 24),
        "ShmAttachResponse": (2, 51),
        "ShmDetachRequest": (3, 25),
        "ShmDetachResponse": (4, 12),
        "ShmLeaseKeepalive": (5, 25),
        "ShmDriverShutdown": (6, 9),
        "ShmLeaseRevoked": (7, 26),
        "ShmDriverShutdownRequest": (8, 9),
    },
    "driver_newer": {"ShmAttachRequest": (1, 27), "ShmAttachResponse": (2, 54)},
    "bridge": {"BridgeFrameChunk": (1, 41)},
    "bridge_newer": {"BridgeFrameChunk": (1, 53)},
    "join_barrier": {
        "SequenceMergeMapAnnounce": (1, 20),
        "SequenceMergeMapRequest": (2, 12),
        "TimestampMergeMapAnnounce": (3, 29),
        "TimestampMergeMapRequest": (4, 12),
    },
    "trace": {"TraceLinkSet": (1, 28)},
    "service_control": {"EventMessage": (1, 40)},
    "service_control_packed": {"EventMessage": (1, 38)},
    "admin": {
        "ResolveStream": (1, 74),
        "StreamResolved": (2, 30),
        "ListStreams": (3, 20),
        "StreamsListed": (4, 24),
        "ListLeases": (5, 24),
        "LeasesListed": (6, 24),
        "RevokeLease": (7, 24),
        "LeaseRevokeResult": (8, 24),
        "GetDriverStatus": (9, 12),
        "DriverStatus": (10, 89),
        "DriverAnnounce": (11, 16),
    },
    "discovery": {"DiscoveryRequest": (1, 32), "DiscoveryResponse": (2, 9)},
}


@pytest.mark.parametrize("name", SCHEMA_NAMES)
def test_templates_and_block_lengths(name):
    assert {
        message: (layout.template_id, layout.block_length)
        for message, layout in load_schema(name).messages.items()
    } == TABLE[name]


@pytest.mark.parametrize("name", SCHEMA_NAMES)
def test_blocks_have_no_slack(name):
    """Block lengths are written down in the files; they must be what the fields take."""
    for layout in load_schema(name).messages.values():
        for block in blocks(layout):
            ends = [field.offset + field.size for field in block.fields]
            assert max(ends, default=0) == block.block_length, block.name


def test_every_message_has_a_struct():
    in_shared_memory = {"ShmRegionSuperblock", "SlotHeader", "TensorHeader"}
    carried = {
        (layout.name, layout.block_length)
        for struct_type in message_types()
        for layout in message_layouts(struct_type)
    }
    defined = {
        (layout.name, layout.block_length)
        for name in SCHEMA_NAMES
        for layout in load_schema(name).messages.values()
        if layout.name not in in_shared_memory
    }
    assert carried == defined


@pytest.mark.req("WIRE-10.1-7")
@pytest.mark.parametrize("name", SCHEMA_NAMES)
def test_data_is_never_optional(name):
    data = [element for element in elements(name) if element.tag == "data"]
    assert all("presence" not in element.attributes for element in data)


@pytest.mark.req("WIRE-10.1-8", "DSC-5.0-4")
@pytest.mark.parametrize("name", SCHEMA_NAMES)
def test_data_comes_last(name):
    rank = {"field": 0, "group": 1, "data": 2}
    for element in elements(name):
        if element.tag in ("message", "group"):
            order = [rank[child.tag] for child in element.children]
            assert order == sorted(order), element.attributes["name"]


@pytest.mark.req("WIRE-10.1-9")
def test_ids_count_up_except_where_the_specifications_do_not():
    """The known deviations have no effect on bytes; a new one is a mistake of ours."""
    deviations = set()
    for name in SCHEMA_NAMES:
        for element in elements(name):
            if element.tag in ("message", "group"):
                ids = [int(child.attributes["id"]) for child in element.children]
                if ids != list(range(1, len(ids) + 1)):
                    deviations.add((name, element.attributes["name"]))
    assert deviations == {
        ("control", "ConsumerConfig"),
        ("driver", "ShmAttachResponse"),
        ("driver_newer", "ShmAttachResponse"),
        ("bridge_newer", "BridgeFrameChunk"),
        ("service_control", "EventMessage"),
        ("service_control_packed", "EventMessage"),
    }


@pytest.mark.req("WIRE-16-6", "DRV-A-3")
def test_sizes_of_named_types():
    def size(message: str, field: str) -> int:
        return next(f.size for f in compiled_layout(message).fields if f.name == field)

    assert size("FrameDescriptor", "epoch") == size("FrameDescriptor", "seq") == 8
    assert size("FrameDescriptor", "metaVersion") == size("ShmPoolAnnounce", "layoutVersion") == 4
    assert size("ShmLeaseKeepalive", "leaseId") == size("ShmAttachResponse", "epoch") == 8
    assert size("ShmAttachResponse", "layoutVersion") == 4


@pytest.mark.req("WIRE-8.2-1")
def test_max_dims_is_a_constant_without_bytes():
    layout = compiled_layout("TensorHeader")
    assert [(constant.name, constant.value) for constant in layout.constants] == [("maxDims", 8)]
    offsets = {field.name: field.offset for field in layout.fields}
    assert offsets["ndims"] == 4
    assert offsets["padAlign"] == 5


HOT_OFFSETS = {
    ("FrameDescriptor", 40): {
        "streamId": (0, 4),
        "epoch": (4, 8),
        "seq": (12, 8),
        "timestampNs": (20, 8),
        "metaVersion": (28, 4),
        "traceId": (32, 8),
    },
    ("FrameProgress", 29): {
        "streamId": (0, 4),
        "epoch": (4, 8),
        "seq": (12, 8),
        "payloadBytesFilled": (20, 8),
        "state": (28, 1),
    },
    ("BridgeFrameChunk", 41): {
        "streamId": (0, 4),
        "epoch": (4, 8),
        "seq": (12, 8),
        "chunkIndex": (20, 4),
        "chunkCount": (24, 4),
        "chunkOffset": (28, 4),
        "chunkLength": (32, 4),
        "payloadLength": (36, 4),
        "headerIncluded": (40, 1),
    },
    ("BridgeFrameChunk", 53): {
        "streamId": (0, 4),
        "epoch": (4, 8),
        "seq": (12, 8),
        "traceId": (20, 8),
        "chunkIndex": (28, 4),
        "chunkCount": (32, 4),
        "chunkOffset": (36, 4),
        "chunkLength": (40, 4),
        "payloadLength": (44, 4),
        "payloadCrc32c": (48, 4),
        "headerIncluded": (52, 1),
    },
    ("ShmRegionSuperblock", 64): {
        "magic": (0, 8),
        "layoutVersion": (8, 4),
        "epoch": (12, 8),
        "streamId": (20, 4),
        "regionType": (24, 2),
        "poolId": (26, 2),
        "nslots": (28, 4),
        "slotBytes": (32, 4),
        "strideBytes": (36, 4),
        "pid": (40, 8),
        "startTimestampNs": (48, 8),
        "activityTimestampNs": (56, 8),
    },
    ("SlotHeader", 60): {
        "seqCommit": (0, 8),
        "valuesLenBytes": (8, 4),
        "payloadSlot": (12, 4),
        "poolId": (16, 2),
        "payloadOffset": (18, 4),
        "timestampNs": (22, 8),
        "metaVersion": (30, 4),
        "pad": (34, 26),
    },
    ("TensorHeader", 184): {
        "dtype": (0, 2),
        "majorOrder": (2, 2),
        "ndims": (4, 1),
        "padAlign": (5, 1),
        "progressUnit": (6, 1),
        "progressStrideBytes": (7, 4),
        "dims": (11, 32),
        "strides": (43, 32),
        "pad": (75, 109),
    },
}


@pytest.mark.parametrize(("message", "block_length"), HOT_OFFSETS)
def test_offsets_that_native_code_relies_on(message, block_length):
    layout = compiled_layout(message, block_length=block_length)
    assert {field.name: (field.offset, field.size) for field in layout.fields} == HOT_OFFSETS[
        message, block_length
    ]


DIGESTS = {
    ("control", 1): "afb626f3a9278271",
    ("driver", 1): "caf4ad815df995d4",
    ("driver_newer", 1): "4e50ee91729e5ec4",
    ("bridge", 1): "b44132039d4611f9",
    ("bridge_newer", 1): "a664fabbccb85f1f",
    ("join_barrier", 1): "1ea8f7adc5ae9562",
    ("trace", 1): "1ecac8107045ff4c",
    ("service_control", 1): "5caf3e9a92a0d3f9",
    ("service_control_packed", 1): "ae21df22ab67ec33",
    ("admin", 1): "1a13b14ccf3e65bd",
    ("discovery", 1): "beab97139f6f8386",
}


def facts(block: BlockLayout) -> list[object]:
    """Everything in a layout that decides about bytes."""
    fields = [
        (
            *(field.name, field.offset, field.primitive.name, field.length),
            *(field.null, field.minimum, field.maximum, field.padding),
            sorted(field.enum.values.items()) if field.enum else None,
        )
        for field in block.fields
    ]
    constants = [(constant.name, constant.value) for constant in block.constants]
    data = [(part.name, part.maximum, part.text) for part in block.data]
    groups = [(group.name, facts(group.entry)) for group in block.groups]
    return [block.block_length, fields, constants, groups, data]


def digest(name: str) -> str:
    messages = load_schema(name).messages.values()
    shapes = sorted((layout.template_id, layout.name, facts(layout)) for layout in messages)
    return hashlib.sha256(repr((shapes, shm.LAYOUT_VERSION)).encode()).hexdigest()[:16]


@pytest.mark.req("WIRE-16-7")
@pytest.mark.parametrize("name", SCHEMA_NAMES)
def test_a_changed_layout_needs_a_new_version(name):
    """If this fails, raise the version of the schema (and of the layout in shared memory) with the change."""
    assert digest(name) == DIGESTS[name, load_schema(name).version]


def test_the_page_about_schema_906_agrees_with_the_schema():
    """Every row of its tables is a field at that offset, and every field has a row."""
    page = (Path(__file__).parents[3] / "docs" / "reference" / "schema-906.md").read_text()
    sections = dict(re.findall(r"^## \d+ (\w+)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    assert list(sections) == list(TABLE["admin"])
    for name, section in sections.items():
        layout = load_schema("admin").messages[name]
        rows = {
            (field, int(offset), int(size))
            for offset, size, field in re.findall(
                r"^\| (\d+) \| (\d+) \| [^|]+ \| (\w+) \|", section, re.MULTILINE
            )
        }
        documented = {(f.name, f.offset, f.size) for f in layout.fields}
        if name == "LeasesListed":  # says that its block is that of StreamsListed
            rows |= documented
        for group in layout.groups:
            documented |= {(f.name, f.offset, f.size) for f in group.entry.fields}
            assert f"block {group.entry.block_length}" in section
        if name == "ResolveStream":  # a group of one field has a sentence instead of a table
            rows.add(("strideBytes", 0, 4))
        assert rows == documented, name
        assert f"| {name} | {layout.block_length} |" in page
        for part in [*layout.data, *(part for group in layout.groups for part in group.entry.data)]:
            assert f"`{part.name}` ({part.maximum})" in section
