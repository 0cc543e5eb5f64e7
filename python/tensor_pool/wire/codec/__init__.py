"""Encodes and decodes structs by their compiled layouts."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from tensor_pool.errors import MalformedMessageError
from tensor_pool.wire.codec.bound import BoundBlock
from tensor_pool.wire.codec.decode import compile_decoder
from tensor_pool.wire.codec.encode import ENCODE_FAILURES, compile_encoder, explain

__all__ = ["BoundBlock", "Codec"]

StructT = TypeVar("StructT", bound=msgspec.Struct)


class Codec(Generic[StructT]):
    """Decodes and encodes everything that lies behind the header of one message.

    Args:
        struct_type: What carries the values.
        block: Its layout, checked by the binder.
        extensible: Whether blocks longer than the layout are accepted and their ends skipped. Shorter ones
            never are.
        may_lack_last_prefix: Whether the length of the last data may be missing at the very end of a
            message, meaning 0 (decision K9); for layouts with something else behind the block before it.

    Example:
        >>> from tensor_pool.wire.bind import bind
        >>> from tensor_pool.wire.messages import GetDriverStatus
        >>> from tensor_pool.wire.schema import compiled_layout
        >>> codec = Codec(GetDriverStatus, bind(GetDriverStatus, compiled_layout("GetDriverStatus")))
        >>> codec.encode(GetDriverStatus(correlation_id=1, client_id=2)).hex()
        '010000000000000002000000'
    """

    __slots__ = ("_block", "_decode", "_encode", "block_length", "extensible", "layout", "struct_type")

    def __init__(
        self,
        struct_type: type[StructT],
        block: BoundBlock,
        *,
        extensible: bool = False,
        may_lack_last_prefix: bool = False,
    ) -> None:
        self.struct_type = struct_type
        self.layout = block.layout
        self.block_length = block.layout.block_length
        self.extensible = extensible
        self._block = block
        self._encode = compile_encoder(block)
        self._decode = compile_decoder(
            block, extensible=extensible, may_lack_last_prefix=may_lack_last_prefix
        )

    def decode(self, data: bytes, position: int, block_length: int) -> tuple[StructT, int]:
        """Decodes the body at `position`; also returns the position behind it.

        Raises:
            MalformedMessageError: Too short, or with values that the schema does not allow.
        """
        structs, end = self._decode(data, position, block_length, 1)
        return structs[0], end

    def encode(self, message: StructT) -> bytes:
        """Encodes a body.

        Raises:
            MalformedMessageError: A value that the schema does not allow.
        """
        parts: list[bytes] = []
        try:
            self._encode(message, parts)
        except ENCODE_FAILURES:
            name = self.struct_type.__name__
            problem = explain(self._block, message, name) or f"{name} can't be encoded"
            raise MalformedMessageError(problem) from None
        return b"".join(parts)
