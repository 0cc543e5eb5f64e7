"""The native module: mechanisms without defaults. People use the packages above it.

Every call either returns at once or lets signals in at least every 100 ms. Every handle may be closed twice,
from any thread; using it afterwards raises `ClosedError`, using it in a forked child `ForkedProcessError`.
"""

from typing import final

__all__ = [
    # Aeron
    "AeronClient",
    "AeronCounter",
    "AeronMediaDriver",
    "AeronPublication",
    "AeronSubscription",
    "aeron_counters",
    "aeron_driver_status",
    "aeron_version",
]

# --- Aeron ------------------------------------------------------------------------------------------

def aeron_version() -> str:
    """The version of Aeron that is built in, such as ``1.54.0``."""

def aeron_driver_status(aeron_dir: str, timeout_ns: int) -> tuple[int, int, int, int, bool]:
    """What the media driver of a directory says about itself.

    Returns:
        Process id, start and last heartbeat (milliseconds since 1970; the heartbeat is -1 after a clean end),
        the nanoseconds of silence after which it drops a client, and whether it showed life within
        `timeout_ns`.

    Raises:
        NoMediaDriverError: The directory has no media driver's file, or one that can't be read.
    """

def aeron_counters(aeron_dir: str) -> list[tuple[int, int, int, int, int, bytes, str]]:
    """All counters of the media driver of a directory, dead or alive.

    Returns:
        Counter id, type id, value, registration id, owning client, key (112 bytes) and label of each.

    Raises:
        NoMediaDriverError: As for `aeron_driver_status`.
    """

@final
class AeronMediaDriver:
    """A media driver on threads of this process; runs from construction to `close`.

    Args:
        aeron_dir: The Aeron directory, an absolute path.
        dir_delete_on_start: Replace what a dead driver left, instead of refusing.
        dir_delete_on_shutdown: Remove the directory at a clean end.
        threading_mode: ``shared``, ``shared_network`` or ``dedicated``.
        idle_strategy: Aeron's name of an idle strategy, for all threads.
        idle_arguments: Its arguments in Aeron's form.
        timer_interval_ns: How often time-outs are looked at.
        client_liveness_ns: Silence after which a client is dropped.
        untethered_window_limit_ns: How long an untethered subscriber may hold back a publication.
        untethered_linger_ns: How long it then stays in its place.
        untethered_resting_ns: How long it rests before it may join again.
        term_buffer_bytes: Bytes of one term of a UDP publication.
        ipc_term_buffer_bytes: Bytes of one term of an IPC publication.
        sparse_terms: Whether terms take memory only when written.
        counter_values_bytes: Bytes for the values of counters, 128 each.

    Raises:
        TransportError: A live driver serves the directory, it holds other files, or Aeron refuses a value.
    """

    def __new__(
        cls,
        *,
        aeron_dir: str,
        dir_delete_on_start: bool,
        dir_delete_on_shutdown: bool,
        threading_mode: str,
        idle_strategy: str,
        idle_arguments: str | None,
        timer_interval_ns: int,
        client_liveness_ns: int | None,
        untethered_window_limit_ns: int | None,
        untethered_linger_ns: int | None,
        untethered_resting_ns: int | None,
        term_buffer_bytes: int | None,
        ipc_term_buffer_bytes: int | None,
        sparse_terms: bool | None,
        counter_values_bytes: int | None,
    ) -> AeronMediaDriver: ...
    @property
    def aeron_dir(self) -> str:
        """The Aeron directory."""

    @property
    def closed(self) -> bool:
        """Whether it was closed."""

    def close(self) -> None:
        """Ends it; its clients notice within a second."""

