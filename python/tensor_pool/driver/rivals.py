"""One driver per control stream: a second one would answer the clients of the first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tensor_pool.errors import ConfigError, NoDriverError
from tensor_pool.pool.admin import AdminClient

if TYPE_CHECKING:
    from tensor_pool.config import StreamsSection
    from tensor_pool.transport import Client

__all__ = ["check_alone"]

_PATIENCE_S: Final = 0.25
"""A driver learns of a new publication within 50 ms and answers at once; one that is stuck is not noticed."""


def check_alone(client: Client, streams: StreamsSection) -> None:
    """Asks whether another driver serves the control stream; the lock of a directory can't tell.

    Both would answer every attach, and each take the leases of the other for ended: no client could hold one.
    Costs nothing where nobody listens to the stream, as on a fresh media driver.

    Raises:
        ConfigError: One does.

    Example:
        >>> from tensor_pool.config import StreamsSection
        >>> from tensor_pool.transport.memory import MemoryBus
        >>> check_alone(MemoryBus().client(), StreamsSection())
    """
    with client.add_publication(streams.control_channel, streams.control_stream_id) as publication:
        if not publication.connected:
            return
    try:
        with AdminClient(client, streams, timeout_s=_PATIENCE_S) as admin:
            other = admin.status()
    except NoDriverError:
        return
    raise ConfigError(
        f"another SHM driver, process {other.pid}, serves stream {streams.control_stream_id} of "
        f"{streams.control_channel} here",
        hint="use that one or stop it; a second one needs a media driver of its own (aeron.dir), or a "
        "control stream and ids of its own (streams.control_stream_id, driver.stream_id_range)",
    )
