"""Takes commands for one service: checks them, carries them out, and says which were accepted."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from tensor_pool.control.declared import Command, Property, RefusedValueError, check_value
from tensor_pool.control.events import event_message
from tensor_pool.control.tags import check_key
from tensor_pool.control.values import Value, decode_value
from tensor_pool.errors import MalformedMessageError, TensorPoolError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tensor_pool.wire.messages import EventMessage

__all__ = ["OWN_KEYS", "DeclaredKey", "Posted", "Refusal", "ServiceDesk"]

OWN_KEYS: Final = "service."
"""Keys that begin so are the framework's."""
_MAX_REASON: Final = 500
_MAX_POSTED: Final = 4_096


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why a command was not accepted; goes to the status stream as JSON.

    Example:
        >>> Refusal(key="gain", correlation_id=7, reason="wrong_value", text="'high' is not a number").reason
        'wrong_value'
    """

    key: str
    correlation_id: int
    reason: str
    """For counters: malformed, unknown_key, read_only, wrong_value, failed or not_allowed."""
    text: str
    """For people."""


class DeclaredKey(msgspec.Struct, frozen=True, kw_only=True):
    """A property or command as a service describes it.

    Example:
        >>> DeclaredKey(key="gain", kind="float", expects="a number from 0", doc="How bright.").kind
        'float'
    """

    key: str
    kind: str
    expects: str
    doc: str = ""
    read_only: bool = False


class Posted(NamedTuple):
    """Something that a service wants told."""

    key: str
    value: Value
    correlation_id: int


class ServiceDesk:
    """The properties of a service and what can be done with it.

    Commands come one after the other from one thread; everything else may be called from any.

    Args:
        declared: Keys with what they stand for.

    Raises:
        ValueError: A key can't be one.

    Example:
        >>> from tensor_pool.control.events import event_message
        >>> desk = ServiceDesk({"gain": Property(float, default=1.0, least=0)})
        >>> desk.take(event_message("service:camera", "gain", 2.5)), desk["gain"]
        (None, 2.5)
        >>> desk.take(event_message("service:camera", "gain", -1.0, correlation_id=7)).text
        '-1.0 is not a number from 0'
    """

    def __init__(self, declared: Mapping[str, Property | Command]) -> None:
        for key, each in declared.items():
            if check_key(key).startswith(OWN_KEYS):
                raise ValueError(f"{key!r}: keys that begin with {OWN_KEYS!r} are taken")
            if not isinstance(each, Property | Command):
                raise TypeError(f"{key!r} is neither a Property nor a Command: {each!r}")
        self._declared = dict(declared)
        self._lock = threading.Lock()
        self._values: dict[str, Any] = {
            key: each.default for key, each in declared.items() if isinstance(each, Property)
        }
        self._changed: dict[str, None] = {}
        self._posted: deque[Posted] = deque(maxlen=_MAX_POSTED)

    def __getitem__(self, key: str) -> Any:
        """The present value of a property."""
        with self._lock:
            return self._values[key]

    @property
    def values(self) -> dict[str, Any]:
        """All properties."""
        with self._lock:
            return dict(self._values)

    def describe(self, kind: type[Property | Command]) -> list[DeclaredKey]:
        """All properties, or all commands."""
        return [
            DeclaredKey(
                key=key,
                kind="none" if each.kind is None else each.kind.__name__,
                expects=each.expects,
                doc=each.doc,
                read_only=isinstance(each, Property) and each.read_only,
            )
            for key, each in self._declared.items()
            if isinstance(each, kind)
        ]

    def set(self, key: str, value: Any) -> None:
        """The service itself changes a property; read-only ones too, and without `on_change`.

        Raises:
            KeyError: There is no such property.
            ValueError: The value is none for it.
        """
        declared = self._declared[key]
        if not isinstance(declared, Property):
            raise KeyError(f"{key} is a command")
        value = check_value(declared, value)
        with self._lock:
            if self._values[key] != value:
                self._values[key] = value
                self._changed[key] = None

    def post(self, key: str, value: Value = None, *, correlation_id: int = 0) -> None:
        """Has everybody told of something that happened; when too much waits, the oldest is forgotten.

        Raises:
            ValueError: The key can't be one, or an event can't carry the value.
        """
        event_message("", key, value)  # says what is wrong with it
        self._posted.append(Posted(check_key(key), value, correlation_id))

    def take_posted(self) -> list[Posted]:
        """What was posted since the last call."""
        return [self._posted.popleft() for _ in range(len(self._posted))]

    def take_changed(self) -> dict[str, Any]:
        """Properties that the service itself changed since the last call."""
        with self._lock:
            changed = {key: self._values[key] for key in self._changed}
            self._changed.clear()
            return changed

    def take(self, event: EventMessage) -> Refusal | None:
        """Carries out a command; None when it was accepted."""
        try:
            self._carry_out(event)
        except _RefusedError as e:
            return Refusal(
                key=event.key[:_MAX_REASON],
                correlation_id=event.correlation_id,
                reason=e.reason,
                text=e.text[:_MAX_REASON],
            )
        return None

    def _carry_out(self, event: EventMessage) -> None:
        declared = self._declared.get(event.key)
        if declared is None:
            known = ", ".join(self._declared) or "none"
            raise _RefusedError("unknown_key", f"there is no such key; there are {known}")
        if isinstance(declared, Property) and declared.read_only:
            raise _RefusedError("read_only", "only the service itself sets it")
        try:
            value = check_value(declared, decode_value(event))
        except MalformedMessageError as e:
            raise _RefusedError("malformed", e.message) from e
        except RefusedValueError as e:
            raise _RefusedError("wrong_value", str(e)) from e
        except Exception as e:  # a check of the service's own that fails
            raise _RefusedError("failed", _words(e)) from e
        act = declared.run if isinstance(declared, Command) else declared.on_change
        arguments = [value]
        if isinstance(declared, Command) and declared.takes_correlation_id:
            arguments.append(event.correlation_id)
        if act is not None:
            try:
                act(*arguments)
            except Exception as e:  # whatever it is, other commands go on
                raise _RefusedError("failed", _words(e)) from e
        if isinstance(declared, Property):
            with self._lock:
                self._values[event.key] = value


class _RefusedError(Exception):
    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text


def _words(error: Exception) -> str:
    """What an error says, whatever it is: it becomes a message."""
    try:
        text = error.message if isinstance(error, TensorPoolError) else str(error)
    except Exception:  # even that may fail
        text = ""
    return (text or type(error).__name__).encode("utf-8", "backslashreplace").decode()
