"""Recordings in a real object store: they get there whole, and are read from there by ranges."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from counting_proxy import counting_proxy
from recordings import record, record_arrays
from s3_server import BUCKET, credentials_of, s3_server
from tensor_pool.errors import ConfigError, RegionError
from tensor_pool.ops.cli.root import run
from tensor_pool.pipeline.record import sending
from tensor_pool.pipeline.record.catalogue import load_catalogue
from tensor_pool.pipeline.record.filesystems import open_filesystem
from tensor_pool.pipeline.record.place import Place
from tensor_pool.pipeline.record.recording import Recording, Span
from tensor_pool.pipeline.record.upload import StreamUpload, push
from tensor_pool.pipeline.record.uploader import Uploader
from tensor_pool.pipeline.record.verify import verify
from tensor_pool.testing import wait_until

MIB = 1 << 20


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def credentials(server):
    with credentials_of(server):
        yield


@pytest.fixture
def there(server, credentials, request):
    return Place(server.uri(BUCKET, request.node.name, credentials=False))


@pytest.fixture
def here(tmp_path):
    record(tmp_path / "here")
    return tmp_path / "here"


def values(recording):
    return [
        (name, msgspec.structs.asdict(frame.row), frame.metadata, frame.array().tobytes())
        for name, stream in recording.items()
        for frame in stream.frames()
    ]


def cli(capsys, *arguments):
    code = run([str(argument) for argument in arguments])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_a_recording_elsewhere_is_the_recording_that_is_here(here, there):
    record(here, "b")
    done = push(here, there)
    assert [(stream.stream, stream.present, stream.missed) for stream in done] == [
        ("b", 0, 0),
        ("camera%2F1", 0, 0),
    ]
    assert done[0].segments == len(Recording(here)["b"].catalogue.segments) > 2
    assert values(Recording(there.uri)) == values(Recording(here))
    assert [f.row.seq for f in Recording(there)["b"].frames(Span(first_seq=18))] == [18, 19]
    again = push(here, there)
    assert [(stream.segments, stream.nbytes) for stream in again] == [(0, 0)] * 2
    assert again[0].present == done[0].segments


def test_only_what_differs_is_sent_again(here, there):
    push(here, there)
    stream = Recording(there)["camera/1"]
    first, second, third, *_ = stream.catalogue.segments
    stream.place.child(first.file).write(b"half of it")
    stream.place.filesystem.delete_file(stream.place.child(second.file.replace(".arrow", ".rows")).path)
    stream.place.filesystem.delete_file(stream.place.child(third.file).path)
    (done,) = push(here, there)
    assert done.segments == 2, "of the one whose table was missing only the table was"
    assert done.present == len(stream.catalogue.segments) - 2
    assert values(Recording(there)) == values(Recording(here))


def test_an_interrupted_copy_goes_on_and_never_lists_what_is_not_there(here, there, monkeypatch):
    sent = []

    def send_some(path, place, on_bytes=lambda _: None):
        if len(sent) == 3:
            raise RegionError("the line was cut")
        sending.send(path, place, on_bytes)
        sent.append(path.name)

    with monkeypatch.context() as cut:
        cut.setattr("tensor_pool.pipeline.record.upload.send", send_some)
        with pytest.raises(RegionError, match="was cut"):
            push(here, there)
    assert load_catalogue(there.child("camera%2F1")) is None, "segments without their catalogue are not seen"
    with pytest.raises(RegionError, match="no recording"):
        Recording(there)
    (done,) = push(here, there)
    assert done.present == 2, "the store vouches for the checksums of what had arrived"
    assert values(Recording(there)) == values(Recording(here))


def test_what_is_damaged_on_its_way_is_noticed(tmp_path, there, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"x" * (12 * MIB))
    sending.send(path, there.child("file"))
    assert sending.is_there(path, there.child("file")), "two parts"
    path.write_bytes(b"x" * (12 * MIB - 1) + b"y")
    assert not sending.is_there(path, there.child("file"))
    sent = iter([b"of what", b"was sent"])  # and then those of what is there
    right = sending._md5
    monkeypatch.setattr(sending, "_md5", lambda chunk: next(sent, None) or right(chunk))
    with pytest.raises(RegionError, match="not there as it was sent"):
        sending.send(path, there.child("file"))


def test_a_sum_that_is_no_md5_is_settled_by_reading_back(tmp_path, there, monkeypatch):
    """As with encryption in the store, where the sum says nothing."""
    path = tmp_path / "file"
    path.write_bytes(b"x" * (12 * MIB))
    monkeypatch.setattr(sending, "_etags", lambda sums: {"another"})
    sending.send(path, there.child("file"))
    assert there.child("file").size() == 12 * MIB


def test_another_recording_is_not_overwritten(here, there, tmp_path):
    push(here, there)
    before = values(Recording(there))
    record(tmp_path / "other", epoch=8)
    with pytest.raises(RegionError, match="holds another recording") as refused:
        push(tmp_path / "other", there)
    assert "another place" in refused.value.hint
    assert values(Recording(there)) == before


def test_what_is_removed_here_stays_there_and_numbers_go_on(here, there):
    count = len(Recording(here)["camera/1"].catalogue.segments)
    before = values(Recording(here))
    (done,) = push(here, there, remove=True)
    assert (done.segments, done.removed) == (count, count)
    directory = here / "camera%2F1"
    assert list(directory.glob("*.arrow")) == list(directory.glob("*.rows")) == []
    assert load_catalogue(directory).removed_through == count
    assert verify(here).flaws == []
    record(here, epoch=8, frames=4)
    (done,) = push(here, there, remove=True)
    stream = Recording(there)["camera/1"]
    assert [int(s.file[:8]) for s in stream.catalogue.segments] == [*range(1, count + done.segments + 1)]
    assert stream.catalogue.removed_through == 0
    assert values(Recording(there))[: len(before)] == before


def test_what_was_removed_before_it_was_sent_is_told(here, there):
    directory = here / "camera%2F1"
    catalogue = load_catalogue(directory)
    gone = catalogue.segments[:2]
    catalogue.segments, catalogue.removed_through = catalogue.segments[2:], 2
    (directory / "catalogue.json").write_bytes(msgspec.json.encode(catalogue))
    for segment in gone:
        (directory / segment.file).unlink()
    push(here, there)
    assert load_catalogue(there.child("camera%2F1")).removed_through == 2


def test_one_frame_of_a_large_segment_is_read_without_the_rest(tmp_path, server, credentials):
    rng = np.random.default_rng(1)
    arrays = [rng.integers(0, 255, MIB, dtype="uint8") for _ in range(48)]
    (segment,) = record_arrays(tmp_path / "here", arrays)["camera-1"].catalogue.segments
    with counting_proxy(server.endpoint) as proxy:
        uri = replace(server, endpoint=proxy.endpoint).uri(BUCKET, "large", credentials=False)
        push(tmp_path / "here", Place(uri))
        before = proxy.bytes_back
        (frame,) = Recording(uri)["camera-1"].frames(Span(first_seq=30, last_seq=30))
        assert np.array_equal(frame.array(), arrays[30])
        came = proxy.bytes_back - before
    assert segment.nbytes > 48 * MIB
    assert MIB < came < 1.05 * MIB, "the frame, its catalogue and the table of rows"


@pytest.mark.timeout(180)
def test_the_server_is_killed_while_segments_are_sent(tmp_path):
    """Nothing is lost here, nobody sees half of it there, and everything is there when the server is back."""
    rng = np.random.default_rng(1)
    here = tmp_path / "here"
    for name in ("a", "b"):
        record_arrays(here, [rng.integers(0, 255, 16 * MIB, dtype="uint8") for _ in range(2)], name)
    with s3_server(tmp_path / "s3") as server, credentials_of(server):
        uri = server.uri(BUCKET, "run", credentials=False)
        uploader = Uploader(here, Place(uri))
        with uploader:
            wait_until(lambda: uploader.progress.nbytes > 0, 30)
            server.process.kill()
            wait_until(lambda: uploader.progress.error, 60)
            progress = uploader.progress
            assert "NETWORK_CONNECTION" in progress.error
            assert "store runs" in progress.hint
            assert progress.waiting > 0
            assert not uploader.finish(timeout_s=0.1)
    assert verify(here).flaws == []
    with s3_server(tmp_path / "s3") as server, credentials_of(server):
        there = Place(server.uri(BUCKET, "run", credentials=False))
        for place in there.directories():
            catalogue, sizes = load_catalogue(place), place.files()
            listed = [] if catalogue is None else catalogue.segments
            assert [sizes.get(segment.file) for segment in listed] == [segment.nbytes for segment in listed]
        with Uploader(here, there) as uploader:
            assert uploader.finish(timeout_s=60)
            assert uploader.progress.waiting == 0
        assert values(Recording(there)) == values(Recording(here))


def test_segments_are_followed_while_they_are_made(tmp_path, there):
    here = tmp_path / "here"
    safe = []
    with Uploader(here, there, on_safe=lambda directory, number: safe.append(number)) as uploader:
        record(here, "a", frames=10)
        wait_until(lambda: uploader.progress.segments and not uploader.progress.waiting)
        assert safe[-1] == uploader.progress.segments
        record(here, "a", epoch=8, frames=10)
        assert uploader.finish(timeout_s=30)
        assert uploader.progress.missed == 0
        assert values(Recording(there)) == values(Recording(here))
        uploader.remove_here()
    assert Recording(here)["a"].catalogue.segments == []


@pytest.mark.parametrize(
    ("change", "said", "hint"),
    [
        (lambda uri: uri.replace(f"s3://{BUCKET}/", "s3://nobody/"), "there is no bucket nobody", "make the"),
        (lambda uri: uri.replace("127.0.0.1%3A", "127.0.0.1%3A1"), "NETWORK_CONNECTION", "endpoint_override"),
    ],
    ids=["no bucket", "no server"],
)
@pytest.mark.usefixtures("credentials")
def test_failures_are_told_and_nothing_is_lost_here(*, server, here, capsys, change, said, hint):
    uri = server.uri(BUCKET, "failures", credentials=False).replace("&allow_bucket_creation=true", "")
    code, out, err = cli(capsys, "recordings", "push", here, change(uri))
    assert (code, out) == (1, "")
    assert said in err
    assert hint in err
    assert verify(here).flaws == []


def test_no_credentials_is_told(server, here, monkeypatch, capsys):
    for name in server.environment:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    open_filesystem.cache_clear()
    uri = server.uri(BUCKET, "nothing", credentials=False)
    for arguments in (("recordings", "push", here, uri), ("recordings", "ls", uri), ("verify", uri)):
        code, _, err = cli(capsys, *arguments)
        assert code == 1
        assert "ACCESS_DENIED" in err
        assert "try: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment" in err
    open_filesystem.cache_clear()


def test_secrets_in_a_uri_are_refused_and_never_repeated(server, here, credentials, capsys, caplog):
    secret = server.secret_key
    uris = [
        server.uri(BUCKET, "run"),
        f"s3://key:half/{secret}@{BUCKET}/run",
        f"s3://{BUCKET}/run?secret_key={secret}",
        f"hdfs://me:{secret}@host:8020/run",
    ]
    for uri in uris:
        with pytest.raises(ConfigError, match="credentials in the URI") as refused:
            Place(uri)
        assert secret not in str(refused.value)
        for arguments in (("recordings", "push", here, uri), ("recordings", "ls", uri), ("verify", uri)):
            code, out, err = cli(capsys, *arguments)
            assert code == 2
            assert secret not in out + err + caplog.text
            assert "AWS_SECRET_ACCESS_KEY in the environment" in err


def test_commands_read_what_is_elsewhere(here, there, capsys):
    code, out, err = cli(capsys, "recordings", "push", here, there.uri, "--format", "json")
    assert code == 0, err
    assert json.loads(out)[0]["present"] == 0
    assert "sending camera%2F1/00000001.arrow" in err
    for command in ("ls", "info"):
        found = [
            cli(capsys, "recordings", command, place, "--format", "json")[1] for place in (here, there.uri)
        ]
        assert json.loads(found[0]) == json.loads(found[1]) != []
    local = json.loads(cli(capsys, "verify", here, "--format", "json")[1])
    code, out, _ = cli(capsys, "verify", there.uri, "--format", "json")
    assert (code, json.loads(out)) == (0, local)
    code, _, err = cli(capsys, "verify", there.uri, "--repair")
    assert code == 2
    assert "push` it again" in err


def test_verify_finds_damage_elsewhere(here, there):
    from tensor_pool.pipeline.record.verify_elsewhere import verify_elsewhere

    push(here, there)
    stream = Recording(there)["camera/1"]
    first, second, third, fourth, *_ = stream.catalogue.segments
    file = stream.place.child(first.file)
    content = bytearray(file.read())
    at = content.index(np.full(6, 1, "uint16").tobytes())
    content[at] ^= 0xFF
    file.write(bytes(content))
    stream.place.child(second.file.replace(".arrow", ".rows")).write(b"nonsense")
    stream.place.filesystem.delete_file(stream.place.child(third.file).path)
    stream.place.child("00000099.arrow").write(stream.place.child(fourth.file).read())
    told = {(flaw.file, flaw.what) for flaw in verify_elsewhere(there).flaws}
    assert (first.file, "frame 1 is not what was recorded (wrong checksum)") in told
    assert (second.file.replace(".arrow", ".rows"), "is not the table of its segment") in told
    assert (third.file, "is missing") in told
    assert ("00000099.arrow", "is not in the catalogue as it is") in told


def test_a_directory_is_a_place_too(here, tmp_path):
    (done,) = push(here, Place(tmp_path / "mnt" / "archive"))
    assert done.segments > 2
    assert values(Recording(tmp_path / "mnt" / "archive")) == values(Recording(here))
    assert list((tmp_path / "mnt").rglob("*.part")) == []
    shutil.copytree(here, tmp_path / "again")
    upload = StreamUpload(here / "camera%2F1", Place(tmp_path / "again" / "camera%2F1"))
    upload.send()
    assert (upload.done.segments, upload.waiting()) == (0, [])


def test_a_full_disk_there_is_told_and_the_segment_here_stays(here, tmp_path, monkeypatch):
    def full(path, place, on_bytes=lambda _: None):
        with pytest.raises(OSError, match="No space left") as e:
            Path("/dev/full").write_bytes(path.read_bytes())
        raise sending.explain(f"write {place}", e.value)

    monkeypatch.setattr("tensor_pool.pipeline.record.upload.send", full)
    with pytest.raises(RegionError, match="No space left") as refused:
        push(here, Place(tmp_path / "full"), remove=True)
    assert refused.value.hint == "make room in the store"
    assert verify(here).flaws == []
