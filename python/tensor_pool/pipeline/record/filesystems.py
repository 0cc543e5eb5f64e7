"""Filesystems by URI: opened without credentials in it, and their errors in words that help."""

from __future__ import annotations

import re
import urllib.parse
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.fs as pafs

from tensor_pool.errors import ConfigError, RegionError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["explain", "is_object_store", "open_filesystem", "refuse_credentials"]

_SECRET_OPTION: Final = re.compile(
    r"secret|password|token|access_key|account_key|credential(?!_kind)", re.IGNORECASE
)
_OBJECT_STORES: Final = {"s3", "gs", "gcs", "abfs", "abfss"}
_CREDENTIALS: Final = (
    "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment; workers of Spark need them too "
    "(spark.executorEnv.AWS_ACCESS_KEY_ID=...)"
)
_CAUSES: Final = (
    (r"NO_SUCH_BUCKET|NoSuchBucket", "make the bucket, or correct its name"),
    (
        (
            r"ACCESS_DENIED|INVALID_ACCESS_KEY_ID|SIGNATURE_DOES_NOT_MATCH|EXPIRED_TOKEN|INVALID_CLIENT_TOKEN"
            r"|UNRECOGNIZED_CLIENT|MISSING_AUTHENTICATION|HTTP response code 40[13]"
        ),
        _CREDENTIALS,
    ),
    (
        r"NETWORK_CONNECTION|Could not connect|Timeout was reached|resolve host|ENDPOINT",
        (
            "see that the store runs and can be reached; "
            "?endpoint_override=host:port names one that is not Amazon's"
        ),
    ),
    (r"[Nn]o space|ENOSPC|QUOTA|[Qq]uota|NO_FREE|INSUFFICIENT|not enough space", "make room in the store"),
    (r"SLOW_DOWN|SERVICE_UNAVAILABLE|TOO_MANY|INTERNAL", "the store is busy or not well; try again later"),
)
_CONNECT_S: Final = 5
_SILENCE_S: Final = 10
_ATTEMPTS: Final = 3
_S3_OPTIONS: Final[dict[str, Callable[[str], Any]]] = {
    "region": str,
    "scheme": str,
    "endpoint_override": str,
    "allow_bucket_creation": lambda text: text.lower() == "true",
    "allow_bucket_deletion": lambda text: text.lower() == "true",
}


def refuse_credentials(uri: str) -> None:
    """Refuses a URI with a password in it: it would end up in tables, reports, logs and lists of processes.

    Raises:
        ConfigError: There is one; the message does not repeat it.

    Example:
        >>> refuse_credentials("s3://bucket/run?region=eu-west-1")
        >>> refuse_credentials("s3://me:mine@bucket/run")
        Traceback (most recent call last):
        tensor_pool.errors.ConfigError: there are credentials in the URI s3://...@bucket
          try: leave them out; ...
    """
    scheme, _, rest = uri.partition("://")
    base, _, query = rest.partition("?")
    netloc = base.partition("/")[0]
    user, at, host = netloc.rpartition("@")
    # Some stores name other things before the @: a user of HDFS, a container of Azure. Buckets of S3 have
    # neither @ nor colons, so that a secret with an unquoted slash is noticed as well.
    is_secret = (":" in netloc or bool(at)) if scheme == "s3" else ":" in user
    named = [key for key, _ in urllib.parse.parse_qsl(query) if _SECRET_OPTION.search(key)]
    if is_secret or named:
        shown = (
            f"{scheme}://...@{host if at else '...'}"
            if is_secret
            else f"{scheme}://{base} ({', '.join(named)})"
        )
        raise ConfigError(
            f"there are credentials in the URI {shown}", hint=f"leave them out; for s3:// put {_CREDENTIALS}"
        )


def is_object_store(uri: str) -> bool:
    """Whether a file appears there whole or not at all, without a temporary name."""
    return uri.partition("://")[0] in _OBJECT_STORES


@cache
def open_filesystem(uri: str) -> tuple[pafs.FileSystem, str]:
    """The filesystem of a URI without a path, and what it calls that place.

    Raises:
        ConfigError: There is none.
    """
    parts = urllib.parse.urlsplit(uri)
    options = dict(urllib.parse.parse_qsl(parts.query))
    try:
        if parts.scheme == "s3" and not set(options) - set(_S3_OPTIONS):
            return _open_s3(parts.netloc, options), parts.netloc
        filesystem, base = pafs.FileSystem.from_uri(uri)
    except (pa.ArrowException, OSError, ValueError) as e:
        raise ConfigError(
            f"no filesystem for {uri.partition('?')[0]}: {e}",
            hint="a path, or a URI that pyarrow knows: s3://bucket/path?region=eu-west-1, hdfs://host:8020/path",
        ) from None
    return filesystem, base


def _open_s3(bucket: str, options: dict[str, str]) -> pafs.S3FileSystem:
    """With an end to waiting: made from the URI it would try for minutes when nobody answers."""
    if not bucket:
        raise ValueError("no bucket")
    settings: dict[str, Any] = {name: _S3_OPTIONS[name](text) for name, text in options.items()}
    if "region" not in settings and "endpoint_override" not in settings:
        settings["region"] = pafs.resolve_s3_region(bucket)
    return pafs.S3FileSystem(
        **settings,
        connect_timeout=_CONNECT_S,
        request_timeout=_SILENCE_S,
        retry_strategy=pafs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
    )


def explain(doing: str, error: OSError) -> RegionError:
    """An error of a store with what to do about it.

    Args:
        doing: What was tried, such as "read s3://bucket/run".
        error: What the filesystem said.

    Example:
        >>> print(explain("read s3://b/x", OSError("AWS Error ACCESS_DENIED during HeadObject")))
        can't read s3://b/x: AWS Error ACCESS_DENIED during HeadObject
          try: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment; ...
    """
    if isinstance(error, RegionError):
        return error
    text = error.strerror or str(error)
    # "When listing objects under key ...: AWS Error ...": who asked is in `doing`.
    text = text[text.index("AWS Error") :] if "AWS Error" in text else text
    hint = next((hint for pattern, hint in _CAUSES if re.search(pattern, text)), None)
    return RegionError(f"can't {doing}: {text}", hint=hint)
