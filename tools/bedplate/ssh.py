"""The fan-out: one ssh connection and one command a node, for hundreds of nodes from one process.

- Every target gets exactly one Answer, whatever happens: for a node that cannot be asked, one with a fault.
- A host key is checked against known_hosts before anything is sent. Unknown, changed or revoked: a fault that
  names the key. No key is ever learnt here.
- The deadline of a node covers all of it: connecting, host key, login, command, every byte. It starts when
  its turn comes, so the whole takes at most ceil(targets / width) x (timeout_s + GRACE_S).
- At most `width` nodes at once; an answer is handed out as soon as it is there, in no particular order.

Example:
    for answer in run_everywhere(targets, "cat /proc/sys/kernel/random/boot_id", timeout_s=20):
        print(answer.name, answer.fault or answer.out.decode())
"""

import hashlib
import io
import logging
import queue
import select
import socket
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import BinaryIO, Protocol

import paramiko
from paramiko.hostkeys import HostKeyEntry, InvalidHostKey

# paramiko reports a lost connection by its own logger as well, on stderr; the answer's fault says it once.
logging.getLogger("paramiko").addHandler(logging.NullHandler())

GRACE_S = 2.0  # what a worker has to notice its deadline by itself, before its socket is closed under it
SLICE_S = 0.2  # the longest wait in one place; then deadline and other streams are looked at again
CHUNK_BYTES = 256 * 1024
OUTPUT_LIMIT_BYTES = 32 * 1024 * 1024  # of stdout and stderr each; more is no answer but a mistake
KEEPALIVE_S = 15
RSA = ("rsa-sha2-512", "rsa-sha2-256")  # what a key of type ssh-rsa signs with


@dataclass(frozen=True)
class Target:
    """A node and how it is reached; identity_file None: the keys of the ssh agent."""

    name: str
    address: str
    user: str
    port: int
    identity_file: Path | None
    known_hosts: Path


@dataclass(frozen=True)
class Answer:
    """What came of one node: either its exit code, or why there is none.

    sent_bytes and sent_sha256 speak of the stdin that left here, hashed on the way.
    """

    name: str
    code: int | None
    out: bytes
    err: bytes
    fault: str | None
    sent_bytes: int = 0
    sent_sha256: str | None = None
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return self.fault is None and self.code == 0

    @property
    def why(self) -> str:
        """One line for a person: the fault, or the exit code with the last line of stderr."""
        if self.fault:
            return self.fault
        said = (self.err.decode(errors="replace").strip() or self.out.decode(errors="replace").strip()).splitlines()
        return f"ended with {self.code}" + (f": {said[-1]}" if said else "")


class NoAnswer(Exception):
    """Why a node gave no answer."""


class Feed(Protocol):
    """What is sent while the command runs; asked again and again, from a worker thread."""

    def read(self, size: int, /) -> bytes | None:
        """The next bytes, at most that many; nothing: the end; None: nothing yet."""


Stdin = bytes | Path | Feed | Callable[[str], bytes]  # the last: name of the node -> what it is sent
Progress = Callable[[str, int], None]  # name of the node, bytes of stdin sent so far; called from worker threads
Heard = Callable[[str, bytes], None]  # name of the node, what it just said on stdout; called from worker threads


def run_everywhere(
    targets: Sequence[Target],
    command: str,
    *,
    stdin: Stdin | None = None,
    width: int = 64,
    timeout_s: float,
    progress: Progress | None = None,
    heard: Heard | None = None,
) -> Generator[Answer]:
    """Run a shell command on every target; yield one answer a target, as they come.

    stdin is sent to each: bytes, a file that is read in chunks, once for each node, or what a function makes of the
    node's name when its turn comes; a Feed, to one target alone. A generator that is dropped early closes every
    connection it holds.
    """
    waiting = list(reversed(targets))
    if len({target.name for target in targets}) != len(targets):
        raise ValueError("a target stands twice in the list")
    answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
    running: dict[str, _Visit] = {}
    try:
        while waiting or running:
            while waiting and len(running) < width:
                target = waiting.pop()
                sent = stdin(target.name) if callable(stdin) else stdin
                visit = _Visit(target, command, sent, timeout_s, progress, heard)
                running[visit.target.name] = visit
                # Daemons: a worker that hangs in spite of everything must not keep the process alive.
                threading.Thread(target=visit.go, args=(answers,), daemon=True, name=f"ssh {visit.target.name}").start()
            next_end = min(visit.deadline for visit in running.values()) + GRACE_S
            with suppress(queue.Empty):
                answer = answers.get(timeout=max(0.0, next_end - time.monotonic()))
                if running.pop(answer.name, None):  # else: given up before
                    yield answer
            for name, visit in list(running.items()):
                if time.monotonic() > visit.deadline + GRACE_S:
                    visit.abandon()
                    del running[name]
                    yield visit.answer(None, fault=visit.overdue())
    finally:
        for visit in running.values():
            visit.abandon()


