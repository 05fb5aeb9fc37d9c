"""A real ssh server on loopback for unit tests: paramiko's server side, running commands with sh."""

import os
import select
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import paramiko
from paramiko.common import AUTH_FAILED, AUTH_SUCCESSFUL, OPEN_SUCCEEDED

from bedplate.ssh import Target

Handler = Callable[[paramiko.Channel, str], None]


def run_with_sh(channel: paramiko.Channel, command: str) -> None:
    """What sshd does: run the command, both ways, send its exit code; end it when the client has gone."""
    with subprocess.Popen(
        ["/bin/sh", "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True,
    ) as program:  # fmt: skip
        assert program.stdin
        assert program.stdout
        assert program.stderr
        feeder = threading.Thread(target=_feed, args=(channel, program.stdin), daemon=True)
        feeder.start()
        streams = {program.stdout.fileno(): channel.sendall, program.stderr.fileno(): channel.sendall_stderr}
        try:
            while streams and not channel.closed:
                for stream in select.select(list(streams), [], [], 0.1)[0]:
                    data = os.read(stream, 65536)
                    if data:
                        streams[stream](data)
                    else:
                        del streams[stream]
            if not streams and (status := program.wait()) >= 0:  # sshd sends no code of what a signal ended
                channel.send_exit_status(status)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
            channel.close()
            feeder.join(5)


def _feed(channel: paramiko.Channel, stdin: IO[bytes]) -> None:
    with suppress(OSError):
        while data := channel.recv(65536):
            stdin.write(data)
            stdin.flush()
    with suppress(OSError):
        stdin.close()


class _Door(paramiko.ServerInterface):
    def __init__(self, key: paramiko.PKey, handle: Handler) -> None:
        self.key = key
        self.handle = handle
        self.threads: list[threading.Thread] = []

    def get_allowed_auths(self, username: str) -> str:  # noqa: ARG002
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        known = username == "root" and key.asbytes() == self.key.asbytes()
        return AUTH_SUCCESSFUL if known else AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:  # noqa: ARG002
        return OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        thread = threading.Thread(target=self.answer, args=(channel, command.decode()), daemon=True)
        self.threads.append(thread)
        # paramiko says that the request is granted when this returns: a command that ends before that would close the
        # channel first, and the client would take the grant for lost. sshd never does it in that order.
        transport: Any = channel.get_transport()
        send = transport._send_user_message

        def grant_then_start(message: paramiko.Message) -> None:
            transport._send_user_message = send
            send(message)
            thread.start()

        transport._send_user_message = grant_then_start
        return True

    def answer(self, channel: paramiko.Channel, command: str) -> None:
        with suppress(OSError, EOFError):
            self.handle(channel, command)


class Sshd:
    """Where the server listens, what it shows, what opens it."""

    def __init__(self, folder: Path, handle: Handler, address: str, port: int) -> None:
        self.address = address
        self.host_key = paramiko.Ed25519Key.from_private_key_file(str(_new_key(folder / "host_key")))
        self.identity_file = _new_key(folder / "id_ed25519")
        self.handle = handle
        self.door = _Door(paramiko.Ed25519Key.from_private_key_file(str(self.identity_file)), handle)
        self.listening = socket.create_server((address, port))
        self.port: int = self.listening.getsockname()[1]
        self.known_hosts = folder / "known_hosts"
        self.known_hosts.write_text(self.known_line(address))
        self.transports: list[paramiko.Transport] = []

    def known_line(self, name: str, key: paramiko.PKey | None = None) -> str:
        key = key or self.host_key
        return f"[{name}]:{self.port} {key.get_name()} {key.get_base64()}\n"

    def target(self, name: str, *, user: str = "root", known_hosts: Path | None = None) -> Target:
        return Target(name, self.address, user, self.port, self.identity_file, known_hosts or self.known_hosts)

    def serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self.listening.accept()
                transport = paramiko.Transport(connection)
                transport.add_server_key(self.host_key)
                self.transports.append(transport)
                with suppress(paramiko.SSHException, EOFError):
                    transport.start_server(event=threading.Event(), server=self.door)


@contextmanager
def sshd(folder: Path, handle: Handler = run_with_sh, *, address: str = "127.0.0.1", port: int = 0) -> Iterator[Sshd]:
    folder.mkdir(exist_ok=True)
    server = Sshd(folder, handle, address, port)
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        # close() alone does not wake a thread that waits in accept()
        with suppress(OSError):
            server.listening.shutdown(socket.SHUT_RDWR)
        server.listening.close()
        thread.join(5)
        for transport in server.transports:
            transport.close()
        for answering in server.door.threads:
            if answering.ident is not None:
                answering.join(5)


def _new_key(path: Path) -> Path:
    if path.exists():  # brought along, so that several servers open with one key
        return path
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return path
