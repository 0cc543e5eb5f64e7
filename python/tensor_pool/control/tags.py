"""Names of services, and of what they have."""

from __future__ import annotations

import re
from typing import Final

from tensor_pool.errors import ConfigError

__all__ = ["PREFIX", "check_key", "service_tag"]

PREFIX: Final = "service:"
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}", re.ASCII)
_KEY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/-]{0,127}", re.ASCII)


def service_tag(name: str, instance: str = "") -> str:
    """The tag of a service, from its name or from the tag itself [SVC-7-2].

    Raises:
        ConfigError: It can't be one.

    Example:
        >>> service_tag("recorder"), service_tag("recorder", "2"), service_tag("service:recorder:2")
        ('service:recorder', 'service:recorder:2', 'service:recorder:2')
    """
    name = name.removeprefix(PREFIX)
    parts = [*name.split(":"), instance] if instance else name.split(":")
    if len(parts) > 2 or not all(_NAME.fullmatch(part) for part in parts):
        raise ConfigError(
            f"{':'.join(parts)!r} names no service",
            hint="NAME or NAME:INSTANCE, each of up to 64 letters, digits, '_', '.' and '-'",
        )
    return PREFIX + ":".join(parts)


def check_key(key: str) -> str:
    """The key itself.

    Raises:
        ConfigError: It can't be one.

    Example:
        >>> check_key("record.enable")
        'record.enable'
    """
    if not _KEY.fullmatch(key):
        raise ConfigError(
            f"{key[:140]!r} is no key", hint="up to 128 letters, digits, '_', '.', ':', '/' and '-'"
        )
    return key
