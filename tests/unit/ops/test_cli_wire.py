"""`tpool wire decode` and `tpool wire encode`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tensor_pool.ops.cli.wire import wire
from wire_vectors import FOREIGN, VECTORS, foreign_index, reference_entries

ENTRIES = reference_entries()


def run(*arguments: object) -> Result:
    result = CliRunner().invoke(wire, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def assert_refused(result: Result, problem: str) -> None:
    """Exit code 1, one line that says what is wrong and one that says what to try; no traceback."""
    assert result.exit_code == 1
    assert result.stdout == ""
    error, hint = result.stderr.splitlines()
    assert error.startswith("error: ")
    assert problem in error
    assert hint.startswith("  try: ")


def test_one_object_a_file_in_the_order_of_the_files():
    files = [VECTORS / entry["file"] for entry in ENTRIES]
    result = run("decode", *files)
    assert result.exit_code == 0
    assert result.stderr == ""
    printed = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(printed) == len(ENTRIES)
    for form, entry in zip(printed, ENTRIES, strict=True):
        for key in ("file", "kind", "message", "header", "fields"):
            assert form.get(key) == entry.get(key)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["file"])
@pytest.mark.parametrize("named", [True, False], ids=["as", "guessed"])
def test_decode_then_encode_gives_the_bytes_back(entry, named, tmp_path):
    name = {"message": "message", "slot256": "slot", "superblock": "superblock"}[entry["kind"]]
    options = ["--as", name] if named else []
    printed = tmp_path / "form.json"
    printed.write_text(run("decode", *options, VECTORS / entry["file"]).stdout)
    result = run("encode", printed, "-o", tmp_path / "bytes")
    assert result.exit_code == 0
    assert result.output == ""
    assert (tmp_path / "bytes").read_bytes() == (VECTORS / entry["file"]).read_bytes()


def test_index_entries_encode_alone_or_in_a_list(tmp_path):
    for entry in ENTRIES[:3]:
        for text in (json.dumps(entry), json.dumps([entry]), json.dumps(entry, indent=2)):
            (tmp_path / "form.json").write_text(text)
            assert run("encode", tmp_path / "form.json", "-o", tmp_path / "bytes").exit_code == 0
            assert (tmp_path / "bytes").read_bytes() == (VECTORS / entry["file"]).read_bytes()


def test_every_foreign_file_decodes():
    files = [FOREIGN / entry["file"] for entry in foreign_index()["messages"]]
    files += sorted(FOREIGN.glob("**/*.slot.bin"))
    files += [*FOREIGN.glob("**/header.ring"), *FOREIGN.glob("**/*.pool")]
    assert len(files) == 220 + 27 + 10
    result = run("decode", *files)
    assert result.exit_code == 0
    kinds = [json.loads(line)["kind"] for line in result.stdout.splitlines()]
    assert kinds == ["message"] * 220 + ["slot256"] * 27 + ["superblock"] * 10


def test_a_region_shows_its_superblock():
    result = run("decode", FOREIGN / "shm_final" / "header.ring")
    assert json.loads(result.stdout)["fields"]["nslots"] == 8
    assert json.loads(result.stdout)["file"] == "header.ring"


def test_good_files_are_printed_even_if_others_are_bad(tmp_path):
    (tmp_path / "bad.bin").write_bytes(b"nonsense!")
    good = VECTORS / ENTRIES[0]["file"]
    result = run("decode", good, tmp_path / "bad.bin", good)
    assert result.exit_code == 1
    assert len(result.stdout.splitlines()) == 2
    assert result.stderr.count("error: ") == 1
    assert "bad.bin" in result.stderr


@pytest.mark.parametrize(
    ("content", "options", "problem"),
    [
        (b"", (), "0 bytes can't hold a message header"),
        (b"12345", (), "5 bytes can't hold a message header"),
        (bytes(100), (), "schema 0 has no message 0"),
        (bytes(100), ("--as", "slot"), "a slot has 256 bytes, not 100"),
        (bytes(64), ("--as", "superblock"), "a region starts with the number"),
        (b"", ("--as", "superblock"), "a region starts with the number"),
        (b"1MHSLPOT", (), "8 bytes can't hold"),
        ((VECTORS / "900_08_DataSourceMeta_2attrs.bin").read_bytes()[:-1], (), "7 bytes announced, 6 left"),
    ],
)
def test_decode_refuses(content, options, problem, tmp_path):
    (tmp_path / "file.bin").write_bytes(content)
    assert_refused(run("decode", *options, tmp_path / "file.bin"), problem)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("NaN", "an object is needed"),
        ('{"fields": ' + "9" * 5000 + "}", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "a list of 0"),
        ('[{"a": 1}, {"a": 2}]', "a list of 2"),
        ("7", "an object is needed"),
        ("{}\n{}", "not JSON"),
        ('{"message": "FrameDescriptor", "fields": {"stream_id": 1}}', "fields.epoch: missing"),
    ],
    ids=lambda value: value[:30],
)
def test_encode_refuses(text, problem, tmp_path):
    (tmp_path / "form.json").write_text(text)
    output = tmp_path / "bytes"
    assert_refused(run("encode", tmp_path / "form.json", "-o", output), problem)
    assert not output.exists()


def test_encode_refuses_bytes_that_are_no_text(tmp_path):
    (tmp_path / "form.json").write_bytes(b"\xff\xfe\xfa")
    assert_refused(run("encode", tmp_path / "form.json", "-o", tmp_path / "bytes"), "not JSON")


def test_files_that_can_not_be_read_or_written(tmp_path):
    assert_refused(run("decode", tmp_path / "missing"), "can't be read")
    assert_refused(run("decode", tmp_path), "can't be read")
    assert_refused(run("encode", tmp_path / "missing", "-o", tmp_path / "bytes"), "can't be read")
    (tmp_path / "form.json").write_text(json.dumps(ENTRIES[0]))
    assert_refused(run("encode", tmp_path / "form.json", "-o", tmp_path / "no" / "bytes"), "can't write")


def test_endless_files_are_not_read_to_their_end():
    if not Path("/dev/zero").exists():
        pytest.skip("no /dev/zero here")
    assert_refused(run("decode", "/dev/zero"), "larger than 16 MiB")
    assert_refused(run("encode", "/dev/zero", "-o", "/dev/null"), "larger than 64 MiB")


@pytest.mark.parametrize(
    "arguments",
    [
        ("decode",),
        ("encode",),
        ("encode", "form.json"),
        ("decode", "--as", "poem", "file"),
        ("decode", "--frobnicate", "file"),
        ("translate",),
    ],
)
def test_usage_errors(arguments):
    result = run(*arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_help():
    for arguments in (["--help"], ["decode", "--help"], ["encode", "--help"]):
        result = run(*arguments)
        assert result.exit_code == 0
        assert "JSON" in result.output


def test_a_file_name_that_is_not_utf8_does_no_harm(tmp_path):
    odd = tmp_path / os.fsdecode(b"odd-\xff.bin")
    odd.write_bytes((VECTORS / ENTRIES[0]["file"]).read_bytes())
    result = run("decode", odd)
    assert result.exit_code == 0
    assert json.loads(result.stdout)["file"] == odd.name
