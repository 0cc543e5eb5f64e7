"""Options of the format ``tensorpool``: what makes no sense is refused, with what would."""

from __future__ import annotations

import pytest
from pyspark.sql import types as st

from tensor_pool.errors import ConfigError
from tensor_pool.pipeline.spark.options import parse_options
from tensor_pool.pipeline.spark.schema import spark_schema
from tensor_pool.pipeline.spark.sink import parse_sink_options

MOST = f"{2**63 - 1:,}"


@pytest.mark.parametrize(
    ("option", "value", "hint"),
    [
        ("mode", "x", "recording or live"),
        ("payload", "pictures", "ref or bytes"),
        ("startingOffsets", "first", "latest or oldest"),
        ("startSeq", "-1", f"a number from 0 to {MOST}"),
        ("endSeq", "99999999999999999999", f"a number from 0 to {MOST}"),
        ("startTs", str(-(2**63)), f"a number from -{MOST} to {MOST}"),
        ("endTs", "9999-12-31T00:00:00Z", f"a number from -{MOST} to {MOST}"),
        ("maxFramesPerTrigger", "0", f"a number from 1 to {MOST}"),
        ("waitSeconds", "nan", "a number from 0 to 1,000,000,000"),
        ("waitSeconds", "-1", "a number from 0 to 1,000,000,000"),
        ("waitSeconds", "inf", "a number from 0 to 1,000,000,000"),
    ],
)
def test_options_of_a_source(option, value, hint):
    with pytest.raises(ConfigError) as raised:
        parse_options({"path": "recordings", option: value})
    assert raised.value.message.startswith(f"option {option}=")
    assert raised.value.hint == hint


@pytest.mark.parametrize(
    ("option", "value", "hint"),
    [
        ("idleSeconds", "-1", "a number from 0 to 1,000,000,000"),
        ("idleSeconds", "nan", "a number from 0 to 1,000,000,000"),
        ("frameBytes", "-1", f"a number from 0 to {2**31:,}"),
        ("frameBytes", str(2**50), f"a number from 0 to {2**31:,}"),
        ("slots", "0", f"a number from 1 to {2**20:,}"),
        ("slots", "48", "a power of two, such as 64"),
    ],
)
def test_options_of_a_sink(option, value, hint):
    with pytest.raises(ConfigError, match=f"option {option}={value}") as raised:
        parse_sink_options({"stream": "result", option: value}, spark_schema("ref"))
    assert raised.value.hint == hint


def test_options_at_their_limits_are_taken():
    options = parse_options({"path": "a", "endSeq": str(2**63 - 1), "waitSeconds": "0", "mode": "recording"})
    assert (options.endSeq, options.waitSeconds) == (2**63 - 1, 0.0)
    sink = parse_sink_options({"stream": "a", "frameBytes": str(2**31), "slots": "1"}, spark_schema("bytes"))
    assert (sink.frameBytes, sink.slots) == (2**31, 1)


_INT, _TEXT = st.IntegerType(), st.StringType()


def _columns(**types):
    return st.StructType([st.StructField(name, kind) for name, kind in types.items()])


_SHAPED = {"dtype": _TEXT, "shape": st.ArrayType(_INT)}
_VALUES = {"values": st.BinaryType()} | _SHAPED
_BY_REF = _SHAPED | {"order": _TEXT, "epoch": _INT, "seq": _INT}
_READ = spark_schema("ref")


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (_columns(**_VALUES | {"values": _TEXT}), "the column values is string, not binary"),
        (_columns(**_VALUES | {"shape": _INT}), "the column shape is int, not array<bigint>"),
        (_columns(**_VALUES | {"shape": st.ArrayType(_TEXT)}), "the column shape is array<string>"),
        (_columns(**_VALUES, timestamp_ns=st.TimestampType()), "timestamp_ns is timestamp, not bigint"),
        (_columns(**_VALUES, order=_INT), "the column order is int, not string"),
        (_columns(seq=_INT), "the table lacks dtype, shape, values"),
        (st.StructType([_READ["ref"]]), "the table lacks dtype, epoch, order, seq, shape"),
        (_columns(**_BY_REF, ref=_TEXT), "the column ref is string, not struct"),
        (_columns(**_BY_REF, ref=_columns(uri=_TEXT)), "ref lacks boot, crc32c, host, kind, length, offset"),
    ],
    ids=range(9),
)
def test_tables_that_can_not_be_published_are_refused_by_their_columns(columns, said):
    with pytest.raises(ConfigError, match=said):
        parse_sink_options({"stream": "result"}, columns)


def test_tables_of_every_kind_can_be_published():
    for columns in (_columns(**_VALUES), _columns(**_VALUES, ref=_TEXT), _READ, spark_schema("bytes")):
        assert parse_sink_options({"stream": "result"}, columns).stream == "result"
