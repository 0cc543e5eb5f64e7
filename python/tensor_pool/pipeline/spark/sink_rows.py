"""Tables that a sink can publish: their columns, and their rows as frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tensor_pool.errors import ConfigError, FrameError
from tensor_pool.pipeline.spark.publisher import FrameToPublish
from tensor_pool.pipeline.spark.schema import OK
from tensor_pool.pipeline.spark.tensor_rows import MALFORMED, TensorUnavailableError, tensor_row

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["check_columns", "frames_of"]

_WHOLE: Final = ("bigint", "int", "smallint", "tinyint")
_TYPES: Final = {
    "values": ("binary",),
    "dtype": ("string",),
    "shape": tuple(f"array<{kind}>" for kind in _WHOLE),
    "order": ("string",),
    "status": ("string",),
    "epoch": _WHOLE,
    "seq": _WHOLE,
    "timestamp_ns": _WHOLE,
    "trace_id": _WHOLE,
}
"""Columns that a sink looks at, and which types they may have."""
_REF: Final = {
    "kind": ("string",),
    "uri": ("string",),
    "offset": _WHOLE,
    "length": _WHOLE,
    "host": ("string",),
    "boot": ("string",),
    "crc32c": _WHOLE,
}
_WITH_VALUES: Final = {"values", "dtype", "shape"}
_WITH_REF: Final = {"ref", "dtype", "shape", "order", "epoch", "seq"}
_HINT: Final = (
    "a sink needs values (binary), dtype (string) and shape (array<bigint>), or ref and all columns beside it"
)
_ALL_BITS: Final = 2**64


def check_columns(schema: StructType) -> None:
    """Looks whether a table can be published.

    Raises:
        ConfigError: A column is missing, or of a type that it can't have.
    """
    names = set(schema.fieldNames())
    is_by_ref = "ref" in names and "values" not in names
    missing = sorted((_WITH_REF if is_by_ref else _WITH_VALUES) - names)
    if missing:
        raise ConfigError(f"the table lacks {', '.join(missing)}", hint=_HINT)
    _check_types(schema, _TYPES, "")
    if is_by_ref:
        ref = schema["ref"].dataType
        if ref.typeName() != "struct":
            raise ConfigError(f"the column ref is {ref.simpleString()}, not struct", hint=_HINT)
        fields: StructType = ref  # type: ignore[assignment]
        missing = sorted(set(_REF) - set(fields.fieldNames()))
        if missing:
            raise ConfigError(f"the column ref lacks {', '.join(missing)}", hint=_HINT)
        _check_types(fields, _REF, "ref.")


def _check_types(schema: StructType, types: dict[str, tuple[str, ...]], above: str) -> None:
    for field in schema:
        found, known = field.dataType.simpleString(), types.get(field.name)
        if known is not None and found not in known:
            raise ConfigError(f"the column {above}{field.name} is {found}, not {known[0]}", hint=_HINT)


def frames_of(batch: pa.RecordBatch) -> Iterator[FrameToPublish]:
    """The rows of a batch as frames, without those whose status says that they have none.

    Raises:
        FrameError: A row has none though it should, or contradicts itself.
    """
    values = batch.column("values") if "values" in batch.schema.names else None
    others = batch if values is None else batch.drop_columns("values")
    for place, row in enumerate(others.to_pylist()):
        if row.setdefault("status", OK) != OK:
            continue
        row.setdefault("order", "C")
        if values is not None:
            row.pop("ref", None)
            row["values"] = values[place].as_py()
        _check(row, place)
        trace_id = row.get("trace_id")
        yield FrameToPublish(
            dtype=row["dtype"],
            shape=tuple(row["shape"]),
            order=row["order"],
            timestamp_ns=row.get("timestamp_ns"),
            trace_id=None if trace_id is None else trace_id % _ALL_BITS,
            values=row.get("values"),
            row=None if values is not None else {name: row[name] for name in ("status", *sorted(_WITH_REF))},
        )


def _check(row: dict[str, Any], place: int) -> None:
    """Refuses what makes no sense. A tensor that is gone is counted by who publishes."""
    try:
        tensor_row(row)
    except TensorUnavailableError as e:
        if e.status != MALFORMED:
            return
        which = f"frame {row['seq']}" if row.get("seq") is not None else f"row {place} of a batch"
        raise FrameError(
            f"can't publish {which}: {e.message}",
            hint="leave such rows out, or give them a status that is not ok",
        ) from None
