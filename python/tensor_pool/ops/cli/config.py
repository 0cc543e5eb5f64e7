"""``tpool config``: which values hold and why, whether a file is right, what a key means."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from tensor_pool.config import check_file
from tensor_pool.config.keys import section_keys
from tensor_pool.config.layers import FILE_NAME, find_file
from tensor_pool.config.registry import SECTIONS
from tensor_pool.config.toml_text import commented_defaults, config_toml
from tensor_pool.errors import ConfigError
from tensor_pool.ops.cli import exit_codes
from tensor_pool.ops.cli.options import config_options, format_option
from tensor_pool.ops.cli.output import print_record, print_rows

if TYPE_CHECKING:
    from tensor_pool.config import Config, Entry
    from tensor_pool.ops.cli.output import OutputFormat

__all__ = ["config"]


@click.group
def config() -> None:
    """Show, check, explain and write configuration.

    Values come from, later ones winning: defaults, one tensor-pool.toml, the environment
    (TENSOR_POOL__SECTION__KEY) and the command line (--set section.key=value).

    \b
    The file is the first that there is of:
      --config FILE
      $TENSOR_POOL__CONFIG
      ./tensor-pool.toml
      ~/.config/tensor-pool/tensor-pool.toml
      /etc/tensor-pool/tensor-pool.toml
    """  # noqa: D301 - click's mark for text that stays as it is


@config.command
@format_option("toml")
@config_options
def show(config: Config, output_format: OutputFormat | Literal["toml"]) -> None:
    """Print the values that hold and where each comes from."""
    if output_format == "toml":
        click.echo(config_toml(config), nl=False)
    else:
        rows = (_row(entry, output_format) for entry in config.entries())
        print_rows(rows, ["key", "value", "origin"], output_format)


@config.command
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@format_option()
def check(file: Path | None, output_format: OutputFormat) -> None:
    """Say what is wrong with FILE; without it, with the file that would be used."""
    path = file or find_file(None, os.environ)
    if path is None:
        raise ConfigError("there is no configuration file", hint=f"`tpool config init` writes {FILE_NAME}")
    problems = check_file(path)
    rows = [{"key": p.key, "problem": p.what, "try": p.hint, "file": str(path)} for p in problems]
    if rows or output_format != "table":
        print_rows(rows, ["key", "problem", "try"], output_format)
    else:
        click.echo(f"{path}: ok")
    if problems:
        raise click.exceptions.Exit(exit_codes.PROBLEMS)


@config.command
@click.argument("key")
@format_option()
@config_options
def explain(key: str, config: Config, output_format: OutputFormat) -> None:
    """Say what KEY means, what it allows, what it is and why. KEY may be a whole section."""
    if key in SECTIONS:
        rows = [{"key": k.path, "allowed": k.allowed, "doc": k.doc} for k in section_keys(key).values()]
        print_rows(rows, ["key", "allowed", "doc"], output_format)
        return
    entry = config.entry(key)
    shown = output_format == "table"
    print_record(
        {
            "key": entry.key.path,
            "doc": entry.key.doc,
            "allowed": entry.key.allowed,
            "default": _value(entry, entry.key.default) if shown else entry.key.default,
            "value": _value(entry, entry.value) if shown else entry.value,
            "origin": str(entry.origin),
            "environment": entry.key.environment_name,
        },
        output_format,
    )


@config.command
@click.argument("path", default=FILE_NAME, type=click.Path(path_type=Path, allow_dash=True))
@click.option("--force", is_flag=True, help="Overwrite the file if there is one.")
def init(path: Path, *, force: bool) -> None:
    """Write a file with every key, its documentation and its default, to PATH ("-" prints it)."""
    text = commented_defaults()
    if str(path) == "-":
        click.echo(text, nl=False)
        return
    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except OSError as e:
        hint = "--force overwrites it" if e.errno == errno.EEXIST else "name another place"
        raise ConfigError(f"can't write the file: {e.strerror}", where=str(path), hint=hint) from None
    click.echo(f"wrote {path}", err=True)


def _row(entry: Entry, shape: str) -> dict[str, Any]:
    value = _value(entry, entry.value) if shape == "table" else entry.value
    return {"key": entry.key.path, "value": value, "origin": str(entry.origin)}


def _value(entry: Entry, value: Any) -> str:
    return "(required)" if entry.key.is_required and value is entry.key.default else entry.key.show(value)
