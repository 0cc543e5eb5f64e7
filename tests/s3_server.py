"""A real object store on loopback (SeaweedFS, one process), for what reads and writes `s3://`."""

from __future__ import annotations

import os
import random
import secrets
import shutil
import socket
import subprocess
import sysconfig
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlencode

from pyarrow import fs

from tensor_pool.pipeline.record.filesystems import open_filesystem
from tensor_pool.testing import wait_until

BUCKET = "tensors"
_REGION = "us-east-1"
_START_S = 30.0
_PARTS = ("master", "volume", "filer", "s3", "admin")  # each serves HTTP on a port and gRPC on another
_GRPC_OFFSET = 10_000  # fixed in the server: a part looks for another's gRPC this far above its HTTP
_PORTS = range(20_000, 22_700)  # with the offset still below the ports that the kernel gives to clients


@dataclass(frozen=True)
class S3Server:
    """A running server and what a client needs to know of it.

    Attributes:
        endpoint: Host and port, without a scheme.
        access_key: Name of the only user, who may do everything.
        secret_key: That user's secret, another one for each server.
        process: The server's process, for tests that stop or kill it.
    """

    endpoint: str
    access_key: str
    secret_key: str
    process: subprocess.Popen[bytes]

    @property
    def environment(self) -> dict[str, str]:
        """Variables that give a process the credentials, for URIs without them."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_EC2_METADATA_DISABLED": "true",  # no credentials: say so at once, don't look for a cloud
        }

    def filesystem(self) -> fs.S3FileSystem:
        """A client of its own; paths begin with the bucket."""
        return fs.S3FileSystem(
            access_key=self.access_key,
            secret_key=self.secret_key,
            endpoint_override=self.endpoint,
            scheme="http",
            region=_REGION,
            allow_bucket_creation=True,
            allow_bucket_deletion=True,
        )

    def uri(self, bucket: str = BUCKET, path: str = "", *, credentials: bool = True) -> str:
        """The same place as `s3://` URI, complete for `FileSystem.from_uri` in any process.

        Args:
            bucket: The bucket's name.
            path: What comes after the bucket.
            credentials: Whether the URI carries them; otherwise `environment` has to.
        """
        user = f"{quote(self.access_key, safe='')}:{quote(self.secret_key, safe='')}@" if credentials else ""
        options = {
            "endpoint_override": self.endpoint,
            "scheme": "http",
            "region": _REGION,
            "allow_bucket_creation": "true",
            "allow_bucket_deletion": "true",
        }
        return f"s3://{user}{bucket}/{quote(path)}?{urlencode(options)}"


@contextmanager
def s3_server(directory: Path, bucket: str = BUCKET) -> Iterator[S3Server]:
    """Serves S3 out of a directory until the block ends; what was stored stays in the directory.

    Unlike Amazon's store it remembers directories: one whose last file was deleted may still be listed.
    Start it from the main thread: the server also ends when the thread that started it does, so that a
    killed test leaves none behind.

    Args:
        directory: Where objects and the log (`server.log`) go; made if it is not there.
        bucket: A bucket that exists when the block begins.
    """
    directory = directory.absolute()
    directory.mkdir(parents=True, exist_ok=True)
    ports = dict(zip(_PARTS, _free_ports(len(_PARTS)), strict=True))
    log = directory / "server.log"
    with log.open("wb") as output:
        access_key, secret_key = "tester", secrets.token_hex(20)
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", _program(), *_arguments(directory, ports)],
            cwd=directory,
            # Its home is searched for settings, which must not be those of whoever runs the tests.
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(directory),
                "AWS_ACCESS_KEY_ID": access_key,
                "AWS_SECRET_ACCESS_KEY": secret_key,
                "GOMEMLIMIT": "512MiB",  # half of what it takes otherwise, and no slower
            },
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    server = S3Server(f"127.0.0.1:{ports['s3']}", access_key, secret_key, process)
    try:
        wait_until(lambda: process.poll() is not None or _answers(ports["s3"]), _START_S, what="S3")
        assert process.poll() is None, f"the S3 server did not start:\n{log.read_text()[-2000:]}"
        server.filesystem().create_dir(bucket)
        yield server
    finally:
        process.kill()  # asked politely it takes fifteen seconds; what it has answered is in its files
        process.wait()
        for port in [*ports.values(), *(port + _GRPC_OFFSET for port in ports.values())]:
            for left in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):  # no setting moves them elsewhere
                left.unlink(missing_ok=True)


@contextmanager
def credentials_of(server: S3Server) -> Iterator[None]:
    """Gives this process, and those that it starts, the credentials in the environment."""
    before = {name: os.environ.get(name) for name in server.environment}
    os.environ.update(server.environment)
    open_filesystem.cache_clear()  # what a filesystem was opened with stays with it
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        open_filesystem.cache_clear()


def _program() -> str:
    where = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
    if (program := shutil.which("weed", path=where)) is None:
        raise FileNotFoundError("no `weed` here; try: uv pip install --group dev")
    return program


def _arguments(directory: Path, ports: dict[str, int]) -> list[str]:
    return [
        "-logtostderr=true",
        "mini",
        f"-dir={directory}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        *(f"-{part}.port={port}" for part, port in ports.items()),
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        "-webdav=false",
        "-admin.ui=false",
        "-master.telemetry=false",  # it would report to its makers
    ]


def _free_ports(count: int) -> list[int]:
    """Ports that are free, and free at the offset too."""
    found: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        with ExitStack() as stack:
            try:
                for candidate in (port, port + _GRPC_OFFSET):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", candidate))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise OSError("no free ports for an S3 server")


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
