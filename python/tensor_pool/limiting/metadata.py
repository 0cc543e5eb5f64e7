"""What the producer of a source says of its stream, said again of the destination."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import msgspec

from tensor_pool.errors import MalformedMessageError
from tensor_pool.pool.blobs import Blob
from tensor_pool.runtime.repeats import limit_repeats
from tensor_pool.wire.messages import DataSourceAnnounce, DataSourceMeta

if TYPE_CHECKING:
    from tensor_pool.pool.producer import Producer
    from tensor_pool.pool.sessions.consumer import ConsumerSession

__all__ = ["MetadataRelay"]

_LOG: Final = limit_repeats(logging.getLogger(__name__))


class MetadataRelay:
    """Says everything again under the id and epoch of the destination, on the agent's thread.

    Versions keep their numbers, since frames name them. Announces and attributes are said as often as the
    source does; blobs are kept, for consumers that come later.

    Args:
        session: The source's.
        name: What the destination is called. Empty where it has no name: then that of the source is said.
    """

    def __init__(self, session: ConsumerSession, name: str) -> None:
        self._session = session
        self._name = name
        self._dest: Producer | None = None
        self._source_epoch: int | None = None
        session.watch_metadata(self._say)

    def follow(self, dest: Producer | None, source_epoch: int | None) -> None:
        """Speaks of this destination from now on: what is known already at once. For any thread."""
        self._source_epoch = source_epoch
        self._dest = dest
        if dest is not None:
            self._session.context.submit(self._say_all)

    def _say_all(self) -> None:
        session = self._session
        announce = session.metadata.announce
        for blob in session.blobs.values():
            self._say(blob)
        if announce is None or announce.epoch != self._source_epoch:
            return  # what is known is of the former epoch
        self._say(announce)
        now_ns = session.agent.clock.monotonic_ns()
        for version in session.metadata.versions:
            attributes = tuple(version.attributes.values())
            self._say(DataSourceMeta(announce.stream_id, version.meta_version, now_ns, attributes))

    def _say(self, said: DataSourceAnnounce | DataSourceMeta | Blob) -> None:
        dest = self._dest
        epoch = None if dest is None else dest.epoch
        if dest is None or epoch is None:
            return
        send, stream_id = self._session.agent.send_metadata, dest.stream_id
        match said:
            case DataSourceAnnounce() if said.epoch == self._source_epoch:
                # Two streams of one pool under one name could not be told apart by who looks for it.
                name = self._name or said.name
                send(msgspec.structs.replace(said, stream_id=stream_id, epoch=epoch, name=name))
            case DataSourceMeta():
                send(msgspec.structs.replace(said, stream_id=stream_id))
            case Blob():
                self._keep(dest, said)

    def _keep(self, dest: Producer, blob: Blob) -> None:
        try:
            dest.session.blobs.put(blob.blob_type, blob.data, meta_version=blob.meta_version)
        except MalformedMessageError as e:
            _LOG.warning("a blob of stream %s is not said again: %s", self._session.wish.label, e.message)
