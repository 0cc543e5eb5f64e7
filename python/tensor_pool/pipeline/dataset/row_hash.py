"""The hash of rows: of their checksums and of everything beside their values."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

import msgspec

from tensor_pool.pipeline.dataset.schema import VALUES

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["hash_rows"]

_ENCODER: Final = msgspec.json.Encoder(enc_hook=repr)


def hash_rows(table: pa.Table) -> int:
    """The sum of 256 bits for each row; the order of rows does not matter.

    Args:
        table: With the columns of a training set; values count by their checksum.

    Example:
        >>> import pyarrow as pa
        >>> one, other = pa.table({"crc32c": [1, 2]}), pa.table({"crc32c": [2, 1]})
        >>> hash_rows(one) == hash_rows(other) != hash_rows(one.slice(1))
        True
    """
    small = table.drop_columns(VALUES) if VALUES in table.column_names else table
    digests = (hashlib.sha256(_ENCODER.encode(list(row.values()))).digest() for row in small.to_pylist())
    return sum(int.from_bytes(digest, "big") for digest in digests)
