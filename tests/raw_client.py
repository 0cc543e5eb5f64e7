"""A client that speaks the driver's messages over real Aeron, with none of the library's policy."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any, Self, TypeVar

from tensor_pool.errors import MalformedMessageError
from tensor_pool.transport import AeronClient
from tensor_pool.wire import Message, decode, encode
from tensor_pool.wire.messages import (
    PublishMode,
    ResponseCode,
    Role,
    ShmAttachRequest,
    ShmAttachResponse,
    ShmDetachRequest,
    ShmDetachResponse,
    ShmLeaseKeepalive,
    ShmPoolAnnounce,
)

MessageT = TypeVar("MessageT")

TIMEOUT_S = 20.0

_ASK_AGAIN_S = 0.25
"""After how long a client that lives repeats a request."""


class RawClient:
    """One end of the driver's control and announce streams.

    Args:
        aeron_dir: The media driver's directory.
    """

    def __init__(self, aeron_dir: str) -> None:
        self._aeron = AeronClient.connect(aeron_dir)
        self.control = self._aeron.add_publication("aeron:ipc", 1000)
        self._ears = [self._aeron.add_subscription("aeron:ipc", stream_id) for stream_id in (1000, 1001)]
        self.heard: list[Message] = []
        self._correlation_ids = itertools.count(int(time.monotonic_ns()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_args: object) -> None:
        self._aeron.close()

    def listen(self) -> None:
        for ear in self._ears:
            for data in ear.receive(1_000):
                try:
                    self.heard.append(decode(data))
                except MalformedMessageError:
                    continue

    def wait_for(
        self,
        kind: type[MessageT],
        where: Callable[[MessageT], bool] = lambda _: True,
        timeout_s: float = TIMEOUT_S,
    ) -> MessageT:
        """The first message of a kind, also among those heard before."""
        deadline = time.monotonic() + timeout_s
        while True:
            self.listen()
            for message in self.heard:
                if isinstance(message, kind) and where(message):
                    return message
            assert time.monotonic() < deadline, f"no {kind.__name__} came, but {self.heard[-5:]}"
            time.sleep(0.002)

    def send(self, message: Message) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not self.control.offer(encode(message)):
            assert time.monotonic() < deadline, "nobody takes the message"
            time.sleep(0.002)

    def ask(self, kind: type[MessageT], request: Any) -> MessageT:
        """Sends a request until its answer comes: a driver may just be starting (decision D18)."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            self.send(request)
            try:
                return self.wait_for(
                    kind,
                    lambda answer: answer.correlation_id == request.correlation_id,  # type: ignore[attr-defined]
                    timeout_s=_ASK_AGAIN_S,
                )
            except AssertionError:
                assert time.monotonic() < deadline, f"no {kind.__name__} came"

    def attach(
        self,
        stream_id: int = 10_000,
        client_id: int = 7,
        role: Role = Role.PRODUCER,
        *,
        mode: PublishMode = PublishMode.EXISTING_OR_CREATE,
    ) -> ShmAttachResponse:
        request = ShmAttachRequest(next(self._correlation_ids), stream_id, client_id, role, publish_mode=mode)
        return self.ask(ShmAttachResponse, request)

    def attached(self, *args: Any, **kwargs: Any) -> ShmAttachResponse:
        response = self.attach(*args, **kwargs)
        assert response.code is ResponseCode.OK, response.error_message
        return response

    def keep_alive(self, lease: ShmAttachResponse, client_id: int = 7, role: Role = Role.PRODUCER) -> None:
        assert lease.lease_id is not None
        assert lease.stream_id is not None
        self.send(ShmLeaseKeepalive(lease.lease_id, lease.stream_id, client_id, role, time.monotonic_ns()))

    def detach(
        self, lease: ShmAttachResponse, client_id: int = 7, role: Role = Role.PRODUCER
    ) -> ShmDetachResponse:
        assert lease.lease_id is not None
        assert lease.stream_id is not None
        correlation_id = next(self._correlation_ids)
        request = ShmDetachRequest(correlation_id, lease.lease_id, lease.stream_id, client_id, role)
        return self.ask(ShmDetachResponse, request)

    def announce_above(self, epoch: int, stream_id: int = 10_000) -> ShmPoolAnnounce:
        return self.wait_for(
            ShmPoolAnnounce, lambda message: message.stream_id == stream_id and message.epoch > epoch
        )
