"""``tpool version``: what to put into a bug report."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from typing import TYPE_CHECKING

import click

import tensor_pool
from tensor_pool.ops.cli.options import format_option
from tensor_pool.ops.cli.output import print_record

if TYPE_CHECKING:
    from tensor_pool.ops.cli.output import OutputFormat

__all__ = ["version"]


@click.command
@click.option("--verbose", "-v", is_flag=True, help="Also print what this runs on and with.")
@format_option()
def version(*, verbose: bool, output_format: OutputFormat) -> None:
    """Print the version; --verbose for bug reports."""
    if not verbose and output_format == "table":
        click.echo(tensor_pool.__version__)
        return
    facts = {"shm-tensor-pool": tensor_pool.__version__}
    if verbose:
        facts |= {
            "python": f"{platform.python_implementation()} {platform.python_version()}",
            "platform": platform.platform(),
            "kernel": platform.release(),
            "machine": platform.machine(),
            "cpus": str(os.cpu_count()),
            "libc": " ".join(platform.libc_ver()).strip(),
        }
        facts |= {name: _package_version(name) for name in ("numpy", "msgspec", "click", "rich")}
        facts["native module"] = _native_module()
    print_record(facts, output_format)


def _package_version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def _native_module() -> str:
    """Whether the native module loads, which is what most broken installations get wrong."""
    try:
        from tensor_pool import _native  # noqa: PLC0415 - its failure is a fact to report
    except ImportError as e:
        return f"does not load: {e}"
    return str(getattr(_native, "__file__", "built in"))
