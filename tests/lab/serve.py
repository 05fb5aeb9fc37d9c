"""Serves a directory over http: serve.py ADDRESS PORT DIRECTORY. Standard library alone: it runs as a program."""

import http.server
import socketserver
import sys
from functools import partial


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def server_bind(self) -> None:
        # Not http.server's: it looks its own address up in DNS, which the lab's namespace has none of.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[0], self.server_address[1]  # type: ignore[assignment]


class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # apt keeps its connection


if __name__ == "__main__":
    address, port, directory = sys.argv[1:]
    Server((address, int(port)), partial(Handler, directory=directory)).serve_forever()
