"""A way to a server that counts what comes back from it."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class CountingProxy(socketserver.ThreadingTCPServer):
    """Passes everything on, both ways."""

    daemon_threads = True

    def __init__(self, server: str) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        host, _, port = server.partition(":")
        self.server = (host, int(port))
        self.bytes_back = 0
        """What the server has sent to clients so far."""

    @property
    def endpoint(self) -> str:
        """Host and port, as clients want it."""
        return f"127.0.0.1:{self.server_address[1]}"


class _Connection(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        with socket.create_connection(self.server.server) as server:
            back = threading.Thread(target=self._pass_back, args=(server,), daemon=True)
            back.start()
            with contextlib.suppress(OSError):
                while data := self.request.recv(1 << 16):
                    server.sendall(data)
                server.shutdown(socket.SHUT_WR)
            back.join()

    def _pass_back(self, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 16):
                self.server.bytes_back += len(data)
                self.request.sendall(data)


@contextmanager
def counting_proxy(server: str) -> Iterator[CountingProxy]:
    """Listens on a port of loopback until the block ends."""
    with CountingProxy(server) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            proxy.shutdown()
            thread.join()