@final
class AeronClient:
    """A client of a media driver.

    Args:
        aeron_dir: The media driver's directory.
        name: Shown by Aeron's tools; at most 100 bytes.
        connect_timeout_ns: How long to wait for a live media driver.
        driver_timeout_ns: Silence after which the media driver is dead.
        keepalive_interval_ns: How often to show life and look for the driver's.
        idle_sleep_ns: The longest sleep of the client's own thread.

    Raises:
        NoMediaDriverError: There is none in time.
    """

    def __new__(
        cls,
        *,
        aeron_dir: str,
        name: str,
        connect_timeout_ns: int,
        driver_timeout_ns: int,
        keepalive_interval_ns: int,
        idle_sleep_ns: int,
    ) -> AeronClient: ...
    @property
    def aeron_dir(self) -> str:
        """The media driver's directory."""

    @property
    def client_id(self) -> int:
        """The id under which the media driver knows it."""

    @property
    def closed(self) -> bool:
        """Whether it was closed, or lost its media driver."""

    def check(self) -> None:
        """Raises why the client can't be used any more, if so."""

    def take_errors(self) -> list[tuple[int, str]]:
        """Code and text of what its thread ran into since the last call, at most 64."""

    def add_publication(self, channel: str, stream_id: int, timeout_ns: int) -> AeronPublication:
        """Adds an exclusive publication.

        Raises:
            ChannelError: Aeron refuses the channel.
            NoMediaDriverError: The media driver died, or does not answer in time.
        """

    def add_subscription(
        self, channel: str, stream_id: int, max_message_bytes: int, max_total_bytes: int, timeout_ns: int
    ) -> AeronSubscription:
        """Adds a subscription.

        Messages in pieces are put together up to `max_message_bytes` each and `max_total_bytes` in all.
        """

    def add_counter(self, type_id: int, key: bytes, label: str, timeout_ns: int) -> AeronCounter:
        """Adds a counter; the key has at most 112 bytes, the label 380."""

    def close(self) -> None:
        """Closes it and everything made through it."""

@final
class AeronCounter:
    """A number in the media driver's shared memory; made by `AeronClient.add_counter`."""

    @property
    def counter_id(self) -> int:
        """Its number, unique while it exists."""

    @property
    def closed(self) -> bool:
        """Whether it was closed."""

    def add(self, amount: int) -> int:
        """Adds to the value and gives the new one."""

    def set(self, value: int) -> None:
        """Sets the value."""

    def get(self) -> int:
        """The value."""

    def close(self) -> None:
        """Frees it."""

@final
class AeronPublication:
    """An exclusive publication; made by `AeronClient.add_publication`."""

    def offer(self, message: bytes | bytearray | memoryview) -> int:
        """Sends a message of any length up to `max_message_bytes`, from any contiguous buffer.

        Returns:
            The stream's new position; or -1 when nobody subscribes, -2 when subscribers do not keep up, -3
            when the log is being rotated, -5 at the stream's end.

        Raises:
            TransportError: The message is too long.
            NoMediaDriverError: The media driver died.
        """

    def try_claim(self, message: bytes | bytearray | memoryview) -> int:
        """Like `offer`, in one piece of at most `max_payload_bytes`."""

    @property
    def channel(self) -> str:
        """The channel."""

    @property
    def stream_id(self) -> int:
        """The Aeron stream id."""

    @property
    def session_id(self) -> int:
        """Tells it from other publications of the stream."""

    @property
    def max_message_bytes(self) -> int:
        """The longest message that `offer` takes."""

    @property
    def max_payload_bytes(self) -> int:
        """The longest message that `try_claim` takes."""

    @property
    def term_bytes(self) -> int:
        """Bytes of one term."""

    @property
    def connected(self) -> bool:
        """Whether anybody subscribes."""

    @property
    def position(self) -> int:
        """The position behind the last message."""

    @property
    def counts(self) -> tuple[int, int, int, int, int, int]:
        """Messages and bytes sent; attempts without subscribers, without room; rotations; other failures."""

    @property
    def closed(self) -> bool:
        """Whether it was closed."""

    def close(self) -> None:
        """Closes it."""

@final
class AeronSubscription:
    """A subscription; made by `AeronClient.add_subscription`."""

    def poll(self, limit: int) -> list[tuple[bytes, int, int]]:
        """The messages of up to `limit` fragments, each with its session id and the position behind it."""

    def receive(self, limit: int) -> list[bytes]:
        """The messages of up to `limit` fragments."""

    @property
    def connected(self) -> bool:
        """Whether any publication is heard."""

    def images(self) -> list[tuple[int, int, int, int, str]]:
        """Session id, join time (monotonic nanoseconds), join position, correlation id and source of each."""

    def join_time_ns(self, session_id: int) -> int | None:
        """When the publication of a session became available."""

    def take_image_events(self) -> list[tuple[bool, tuple[int, int, int, int, str]]]:
        """Images that came (true) and went (false) since the last call."""

    @property
    def abandoned_messages(self) -> int:
        """Messages in several pieces that were begun and given up."""

    @property
    def closed(self) -> bool:
        """Whether it was closed."""

    def close(self) -> None:
        """Closes it."""
