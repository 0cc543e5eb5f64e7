"""``tpool wire``: messages, slots and superblocks as JSON, and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import click

from tensor_pool.errors import MalformedMessageError, TensorPoolError
from tensor_pool.ops.cli import exit_codes, failures
from tensor_pool.ops.cli.output import print_record
from tensor_pool.wire.json_form import from_json_form, guess_kind, to_json_form

__all__ = ["wire"]

# Aeron carries messages of at most 16 MiB; their JSON has two characters for a byte, and some around it.
_MAX_MESSAGE_BYTES: Final = 16 << 20
_MAX_JSON_BYTES: Final = 64 << 20

_KINDS: Final = {"message": "message", "slot": "slot256", "superblock": "superblock"}


@click.group()
def wire() -> None:
    """Translate between bytes and JSON."""


@wire.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--as", "kind", type=click.Choice(list(_KINDS)), help="What the files hold; guessed if not given."
)
@click.pass_context
def decode(context: click.Context, files: tuple[Path, ...], kind: str | None) -> None:
    """Print one JSON object for each of FILES.

    A file holds one framed message, one 256-byte slot, or a region (its superblock is shown). Files that
    can't be decoded are reported on standard error; the others are printed all the same.
    """
    refused = 0
    for file in files:
        try:
            data = _read(file, _MAX_MESSAGE_BYTES)
            form = to_json_form(data, _KINDS[kind] if kind else None)
        except TensorPoolError as e:
            refused += 1
            _report(file, e, "`--as message|slot|superblock` says what the file holds")
            continue
        print_record({"file": file.name, **form}, "jsonl")
    if refused:
        context.exit(exit_codes.PROBLEMS)


@wire.command()
@click.argument("json_file", type=click.Path(path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="Where the bytes go.")
@click.pass_context
def encode(context: click.Context, json_file: Path, output: Path) -> None:
    """Write the bytes that JSON_FILE describes.

    JSON_FILE holds one object as `decode` prints it.
    """
    try:
        encoded = from_json_form(_parse(_read(json_file, _MAX_JSON_BYTES)))
        _write(output, encoded)
    except TensorPoolError as e:
        _report(json_file, e, "`tpool wire decode FILE` shows the form that is needed")
        context.exit(exit_codes.PROBLEMS)


def _read(file: Path, limit: int) -> bytes:
    """The content of a file. Only a region may go on behind the limit: its start is all that matters."""
    try:
        with file.open("rb") as stream:
            content = stream.read(limit + 1)
    except OSError as e:
        raise TensorPoolError(f"can't be read: {e.strerror}", hint="check the path") from None
    if len(content) > limit and guess_kind(content) != "superblock":
        raise TensorPoolError(f"larger than {limit >> 20} MiB, which no message is")
    return content


def _write(file: Path, content: bytes) -> None:
    try:
        file.write_bytes(content)
    except OSError as e:
        raise TensorPoolError(f"can't write {file}: {e.strerror}", hint="choose another -o") from None


def _parse(text: bytes) -> object:
    """A JSON value; one alone in a list counts as itself."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise MalformedMessageError(f"not JSON: {e}") from None
    if isinstance(value, list):
        if len(value) != 1:
            raise MalformedMessageError(f"a list of {len(value)}", hint="encode takes one object")
        return value[0]
    return value


def _report(file: Path, error: TensorPoolError, hint: str) -> None:
    """Says what is wrong with a file, with a hint of its own where the error has none."""
    failures.report(TensorPoolError(f"{file}: {error.message}", hint=error.hint or hint))