@dataclass
class _Visit:
    """One node's turn: from connecting to the last byte."""

    target: Target
    command: str
    stdin: bytes | Path | Feed | None
    timeout_s: float
    progress: Progress | None
    heard: Heard | None = None
    doing: str = "connecting"
    out: bytearray = field(default_factory=bytearray)
    err: bytearray = field(default_factory=bytearray)
    sent_bytes: int = 0
    abandoned: bool = False

    def __post_init__(self) -> None:
        self.started = time.monotonic()
        self.deadline = self.started + self.timeout_s
        self.sent = hashlib.sha256()
        self.socket: socket.socket | None = None
        self.transport: paramiko.Transport | None = None

    def go(self, answers: "queue.SimpleQueue[Answer]") -> None:
        """Visit the node; whatever happens becomes one answer."""
        try:
            answer = self.answer(self.visit())
        except NoAnswer as fault:
            answer = self.answer(None, fault=str(fault))
        except TimeoutError:
            answer = self.answer(None, fault=self.overdue())
        except (OSError, EOFError, paramiko.SSHException) as fault:
            # paramiko says nothing of use for some of these (EOFError has no text)
            overdue = time.monotonic() >= self.deadline
            said = str(fault) or "the connection was closed"
            answer = self.answer(None, fault=self.overdue() if overdue else f"{self.doing}: {said}")
        except Exception as fault:  # noqa: BLE001  one answer a target, always
            answer = self.answer(None, fault=f"{self.doing}: {type(fault).__name__}: {fault}")
        answers.put(answer)
        self.close()

    def visit(self) -> int:
        self.socket = socket.create_connection((self.target.address, self.target.port), timeout=self.left_s())
        transport = self.transport = paramiko.Transport(self.socket)
        if self.abandoned:  # the sockets were closed before there was one
            raise NoAnswer(self.overdue())
        transport.banner_timeout = transport.handshake_timeout = self.left_s()
        self.check_host_key(transport)
        self.log_in(transport)
        transport.set_keepalive(KEEPALIVE_S)
        self.doing = "starting the command"
        channel = transport.open_session(timeout=self.left_s())
        channel.settimeout(self.left_s())
        channel.exec_command(self.command)
        self.doing = "running the command"
        return self.converse(channel)

    def check_host_key(self, transport: paramiko.Transport) -> None:
        """Shake hands and compare the host's key; nothing but the handshake is sent before that."""
        self.doing = "checking the host key"
        known = _known_hosts(self.target.known_hosts)
        entries = [known.of(name) for name in _names(self.target)]
        types = {kind for entry in entries for kind in entry}
        if types:
            # Ask for a type that we know, as ssh does: a host with several keys would else offer another one.
            options = transport.get_security_options()
            wanted = {algorithm for kind in types for algorithm in (RSA if kind == "ssh-rsa" else (kind,))}
            options.key_types = [
                *(kind for kind in options.key_types if kind in wanted),
                *(kind for kind in options.key_types if kind not in wanted),
            ]
        transport.start_client(timeout=self.left_s())
        key = transport.get_remote_server_key()
        found = f"{key.get_name()} {key.fingerprint}"
        where = f"{self.target.name} ({self.target.address}:{self.target.port})"
        if key.asbytes() in known.revoked:
            raise NoAnswer(f"host key of {where} is revoked in {self.target.known_hosts}: {found}")
        if not types:
            raise NoAnswer(
                f"host key of {where} is unknown: it offers {found}, {self.target.known_hosts} has none"
                " (compare it on the node's console, then add it)"
            )
        for entry in entries:
            if entry and key.asbytes() not in entry.get(key.get_name(), set()):
                raise NoAnswer(
                    f"host key of {where} changed: it offers {found}, {self.target.known_hosts} has another"
                    " (reinstalled, or another machine answers: compare it on the node's console)"
                )

    def log_in(self, transport: paramiko.Transport) -> None:
        self.doing = f"logging in as {self.target.user}"
        refused = []
        for key in _identities(self.target.identity_file):
            transport.auth_timeout = self.left_s()
            try:
                if not transport.auth_publickey(self.target.user, key):
                    return
                raise NoAnswer(f"{self.doing}: the host wants more than a key")
            except paramiko.AuthenticationException as fault:
                self.left_s()
                refused.append(f"{key.get_name()} {key.fingerprint}: {str(fault).rstrip('.')}")
        raise NoAnswer(f"{self.doing}: " + ("; ".join(refused) or "no key: the ssh agent holds none"))

    def converse(self, channel: paramiko.Channel) -> int:
        """Send stdin, collect stdout and stderr, until the command has ended: in one loop.

        One loop, so that neither side can wait for the other for ever.
        """
        channel.settimeout(SLICE_S)
        with self.open_stdin() as source:
            chunk: bytes | None = None
            rest = memoryview(b"")
            sending = True
            ready = select.poll()
            ready.register(channel.fileno(), select.POLLIN)
            while True:
                self.left_s()
                # Looked at before draining: what comes between the two would be left behind.
                ended = channel.closed or (channel.exit_status_ready() and channel.eof_received)
                if not self.drain(channel) and ended:
                    break
                if sending:
                    if not rest:
                        chunk = source.read(CHUNK_BYTES)
                        rest = memoryview(chunk or b"")
                    if chunk is None:
                        _idle(channel, ready)
                    elif not rest:
                        sending = False
                        # The command may have ended without reading it all: its exit code tells.
                        with suppress(OSError):
                            channel.shutdown_write()
                    elif (count := self.send(channel, rest)) is None:
                        sending = False
                    else:
                        rest = rest[count:]
                else:
                    _idle(channel, ready)
        if not channel.exit_status_ready() or channel.exit_status < 0:
            # A command that a signal ended sends no exit code either (paramiko drops exit-signal).
            raise NoAnswer(f"{self.doing}: ended without an exit code (connection lost, or killed by a signal)")
        return channel.exit_status

    def open_stdin(self) -> AbstractContextManager[BinaryIO | Feed]:
        if isinstance(self.stdin, Path):
            return self.stdin.open("rb")
        if self.stdin is None or isinstance(self.stdin, bytes):
            return io.BytesIO(self.stdin or b"")
        return nullcontext(self.stdin)

    def send(self, channel: paramiko.Channel, data: memoryview) -> int | None:
        """Send what fits; None: the other side takes no more."""
        try:
            count = channel.send(data)  # type: ignore[arg-type]  # any bytes-like object
        except TimeoutError:
            return 0
        except OSError:
            return None
        self.sent.update(data[:count])
        self.sent_bytes += count
        if self.progress:
            self.progress(self.target.name, self.sent_bytes)
        return count

    def drain(self, channel: paramiko.Channel) -> bool:
        """Take what has arrived; was there anything?"""
        some = False
        for has, take, into in (
            (channel.recv_ready, channel.recv, self.out),
            (channel.recv_stderr_ready, channel.recv_stderr, self.err),
        ):
            while has():
                some = True
                data = take(CHUNK_BYTES)
                into.extend(data)
                if self.heard and into is self.out:
                    self.heard(self.target.name, data)
                if len(into) > OUTPUT_LIMIT_BYTES:
                    raise NoAnswer(f"{self.doing}: more than {OUTPUT_LIMIT_BYTES} bytes of output")
        return some

    def left_s(self) -> float:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    def overdue(self) -> str:
        return f"{self.doing}: no end after {self.timeout_s:g} s"

    def answer(self, code: int | None, *, fault: str | None = None) -> Answer:
        return Answer(
            name=self.target.name, code=code, out=bytes(self.out), err=bytes(self.err), fault=fault,
            sent_bytes=self.sent_bytes, sent_sha256=self.sent.hexdigest() if self.stdin is not None else None,
            seconds=time.monotonic() - self.started,
        )  # fmt: skip

    def abandon(self) -> None:
        """Close the connection under a worker that did not come back."""
        self.abandoned = True
        if self.socket is not None:
            with suppress(OSError):
                self.socket.shutdown(socket.SHUT_RDWR)
        if self.transport is not None:
            self.transport.packetizer.close()  # close() would join the transport's thread

    def close(self) -> None:
        with suppress(Exception):
            if self.transport is not None:
                self.transport.close()
            if self.socket is not None:
                self.socket.close()


