"""Plays the sending end of a mapping: good frames, and whatever a hostile network may send."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterable, Sequence
from typing import Any

from bridges import SOURCE
from tensor_pool import wire
from tensor_pool.closing import Closing
from tensor_pool.datatypes import Dtype, MajorOrder
from tensor_pool.testing import wait_until
from tensor_pool.transport import AeronClient, AeronPublication
from tensor_pool.wire.messages import ClockDomain, PayloadPool, ShmPoolAnnounce
from tensor_pool.wire.shm import (
    ProgressUnit,
    SlotHeader,
    TensorHeader,
    encode_slot,
    encode_tensor_header,
)

__all__ = ["EPOCH", "POOLS", "SLICE_BYTES", "FalseSender", "Piece", "frame_bytes", "pieces", "slot_bytes"]

EPOCH = 900
POOLS = ((1, 1024), (2, 4096))
"""Numbers and strides of the pools that the source says it has."""
SLICE_BYTES = 100
_BLOCK = struct.Struct("<HHHHIQQIIIIIB")


@dataclasses.dataclass(frozen=True)
class Piece:
    """A chunk on the wire, every field of its own: unlike the library's it may contradict itself."""

    epoch: int
    seq: int
    index: int
    count: int
    offset: int
    length: int
    payload_length: int
    included: int
    header: bytes
    payload: bytes
    stream_id: int = SOURCE
    block_length: int = 41
    template_id: int = 1
    schema_id: int = 902
    version: int = 1
    header_length: int | None = None
    """The length prefix of the header; None: as long as it is."""
    bytes_length: int | None = None
    """The length prefix of the payload; None: as long as it is."""

    def but(self, **fields: Any) -> Piece:
        """The same with other fields."""
        return dataclasses.replace(self, **fields)

    def __bytes__(self) -> bytes:
        head = (self.block_length, self.template_id, self.schema_id, self.version)
        place = (self.index, self.count, self.offset, self.length, self.payload_length, self.included)
        header_length = len(self.header) if self.header_length is None else self.header_length
        bytes_length = len(self.payload) if self.bytes_length is None else self.bytes_length
        return b"".join(
            (
                _BLOCK.pack(*head, self.stream_id, self.epoch, self.seq, *place),
                struct.pack("<I", header_length),
                self.header,
                struct.pack("<I", bytes_length),
                self.payload,
            )
        )


def frame_bytes(seq: int, length: int) -> bytes:
    """The payload of a frame; no two slices of it are alike, nor are two frames."""
    return bytes((n * 7 + (n >> 8) + seq) % 256 for n in range(length))


def slot_bytes(
    seq: int, length: int, *, pool_id: int = 2, tensor: bytes | None = None, **fields: Any
) -> bytes:
    """The slot of a frame as its source has it, or with other fields."""
    if tensor is None:
        rest = (0,) * 7
        tensor = encode_tensor_header(
            TensorHeader(
                dtype=Dtype.UINT8,
                major_order=MajorOrder.ROW,
                ndims=1,
                progress_unit=ProgressUnit.NONE,
                progress_stride_bytes=0,
                dims=(length, *rest),
                strides=(1, *rest),
            )
        )
    values = {
        "seq_commit": 2 * seq + 1,
        "values_len_bytes": length,
        "payload_slot": seq % 8,
        "pool_id": pool_id,
        "payload_offset": 0,
        "timestamp_ns": 1_000 + seq,
        "meta_version": 3,
        "header_bytes": tensor,
    }
    return encode_slot(SlotHeader(**(values | fields)))


def pieces(seq: int, length: int = 350, *, epoch: int = EPOCH, slot: bytes | None = None) -> list[Piece]:
    """A frame in chunks, all of them right."""
    payload = frame_bytes(seq, length)
    slices = [payload[at : at + SLICE_BYTES] for at in range(0, length, SLICE_BYTES)] or [b""]
    slot = slot_bytes(seq, length) if slot is None else slot
    return [
        Piece(
            epoch=epoch,
            seq=seq,
            index=index,
            count=len(slices),
            offset=index * SLICE_BYTES,
            length=len(each),
            payload_length=length,
            included=int(index == 0),
            header=slot if index == 0 else b"",
            payload=each,
        )
        for index, each in enumerate(slices)
    ]


class FalseSender(Closing):
    """Sends chunks and announces to a receiver, as anybody on its network could.

    Args:
        aeron_dir: The media driver to send through.
        settings: Of the bridge that receives.
    """

    def __init__(self, aeron_dir: str, settings: dict[str, Any]) -> None:
        self._client = AeronClient.connect(aeron_dir)
        self._payload = self._client.add_publication(settings["bridge.payload_channel"], 3000)
        self._control = self._client.add_publication(settings["bridge.control_channel"], 3001)
        self.epoch = EPOCH
        """What was announced last."""
        self.next_seq = 0
        """Of the next frame that was not sent yet."""

    def take_seq(self) -> int:
        """A number that no frame had."""
        self.next_seq += 1
        return self.next_seq - 1

    def announce(
        self, epoch: int = EPOCH, pools: Sequence[tuple[int, int]] = POOLS, *, nslots: int = 8
    ) -> None:
        """Tells of the source's memory."""
        uri = "shm:file?path=/dev/shm/of-another-host"
        self.epoch = epoch
        self.say(
            ShmPoolAnnounce(
                stream_id=SOURCE,
                producer_id=7,
                epoch=epoch,
                announce_timestamp_ns=1,
                announce_clock_domain=ClockDomain.MONOTONIC,
                layout_version=1,
                header_nslots=nslots,
                header_slot_bytes=256,
                payload_pools=tuple(PayloadPool(number, nslots, stride, uri) for number, stride in pools),
                header_region_uri=uri,
            )
        )

    def say(self, message: wire.Message) -> None:
        """Sends a message on the control channel."""
        _offer(self._control, wire.encode(message))

    def send(self, packets: Iterable[Piece | bytes]) -> None:
        """Sends packets on the payload channel, waiting where the receiver does not keep up.

        Epochs of pieces count from `EPOCH`, which stands for the one that was announced last.
        """
        for packet in packets:
            if isinstance(packet, Piece):
                _offer(self._payload, bytes(packet.but(epoch=self.epoch + packet.epoch - EPOCH)))
            else:
                _offer(self._payload, packet)

    def close(self) -> None:
        """May be called again."""
        self._client.close()


def _offer(publication: AeronPublication, data: bytes) -> None:
    wait_until(lambda: publication.offer(data), what="somebody who receives")
