"""Requests as they reach the driver, whichever dialect or damage they have, and answers already given."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import msgspec

from tensor_pool.wire import HEADER_BYTES, message_layouts, peek
from tensor_pool.wire.messages import (
    HugepagesPolicy,
    NewerShmAttachRequest,
    NewerShmAttachResponse,
    PublishMode,
    ResponseCode,
    Role,
    ShmAttachRequest,
    ShmAttachResponse,
)

if TYPE_CHECKING:
    from collections.abc import Hashable

    from tensor_pool.wire.messages import PayloadPool

__all__ = ["Answered", "AttachAnswer", "AttachCall", "BrokenAttach", "read_broken_attach"]

_ATTACH: Final = message_layouts(ShmAttachRequest)[0]
_NEWER_ATTACH: Final = message_layouts(NewerShmAttachRequest)[0]
_CORRELATION_ID: Final = struct.Struct("<q")
_NO_ENUM_VALUE: Final = 255

AnswerT = TypeVar("AnswerT")


class AttachCall(msgspec.Struct, frozen=True):
    """An attach request, in terms that both dialects share (decision B10)."""

    correlation_id: int
    stream_id: int
    client_id: int
    role: Role
    expected_layout_version: int
    max_dims: int
    may_create: bool
    require_hugepages: bool
    is_newer: bool

    @classmethod
    def of(cls, request: ShmAttachRequest | NewerShmAttachRequest) -> AttachCall:
        """Reads a request of either dialect.

        Example:
            >>> request = NewerShmAttachRequest(
            ...     correlation_id=1, stream_id=10000, client_id=7, role=Role.CONSUMER)
            >>> AttachCall.of(request).may_create, AttachCall.of(request).is_newer
            (False, True)
        """
        is_newer = isinstance(request, NewerShmAttachRequest)
        return cls(
            correlation_id=request.correlation_id,
            stream_id=request.stream_id,
            client_id=request.client_id,
            role=request.role,
            expected_layout_version=request.expected_layout_version,
            max_dims=0 if isinstance(request, NewerShmAttachRequest) else request.max_dims,
            # Absent means REQUIRE_EXISTING (decision D4).
            may_create=request.publish_mode is PublishMode.EXISTING_OR_CREATE,
            require_hugepages=(
                request.require_hugepages is HugepagesPolicy.HUGEPAGES
                if is_newer
                else request.require_hugepages is True
            ),
            is_newer=is_newer,
        )


class AttachAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to an attach before it takes the form of a dialect; absent fields mean a refusal."""

    correlation_id: int
    code: ResponseCode
    lease_id: int | None = None
    lease_expiry_timestamp_ns: int | None = None
    stream_id: int | None = None
    epoch: int | None = None
    layout_version: int | None = None
    header_nslots: int | None = None
    header_slot_bytes: int | None = None
    max_dims: int | None = None
    payload_pools: tuple[PayloadPool, ...] = ()
    header_region_uri: str = ""
    error_message: str = ""

    def message(self, *, is_newer: bool) -> ShmAttachResponse | NewerShmAttachResponse:
        """The message in the dialect of the request."""
        fields = msgspec.structs.asdict(self)
        if not is_newer:
            return ShmAttachResponse(**fields)
        del fields["max_dims"]
        return NewerShmAttachResponse(**fields)


class BrokenAttach(msgspec.Struct, frozen=True):
    """What can be told of an attach request that can't be decoded: enough to answer it."""

    correlation_id: int
    code: ResponseCode
    reason: str
    is_newer: bool


def read_broken_attach(data: bytes, reason: str) -> BrokenAttach | None:
    """The part of a broken attach request that an answer needs; None when it is something else.

    Only the id in its first field is trusted, and the bytes of the two enums tell why it was refused.

    Example:
        >>> from tensor_pool.wire import encode
        >>> request = ShmAttachRequest(correlation_id=5, stream_id=1, client_id=7, role=Role.CONSUMER)
        >>> data = bytearray(encode(request))
        >>> data[8 + 16] = 9
        >>> broken = read_broken_attach(bytes(data), "role 9")
        >>> broken.correlation_id, broken.code.name
        (5, 'INVALID_PARAMS')
    """
    if len(data) < HEADER_BYTES + _CORRELATION_ID.size:
        return None
    header = peek(data)
    if (header.schema_id, header.template_id) != (_ATTACH.schema_id, _ATTACH.template_id):
        return None
    is_newer = header.block_length == _NEWER_ATTACH.block_length
    layout = _NEWER_ATTACH if is_newer else _ATTACH
    (correlation_id,) = _CORRELATION_ID.unpack_from(data, HEADER_BYTES)
    code = ResponseCode.INVALID_PARAMS
    if header.version != layout.version:
        code = ResponseCode.UNSUPPORTED  # decision B13
    elif header.block_length == layout.block_length and len(data) == HEADER_BYTES + layout.block_length:
        offsets = {field.name: HEADER_BYTES + field.offset for field in layout.fields}
        modes = {*PublishMode, _NO_ENUM_VALUE}
        if data[offsets["role"]] in {*Role} and data[offsets["publishMode"]] not in modes:
            code = ResponseCode.UNSUPPORTED  # a publish mode of a later time [DRV-4.6-2]
    return BrokenAttach(correlation_id, code, reason, is_newer)


class Answered(Generic[AnswerT]):
    """Answers by request, so that a request that comes twice is done once (decision L11).

    Args:
        capacity: Answers to remember; the oldest give way.

    Example:
        >>> answered: Answered[str] = Answered(capacity=1)
        >>> answered.remember((7, 1), "yes"); answered.remember((7, 2), "no")
        >>> answered.get((7, 1)), answered.get((7, 2))
        (None, 'no')
    """

    def __init__(self, capacity: int = 4_096) -> None:
        self._capacity = capacity
        self._answers: dict[Hashable, AnswerT] = {}

    def get(self, key: Hashable) -> AnswerT | None:
        """The answer that was given, if it is remembered."""
        return self._answers.get(key)

    def remember(self, key: Hashable, answer: AnswerT) -> None:
        """Notes an answer."""
        self._answers.pop(key, None)
        self._answers[key] = answer
        if len(self._answers) > self._capacity:
            del self._answers[next(iter(self._answers))]
