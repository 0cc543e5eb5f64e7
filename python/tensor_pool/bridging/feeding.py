"""Chunks for one consumer: frames are put together in its own ring, without any driver."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tensor_pool import _native
from tensor_pool.bridging.chunk_sizes import MOST_CHUNKS, MOST_PAYLOAD_BYTES, slice_sizes
from tensor_pool.bridging.udp import for_chunks_in
from tensor_pool.channels import Channel
from tensor_pool.errors import ChannelError, ConfigError, TensorPoolError
from tensor_pool.pool.stats import FallbackStats

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensor_pool.bridging.config import BridgeSection
    from tensor_pool.pool.fallback_uri import ChunkPlace
    from tensor_pool.transport import AeronClient

__all__ = ["ConsumerChunks"]

_LOG: Final = logging.getLogger(__name__)
_RETRY_S: Final = 1.0
_TURN_S: Final = 0.1
_CHUNKS_A_TURN: Final = 1024


class _Pace(NamedTuple):
    """How to pass the time while nothing comes; see `ChunkReceiver.receive`."""

    yields: int
    shortest_pause_s: float
    longest_pause_s: float


_LIVELY: Final = _Pace(yields=2, shortest_pause_s=0.000_1, longest_pause_s=0.001)
"""Between frames of a stream that runs: how late the next one may be noticed."""
_RESTING: Final = _Pace(yields=0, shortest_pause_s=0.02, longest_pause_s=0.02)
"""A stream that fell silent is not worth a thousand looks a second."""
_REST_AFTER_S: Final = 0.5


class ConsumerChunks:
    """Takes the chunks of one stream from an Aeron stream, on a thread of its own.

    The subscription is opened there too, and again when Aeron refuses it: nobody waits for the media driver.

    Args:
        client: The connection to the media driver.
        place: Where chunks come from.
        stream_id: The stream's number in them.
        section: How many frames are put together at a time, and for how long.
    """

    def __init__(
        self, client: AeronClient, place: ChunkPlace, stream_id: int, section: BridgeSection
    ) -> None:
        self._client = client
        self._place = place
        self._stream_id = stream_id
        self._section = section
        self._lock = threading.Lock()
        self._source: tuple[int, Sequence[tuple[int, int]], _native.RingWriter] | None = None
        self._receiver: _native.ChunkReceiver | None = None
        self._error = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"chunks of {stream_id}", daemon=True)
        self._thread.start()

    def follow(self, epoch: int, pools: Sequence[tuple[int, int]], writer: _native.RingWriter) -> None:
        """See `ChunkFeed.follow`."""
        with self._lock:
            self._source = (epoch, pools, writer)
            if self._receiver is not None:
                self._tell(self._receiver)

    def prefix(self, seq: int) -> int | None:
        """See `ChunkFeed.prefix`."""
        receiver = self._receiver
        return None if receiver is None else receiver.prefix(self._stream_id, seq)

    def stats(self) -> FallbackStats:
        """See `ChunkFeed.stats`."""
        receiver = self._receiver
        found: dict[str, Any] | None = None if receiver is None else receiver.stats(self._stream_id)
        uri = f"{self._place.channel}|stream-id={self._place.stream_id}"
        if receiver is None or found is None:
            return FallbackStats(uri=uri, error=self._error)
        malformed, foreign = receiver.strangers
        unused = {**found["chunks_unused"], "malformed": malformed, "other_stream": foreign}
        return FallbackStats(
            uri=uri,
            frames=found["frames"],
            bytes=found["bytes"],
            chunks=found["chunks"],
            frames_lost={reason: count for reason, count in found["frames_lost"].items() if count},
            chunks_unused={reason: count for reason, count in unused.items() if count},
            error=self._error,
        )

    @property
    def is_running(self) -> bool:
        """See `ChunkFeed.is_running`."""
        return self._thread.is_alive()

    def request_stop(self) -> None:
        """See `ChunkFeed.request_stop`."""
        self._stop.set()
        with self._lock:
            self._source = None
            if self._receiver is not None:
                self._receiver.set_ring(self._stream_id, None)

    def join(self) -> None:
        """See `ChunkFeed.join`."""
        self._thread.join()

    # --- the thread ---------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._listen()
            except (ChannelError, ConfigError) as e:
                self._on_error(e)
                self._stop.wait(_RETRY_S)
            except TensorPoolError as e:
                if not self._stop.is_set():
                    self._on_error(e)
                return  # the connection is gone: its owner is told in its own way

    def _listen(self) -> None:
        limit = self._longest_chunk()
        with self._client.add_subscription(
            for_chunks_in(self._place.channel), self._place.stream_id
        ) as subscription:
            receiver = _native.ChunkReceiver(subscription.native)
            receiver.add_stream(
                self._stream_id,
                frames=self._section.max_inflight_frames,
                total_bytes=self._section.max_inflight_bytes,
                timeout_ns=self._section.assembly_timeout_ns,
                chunk_bytes=limit,
                payload_bytes=self._section.max_payload_bytes or MOST_PAYLOAD_BYTES,
            )
            with self._lock:
                self._error = ""
                self._receiver = receiver
                self._tell(receiver)
            self._take_chunks(receiver)

    def _longest_chunk(self) -> int:
        """What a sender with this MTU sends at most; where none is named, what a chunk can hold at all."""
        mtu = Channel.parse(self._place.channel).mtu_bytes
        return MOST_CHUNKS if mtu is None else slice_sizes(mtu).later

    def _tell(self, receiver: _native.ChunkReceiver) -> None:
        """Nothing of the former epoch gets into the ring of the next one."""
        receiver.set_ring(self._stream_id, None)
        if self._source is not None:
            epoch, pools, writer = self._source
            receiver.announce(self._stream_id, epoch, pools)
            receiver.set_ring(self._stream_id, writer)

    def _take_chunks(self, receiver: _native.ChunkReceiver) -> None:
        rest_at = time.monotonic() + _REST_AFTER_S
        while not self._stop.is_set():
            pace = _LIVELY if time.monotonic() < rest_at else _RESTING
            if receiver.receive(_TURN_S, limit=_CHUNKS_A_TURN, **pace._asdict()):
                rest_at = time.monotonic() + _REST_AFTER_S

    def _on_error(self, error: TensorPoolError) -> None:
        if self._error != error.message:
            where = self._place.channel
            _LOG.warning("no chunks of stream %d come from %s: %s", self._stream_id, where, error)
        self._error = error.message
