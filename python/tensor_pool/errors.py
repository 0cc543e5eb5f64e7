"""Every error that the library raises on purpose.

::

    TensorPoolError
    ├── ConfigError              (ValueError)       a configuration value is unknown, missing or out of range
    ├── SchemaError              (ValueError)       a message schema is wrong, or a struct does not match it
    ├── MalformedMessageError    (ValueError)       bytes that are not the message they claim to be
    │   └── MetadataError        (ConfigError)      a key or value that metadata can't carry
    ├── TransportError           (ConnectionError)  Aeron could not do what was asked
    │   ├── NoMediaDriverError                      no media driver serves that directory, or it died
    │   ├── AeronClientLostError                    the media driver gave this process up
    │   ├── ChannelError         (ValueError)       a channel or stream id that Aeron refuses
    │   └── BackPressureError                       the other side does not keep up (policy: raise)
    ├── NoDriverError            (ConnectionError)  no SHM driver answers
    ├── AttachRefusedError                          the driver said no, and why
    ├── LeaseLostError           (ConnectionError)  the driver ended the lease, or the driver is gone
    ├── NoStreamError            (LookupError)      nobody produces the stream
    ├── NoServiceError           (LookupError)      no service of that name answers
    ├── CommandRefusedError                         a service said no to a command, and why
    ├── RegionError              (OSError)          a shared-memory file can't be made, opened or trusted
    │   ├── RegionUriError       (ValueError)       not of the form shm:file?path=/...
    │   └── RegionFullError                         the file system has no room for the region
    ├── FrameError                                  about one frame
    │   ├── FrameTooLargeError   (ValueError)       larger than every payload pool of the stream
    │   ├── FrameOverwrittenError                   the producer reused the slot while the frame was in use
    │   ├── TensorLayoutError    (ValueError)       dtype, shape or strides that the layout can't carry
    │   └── ClaimError                              claims committed out of order, twice, or too many of them
    ├── ClosedError              (ValueError)       the object was closed
    └── ForkedProcessError       (RuntimeError)     a handle of the parent process, used in a forked child

Drops are data, not errors: a consumer counts them by reason in its statistics.
"""

from __future__ import annotations

__all__ = [
    "AeronClientLostError",
    "TensorPoolError",
    "ConfigError",
    "SchemaError",
    "MalformedMessageError",
    "MetadataError",
    "TransportError",
    "NoMediaDriverError",
    "ChannelError",
    "BackPressureError",
    "NoDriverError",
    "AttachRefusedError",
    "LeaseLostError",
    "NoStreamError",
    "NoServiceError",
    "CommandRefusedError",
    "RegionError",
    "RegionUriError",
    "RegionFullError",
    "FrameError",
    "FrameTooLargeError",
    "FrameOverwrittenError",
    "TensorLayoutError",
    "ClaimError",
    "ClosedError",
    "ForkedProcessError",
]


class TensorPoolError(Exception):
    """The parent of every error here.

    Args:
        message: What went wrong, with the values that matter.
        hint: What to try, in one line; shown after the message.
        where: The file, key, option or place it is about, in one line, where the message does not say so.

    Example:
        >>> print(TensorPoolError("no stream named 'camera-1'", hint="`tpool streams` lists what is there"))
        no stream named 'camera-1'
          try: `tpool streams` lists what is there
    """

    def __init__(self, message: str = "", *, hint: str | None = None, where: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.where = where

    def __str__(self) -> str:
        lines = [self.message]
        if self.where is not None:
            lines.append(f"   at: {self.where}")
        if self.hint is not None:
            lines.append(f"  try: {self.hint}")
        return "\n".join(lines)


class ConfigError(TensorPoolError, ValueError):
    """A configuration value is unknown, missing or out of range."""


class SchemaError(TensorPoolError, ValueError):
    """A message schema is wrong, or a struct does not match it."""


class MalformedMessageError(TensorPoolError, ValueError):
    """Bytes that are not the message they claim to be, or values that a message can't carry."""


class MetadataError(MalformedMessageError, ConfigError):
    """A key or a value that the metadata of a stream can't carry."""


class TransportError(TensorPoolError, ConnectionError):
    """Aeron could not do what was asked."""


class NoMediaDriverError(TransportError):
    """No media driver serves that directory, or it died."""


class AeronClientLostError(TransportError):
    """The media driver gave this process up, silent for seconds as it was; connect again."""


class ChannelError(TransportError, ValueError):
    """A channel or stream id that Aeron refuses."""


class BackPressureError(TransportError):
    """The other side does not keep up, and the policy says to raise."""


class NoDriverError(TensorPoolError, ConnectionError):
    """No SHM driver answers."""


class AttachRefusedError(TensorPoolError):
    """The driver refused an attach; its own words are in the message."""

    may_pass: bool = False
    """Whether it is about what others have at the moment: another producer, a limit."""


class LeaseLostError(TensorPoolError, ConnectionError):
    """The lease on a stream ended: revoked, expired, or its driver is gone."""


class NoStreamError(TensorPoolError, LookupError):
    """Nobody produces a stream of that name or id."""


class NoServiceError(TensorPoolError, LookupError):
    """No service of that name answers."""


class CommandRefusedError(TensorPoolError):
    """A service did not accept a command; its own words are in the message."""


class RegionError(TensorPoolError, OSError):
    """A file in shared memory can't be created, opened or trusted."""


class RegionUriError(RegionError, ValueError):
    """Not a region URI of the form ``shm:file?path=/...``."""


class RegionFullError(RegionError):
    """The file system has no room for the region."""


class FrameError(TensorPoolError):
    """About one frame."""


class FrameTooLargeError(FrameError, ValueError):
    """A frame larger than every payload pool of its stream."""


class FrameOverwrittenError(FrameError):
    """The producer reused the slot while the frame was in use, or nobody vouches for the memory any more."""


class TensorLayoutError(FrameError, ValueError):
    """A dtype, shape or strides that the layout can't carry."""


class ClaimError(FrameError):
    """Claims committed out of order, committed twice, or too many of them."""


class ClosedError(TensorPoolError, ValueError):
    """The object was closed."""


class ForkedProcessError(TensorPoolError, RuntimeError):
    """A handle of the parent process, used in a forked child."""


def raised_at(error: BaseException) -> str:
    """File, line and function of the innermost Python frame, as text: nothing is kept alive.

    Example:
        >>> raised_at(ValueError("only made"))
        'never raised'
    """
    traceback = error.__traceback__
    if traceback is None:
        return "never raised"
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    code = traceback.tb_frame.f_code
    return f"{code.co_filename}:{traceback.tb_lineno} in {code.co_name}"
