"""The same place for pyarrow, which reads and writes its files, and for `deltalake`, which keeps its log."""

from __future__ import annotations

import urllib.parse
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tensor_pool.pipeline.record.place import Place

__all__ = ["delta_location", "public_uri"]

_AMAZON: Final = {"region": "AWS_REGION", "session_token": "AWS_SESSION_TOKEN"}


def delta_location(
    place: Place, storage_options: Mapping[str, str] | None = None
) -> tuple[str, dict[str, str]]:
    """Where `deltalake` finds a training set, and with which options.

    Args:
        place: The training set. What the URI of an ``s3://`` place says after ``?`` counts here too;
            credentials are in the environment for both.
        storage_options: More of `deltalake`'s options, or others.

    Example:
        >>> from tensor_pool.pipeline.record.place import Place
        >>> uri = "s3://bucket/set?region=eu-west-1&scheme=http&endpoint_override=127.0.0.1:9000"
        >>> delta_location(Place(uri))[1]["AWS_ENDPOINT_URL"]
        'http://127.0.0.1:9000'
    """
    if place.local is not None:
        return str(place.local), dict(storage_options or {})
    parts = urllib.parse.urlsplit(place.uri)
    options: dict[str, str] = {}
    if parts.scheme == "s3":
        given = dict(urllib.parse.parse_qsl(parts.query))
        options = {name: given[key] for key, name in _AMAZON.items() if key in given}
        if "endpoint_override" in given:
            scheme = given.get("scheme", "https")
            options["AWS_ENDPOINT_URL"] = f"{scheme}://{given['endpoint_override']}"
            options["AWS_ALLOW_HTTP"] = str(scheme == "http").lower()
    return public_uri(place.uri), options | dict(storage_options or {})


def public_uri(uri: str) -> str:
    """A URI without what others need not know: the name and secret of a user, and options.

    Example:
        >>> public_uri("s3://me:secret@bucket/set?region=eu-west-1")
        's3://bucket/set'
    """
    parts = urllib.parse.urlsplit(uri)
    return urllib.parse.urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