def _idle(channel: paramiko.Channel, ready: select.poll) -> None:
    """Wait for what the command says; the channel of one that has said its last word is always ready."""
    if channel.eof_received:
        channel.status_event.wait(SLICE_S)
    else:
        ready.poll(SLICE_S * 1000)


@dataclass(frozen=True)
class _KnownHosts:
    """The keys of a known_hosts file."""

    entries: tuple[HostKeyEntry, ...]
    revoked: frozenset[bytes]

    def of(self, name: str) -> dict[str, set[bytes]]:
        """Type of key -> the keys that a host may show."""
        found: dict[str, set[bytes]] = {}
        for entry in self.entries:
            if any(_is_name(name, written) for written in entry.hostnames):
                found.setdefault(entry.key.get_name(), set()).add(entry.key.asbytes())
        return found


def _is_name(name: str, written: str) -> bool:
    if written.startswith("|1|"):
        return paramiko.HostKeys.hash_host(name, written) == written
    return name == written


@cache
def _read_known_hosts(path: Path, stamp: tuple[int, int]) -> _KnownHosts:  # noqa: ARG001  changed: read again
    # Not paramiko.HostKeys: it keeps one key of a type for a host, and takes "@revoked" for a name.
    entries, revoked = [], set()
    for number, line in enumerate(path.read_text().splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        marked = words[0] == "@revoked"
        if words[0].startswith("@") and not marked:
            continue  # @cert-authority: certificates are not accepted, so such a host stays unknown
        entry = HostKeyEntry.from_line(" ".join(words[1:] if marked else words), number)
        if entry is None or entry.key is None:
            continue  # a type of key that paramiko does not have
        if marked:
            revoked.add(entry.key.asbytes())
        else:
            entries.append(entry)
    return _KnownHosts(tuple(entries), frozenset(revoked))


def _known_hosts(path: Path) -> _KnownHosts:
    try:
        status = path.stat()
        return _read_known_hosts(path, (status.st_mtime_ns, status.st_size))
    except (OSError, ValueError, paramiko.SSHException, InvalidHostKey) as fault:
        raise NoAnswer(f"cannot read {path}: {fault}") from fault


def _names(target: Target) -> list[str]:
    """What a host may be called in known_hosts: the node's name, and its address."""
    names = [target.name] if target.name == target.address else [target.name, target.address]
    return names if target.port == paramiko.config.SSH_PORT else [f"[{name}]:{target.port}" for name in names]


@cache
def _read_identity(path: Path) -> paramiko.PKey:
    return paramiko.PKey.from_path(path)


def _identities(path: Path | None) -> list[paramiko.PKey]:
    if path is None:
        return list(paramiko.Agent().get_keys())
    try:
        return [_read_identity(path)]
    except (
        TypeError,
        paramiko.PasswordRequiredException,
    ) as fault:  # cryptography's word for it is TypeError
        raise NoAnswer(f"{path} has a passphrase: add it to the ssh agent and leave identity_file out") from fault
    except (OSError, ValueError, paramiko.SSHException, paramiko.pkey.UnknownKeyType) as fault:
        raise NoAnswer(f"cannot read the key {path}: {fault}") from fault
