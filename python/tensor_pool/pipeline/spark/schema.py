"""The rows of the format ``tensorpool``: one for each frame, one for each run of missing frames.

=================  ==================  =======================================================================
column             type                meaning
=================  ==================  =======================================================================
``stream_id``      long                number of the stream
``stream_name``    string              its name; empty when it has none
``epoch``          long                which life of the stream
``seq``            long                number of the frame in that life, or of the first missing one
``timestamp_ns``   long                the producer's time stamp, on its clock
``event_time``     timestamp           the same in real time; null when its clock is not known
``recorded_time``  timestamp           when it was recorded; null for frames that come live
``dtype``          string              NumPy's name of the type
``shape``          array<long>
``strides``        array<long>         in bytes
``order``          string              ``C`` or ``F``
``nbytes``         long
``meta_version``   long                which version of the metadata belongs to it
``trace_id``       long                as two's complement; null without one
``status``         string              ``ok``, or why frames are missing
``count``          long                1, or how many are missing
``ref``            struct              where the bytes are (``payload=ref``, the default)
``values``         binary              the bytes (``payload=bytes``)
=================  ==================  =======================================================================

A ``ref`` has ``kind`` (``segment`` or ``ring``), ``uri``, ``offset``, ``length``, ``host``, ``boot`` and
``crc32c``. Those of rings are good only on their host, in their boot and until the slot is used again.
"""

from __future__ import annotations

from typing import Final, Literal

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tensor_pool.pipeline.frame_columns import FRAME_COLUMNS

__all__ = ["OK", "Payload", "REF", "arrow_schema", "spark_schema"]

Payload = Literal["ref", "bytes"]
OK: Final = "ok"
"""The status of a frame that is there."""

REF: Final = pa.struct(
    [
        pa.field("kind", pa.string(), nullable=False),
        pa.field("uri", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("length", pa.int64(), nullable=False),
        pa.field("host", pa.string(), nullable=False),
        pa.field("boot", pa.string(), nullable=False),
        pa.field("crc32c", pa.int64(), nullable=True),
    ]
)

_PAYLOADS: Final = {"ref": pa.field("ref", REF), "bytes": pa.field("values", pa.binary())}


def arrow_schema(payload: Payload) -> pa.Schema:
    """What readers hand to Spark.

    Example:
        >>> arrow_schema("bytes").names[-1]
        'values'
    """
    return pa.schema([*FRAME_COLUMNS, _PAYLOADS[payload]])


def spark_schema(payload: Payload) -> StructType:
    """The same for Spark.

    Example:
        >>> spark_schema("ref")["ref"].dataType["uri"].dataType.simpleString()
        'string'
    """
    return _struct(list(arrow_schema(payload)))


def _struct(fields: list[pa.Field]) -> StructType:
    return StructType([StructField(field.name, _spark_type(field.type), field.nullable) for field in fields])


def _spark_type(arrow: pa.DataType) -> DataType:
    if pa.types.is_struct(arrow):
        return _struct(list(arrow))
    if pa.types.is_list(arrow):
        return ArrayType(_spark_type(arrow.value_type), arrow.value_field.nullable)
    if pa.types.is_timestamp(arrow):
        return TimestampType()
    simple: dict[pa.DataType, DataType] = {
        pa.int64(): LongType(),
        pa.string(): StringType(),
        pa.binary(): BinaryType(),
    }
    return simple[arrow]
