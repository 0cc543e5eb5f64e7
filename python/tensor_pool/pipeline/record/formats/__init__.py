"""What recordings can be exported to, one module a format; each is imported when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from tensor_pool.errors import ConfigError

if TYPE_CHECKING:
    from tensor_pool.pipeline.record.formats.writer import StreamFormat

__all__ = ["FORMATS", "open_format"]

FORMATS: Final = {
    "parquet": "tensor_pool.pipeline.record.formats.parquet_file:ParquetFile",
    "zarr": "tensor_pool.pipeline.record.formats.zarr_group:ZarrGroup",
    "npy": "tensor_pool.pipeline.record.formats.npy_files:NpyFiles",
    "arrow": "tensor_pool.pipeline.record.formats.arrow_file:ArrowFile",
}
"""Where each is."""


def open_format(name: str) -> StreamFormat:
    """What writes one stream in a format.

    Raises:
        ConfigError: There is no such format, or it needs a package that is not installed.

    Example:
        >>> open_format("npy").__name__
        'NpyFiles'
    """
    if name not in FORMATS:
        raise ConfigError(f"there is no format {name!r}", hint=f"there are {', '.join(FORMATS)}")
    module, _, attribute = FORMATS[name].partition(":")
    try:
        found: StreamFormat = getattr(import_module(module), attribute)
    except ModuleNotFoundError as e:
        raise ConfigError(
            f"the format {name} needs the module {e.name}, which is not installed",
            hint=f"pip install 'shm-tensor-pool[{'zarr' if name == 'zarr' else 'record'}]'",
        ) from None
    return found
