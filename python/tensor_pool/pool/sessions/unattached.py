"""Streams without a driver: consumers that follow announces, without any lease (decision D16)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensor_pool.pool.sessions.attachment import FOR_EVER_NS, Attachment, AttachmentState

if TYPE_CHECKING:
    from tensor_pool.pool.sessions.lease import Event
    from tensor_pool.wire import Message
    from tensor_pool.wire.messages import ShmPoolAnnounce

__all__ = ["Unattached"]


class Unattached(Attachment):
    """What stands in the place of an attachment where nobody is asked for anything."""

    def step(
        self,
        now_ns: int,  # noqa: ARG002 - nothing is ever due
        last_keepalive_ns: int | None = None,  # noqa: ARG002
    ) -> tuple[list[Message], list[Event]]:
        """Sends nothing."""
        if self.state is not AttachmentState.CLOSED:
            self.state = AttachmentState.WAITING
        return [], []

    @property
    def due_ns(self) -> int:
        """Never."""
        return FOR_EVER_NS

    def on_announce(
        self,
        announce: ShmPoolAnnounce,  # noqa: ARG002 - the mapping decides what it means
        now_ns: int,  # noqa: ARG002
        session_id: int | None = None,  # noqa: ARG002
    ) -> list[Event]:
        """Asks for nothing; the mapping decides what the announce means."""
        return []
