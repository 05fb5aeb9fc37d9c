"""The boot server: HTTP for machines that have no system yet. What it answers is decided in decide/netboot/protocol.py.

Invariants
- What is answered is recorded first; where the ledger cannot be written, the answer is 503.
- It keeps nothing: after kill -9 the ledger says where every machine is, and FOLDER/armed has its files.
- A machine that comes by GRUB is seen in the log of dnsmasq's TFTP, a second later, and judged like one by iPXE.
- GRUB's files are there while their machine is armed, and gone before the seed is out.

FOLDER: armed/NODE (arming.py), files/ (kernel, initrd, image, loaders), tftp/ (for dnsmasq), logs/NODE/.
"""

import contextlib
import hashlib
import json
import os
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase
from pathlib import Path
from typing import Any, override
from urllib.parse import parse_qs

from bedplate.act.arming import Armed, armed_files
from bedplate.act.keptlogs import kept
from bedplate.decide.ledgerfiles import INSTALLATION_LOG
from bedplate.decide.netboot.hardware import differences, foreign, unknown
from bedplate.decide.netboot.knownhosts import with_key
from bedplate.decide.netboot.protocol import (
    KINDS,
    Boot,
    Install,
    Machines,
    Phase,
    Refusal,
    Request,
    armed,
    boot_answer,
    finished_body,
    finished_refusal,
    fold_installs,
    host_key,
    inventory_refusal,
    noteworthy,
    parse_request,
    phone_refusal,
    recorded,
    refused,
    seed_refusal,
    size_refusal,
    stage_body,
    token_refusal,
    upload_refusal,
)  # fmt: skip
from bedplate.decide.netboot.recipe import grub_names, menus
from bedplate.decide.netboot.tftplog import MENU, sent
from bedplate.ledger.store import Ledger
from bedplate.model.event import Draft, Event
from bedplate.model.faults import BadInput, BedplateError
from bedplate.sources import checkout
from bedplate.sources.files import write_whole
from bedplate.sources.site import Site

IDLE_S = 120  # of a connection on which nothing moves
LINGER_S, LINGER_BYTES = 10.0, 8 << 20  # what a refused sender may still send before it reads why
WAITING = 1024  # connections: a rack that is switched on asks at once
PUBLISH_EVERY_S = 1.0
LOOK_EVERY_S = 0.2  # for what others append to the ledger
TFTP_LOG = Path("/var/log/bedplate-dnsmasq/dnsmasq.log")  # what roles/netboot has dnsmasq write
LONGEST_LOG_BYTES = 16 << 20  # of a node's reports; a broken installer cannot fill the disk


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes = b""
    file: Path | None = None
    kind: str = "text/plain; charset=utf-8"


class BootServer:
    """Everything but sockets; safe across threads."""

    def __init__(
        self, site: Site, folder: Path, ledger: Ledger, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        tftp_log: Path = TFTP_LOG,
    ) -> None:  # fmt: skip
        """Read the site.

        Raises:
            BadInput: it has no netboot section.
        """
        fleet = site.fleet
        if fleet.netboot is None:
            raise BadInput([fleet.document.fault((), "no netboot section", "add it: docs/site.md has its keys")])
        self.site, self.fleet, self.netboot, self.folder, self.ledger = site, fleet, fleet.netboot, folder, ledger
        self.clock = clock
        self._tftp = _Follow(tftp_log)
        self._by_address = {node.address: node.name for node in fleet.nodes.values()}
        self.menus = menus(fleet.netboot, checkout.autoinstall())
        self.machines = Machines(
            {node.serial: node.name for node in fleet.nodes.values()},
            {mac: node.name for node in fleet.nodes.values() for mac in (node.boot_mac, *node.bond_macs)},
        )
        nodes = fleet.nodes.values()
        self._of_mac = {mac: node.name for node in nodes for mac in (node.boot_mac, *node.bond_macs, *node.nic_macs)}
        self._of_disk = {
            serial: node.name for node in nodes for serial in (*node.boot_disk_serials, *node.data_disk_serials)
        }
        self._lock = threading.RLock()
        self._installs: dict[str, Install] = {}
        self._head = 0
        self._looked = -LOOK_EVERY_S
        self._files_of: dict[str, tuple[str, bytes]] = {}  # node -> token's hash, GRUB's file
        self._told: set[tuple[str, str]] = set()
        for name in ("files", "logs", "armed", "tftp/grub/hosts"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        write_whole(folder / "tftp/grub/grub.cfg", self.menus["grub.cfg"])

    def installs(self, *, fresh: bool = True) -> dict[str, Install]:
        """Every installation as the ledger has it; not fresh: what others record (disarm) may be a moment away."""
        with self._lock:
            now = time.monotonic()
            if fresh or now - self._looked >= LOOK_EVERY_S:
                self._looked = now
                self._fold(self.ledger.events(after=self._head, kinds=KINDS))
            return self._installs

    def _fold(self, events: Iterable[Event]) -> None:
        new = list(events)
        if new:
            self._installs = fold_installs(new, self._installs)
            self._head = new[-1].id

    def _record(self, *drafts: Draft) -> None:
        """Append, and fold what was appended; where others appended meanwhile, theirs come first."""
        made = self.ledger.append(*drafts)
        if made and made[0].id == self._head + 1:
            self._fold(made)
        else:
            self._fold(self.ledger.events(after=self._head, kinds=KINDS))

    def refuse(self, refusal: Refusal, *, asked: str, address: str, node: str | None = None) -> Answer:
        """Record a refusal; the same one of the same address only once, so that nobody fills the ledger."""
        known = node if node in self.fleet.nodes else None
        with self._lock:
            if (address, f"{asked} {refusal.why}") not in self._told:
                self._record(refused(refusal, asked=asked, address=address, node=known))
                if len(self._told) < 100_000:  # noqa: PLR2004  a bound on memory
                    self._told.add((address, f"{asked} {refusal.why}"))
        return Answer(refusal.status, f"{refusal.why}\n".encode())

    # --- what machines ask for --------------------------------------------------------------------------

    def get(self, request: Request, address: str) -> Answer:
        """Answer a request without a body."""
        if request.what == "menu":
            return Answer(200, self.menus[request.name].encode())
        if request.what == "files":
            self._fetched(request.name, address)
            return self._file(request.name)
        if request.what == "boot":
            return self._boot(request, address)
        return self._seed(request, address)

    def _file(self, name: str) -> Answer:
        place = self.folder / "files" / name
        if place.is_symlink() or not place.is_file():
            return Answer(404, b"nothing is there\n")
        return Answer(200, file=place, kind="application/octet-stream")

    def _fetched(self, name: str, address: str) -> None:
        """Record that a machine that was given the installer fetches its kernel: once, whoever else asks for files."""
        node = self._by_address.get(address)
        if node is None or name != self.netboot.kernel.name:
            return
        with self._lock:
            install = self.installs(fresh=False).get(node, Install())
            if install.phase is Phase.BOOTING and install.fetched_at is None:
                self._record(recorded("fetched", node, install, name=name, address=address))

    def _boot(self, request: Request, address: str) -> Answer:
        """IPXE asks who it is; the answer is a script in any case, or the machine would stop at a prompt."""
        said = {key: request.query.get(key, "")[:200] for key in ("serial", "mac", "uuid", "buildarch", "platform")}
        node, why = self.machines.named(said["serial"], said["mac"])
        local = Answer(200, self.menus["local.ipxe"].encode())
        if node is None:
            self.refuse(Refusal(200, why), asked="boot", address=address)
            return local
        with self._lock:
            install = self.installs().get(node, Install())
            answer, why = boot_answer(install, self.clock())
            files = armed_files(self.folder, node) if answer is Boot.INSTALL else None
            if answer is Boot.INSTALL and (files is None or files.token_sha256 != install.token_sha256):
                answer, why = Boot.LOCAL, "its files are not those of its arming: arm it again"
            self._asked(node, install, answer, why, address=address, **said)
        if answer is not Boot.INSTALL or files is None:
            return local
        return Answer(200, files.file("install.ipxe"))

    def _asked(self, node: str, install: Install, answer: Boot, why: str, **said: str) -> None:
        drafts = [recorded("asked", node, install, answer=str(answer), why=why, **said)]
        if answer is Boot.HELD and install.phase != "held":
            drafts.append(recorded("held", node, install, why=why))
        self._record(*drafts)

    def heard(self) -> None:
        """What machines fetched by TFTP since the last look: GRUB asks there, and dnsmasq alone answers it."""
        for file, address in self._tftp.sent():
            if file != MENU:
                self._fetched(file.removeprefix("files/"), address)
                continue
            node = self._by_address.get(address)
            if node is None:
                continue
            with self._lock:
                install = self.installs().get(node, Install())
                answer, why = boot_answer(install, self.clock())
                if answer is not Boot.LOCAL:
                    self._asked(node, install, answer, why, address=address, platform="grub")

    def _seed(self, request: Request, address: str) -> Answer:
        with self._lock:
            install = self.installs().get(request.node, Install())
            refusal = seed_refusal(install, request.token, address, self.clock())
            files = None if refusal else self._files(request.node, install)
            if refusal is None and files is None:
                refusal = Refusal(410, "its files are not those of its arming: arm it again")
            if refusal or files is None:
                return self.refuse(
                    refusal or Refusal(410, ""), asked=f"seed {request.name}", address=address, node=request.node
                )
            if install.phase != "seed fetched":
                self._record(recorded("seeded", request.node, install, name=request.name, address=address))
                for name in grub_names(self.fleet.nodes[request.node]):
                    (self.folder / "tftp/grub/hosts" / name).unlink(missing_ok=True)
            return Answer(200, files.file(request.name))

    def _files(self, node: str, install: Install) -> Armed | None:
        files = armed_files(self.folder, node)
        return files if files and files.token_sha256 == install.token_sha256 else None

    # --- what machines tell -----------------------------------------------------------------------------

    def judged(self, request: Request) -> Refusal | None:
        """Whether a body is worth reading."""
        judge = {
            "report": token_refusal, "inventory": inventory_refusal, "upload": upload_refusal, "phone": phone_refusal,
            "finished": finished_refusal,
        }[request.what]  # fmt: skip
        return judge(
            self.installs(fresh=request.what in ("phone", "finished")).get(request.node, Install()),
            request.token,
            self.clock(),
        )

    def tell(self, request: Request, address: str, body: bytes) -> Answer:
        """Take a report, an inventory or the word of a first boot."""
        with self._lock:
            install = self.installs(fresh=False).get(request.node, Install())
            if refusal := self.judged(request):  # another request may have changed it while the body came
                return self.refuse(refusal, asked=request.what, address=address, node=request.node)
            if request.what == "phone":
                return self._phone(request.node, install, address, body)
            document = _document(body)
            if request.what == "inventory":
                return self._inventory(request.node, install, document)
            if document is None:
                return self.refuse(Refusal(400, "no JSON"), asked=request.what, address=address, node=request.node)
            if request.what == "finished":
                self._record(recorded("finished", request.node, install, **finished_body(document)))
                return Answer(200)
            self._log(request.node, document)
            if noteworthy(document):
                self._record(recorded("stage", request.node, install, **stage_body(document)))
            return Answer(200)

    def _inventory(self, node: str, install: Install, document: dict[str, Any] | None) -> Answer:
        files = self._files(node, install)
        found = (document or {}).get("found")
        told = (document or {}).get("differences")
        wrong = differences(files.expected, found) if files else ["its files are not those of its arming"]
        wrong += foreign(node, found, self._of_mac, self._of_disk)
        wrong += [str(each)[:300] for each in told if str(each) not in wrong] if isinstance(told, list) else []
        text = json.dumps(document, sort_keys=True) + "\n"
        write_whole(self._logs(node) / "inventory.json", text, mode=0o600)
        digest = "sha256:" + hashlib.sha256(text.encode()).hexdigest()
        blind = unknown(files.expected, found) if files else []
        secure = found.get("secure_boot") if isinstance(found, dict) else None
        self._record(
            recorded(
                "inventory", node, install, differences=wrong[:50], unknown=blind, inventory_sha256=digest,
                secure_boot=secure if isinstance(secure, bool) else None,
            )
        )  # fmt: skip
        self._keep(node, install, "inventory.json", digest)
        return Answer(409, ("\n".join(wrong) + "\n").encode()) if wrong else Answer(200)

    def _phone(self, node: str, install: Install, address: str, body: bytes) -> Answer:
        try:
            form = parse_qs(body.decode(errors="replace"), max_num_fields=32)
        except ValueError:  # more fields than any machine sends
            form = {}
        key = host_key(form.get("pub_key_ed25519", [""])[0])
        if key is None:
            return self.refuse(Refusal(400, "no ed25519 host key"), asked="phone", address=address, node=node)
        # Trusted before it is recorded: where the record cannot be made, the machine tries again.
        place = self.site.known_hosts_path
        text = place.read_text() if place.exists() else ""
        names = [node, self.fleet.nodes[node].address]
        write_whole(place, with_key(text, names, key, port=self.fleet.ssh.port))
        self._record(recorded("phoned", node, install, host_key=key, address=address))
        return Answer(200)

    def upload(self, request: Request, address: str, source: BufferedIOBase, size: int) -> Answer:
        """Take a file: beside its place, hashed on the way, renamed when it is whole."""
        folder = self._logs(request.node)
        digest, left = hashlib.sha256(), size
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".upload-", delete=False) as temp:
            try:
                while left and (piece := source.read(min(left, 1 << 16))):
                    temp.write(piece)
                    digest.update(piece)
                    left -= len(piece)
                if left:
                    return self.refuse(
                        Refusal(400, f"{left} bytes are missing"), asked="upload", address=address, node=request.node
                    )
                with self._lock:
                    install = self.installs().get(request.node, Install())
                    if refusal := self.judged(request):
                        return self.refuse(refusal, asked="upload", address=address, node=request.node)
                    temp.flush()
                    os.fsync(temp.fileno())
                    body = {"name": request.name, "size": size, "sha256": "sha256:" + digest.hexdigest()}
                    self._record(recorded("uploaded", request.node, install, **body))
                    Path(temp.name).replace(folder / request.name)
                self._keep(request.node, install, request.name, str(body["sha256"]))
                return Answer(201)
            finally:
                Path(temp.name).unlink(missing_ok=True)

    def _keep(self, node: str, install: Install, name: str, digest: str) -> None:
        """Into the ledger's files, behind the event that says that it came; without the lock: a log may be large."""
        drafts = kept(
            self.site, self._logs(node), {name: digest}, role=INSTALLATION_LOG, subjects=(f"node:{node}",),
            identity=install.environment,
        )  # fmt: skip
        with self._lock:
            self._record(*drafts)

    def _logs(self, node: str) -> Path:
        folder = self.folder / "logs" / node
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _log(self, node: str, document: dict[str, Any]) -> None:
        place = self._logs(node) / "reports.jsonl"
        line = json.dumps({"received": self.clock().isoformat(), **document}, sort_keys=True) + "\n"
        if (place.stat().st_size if place.exists() else 0) + len(line) <= LONGEST_LOG_BYTES:
            with place.open("a") as file:
                file.write(line)

    # --- TFTP ---------------------------------------------------------------------------------------------

    def publish(self) -> None:
        """GRUB's files of the machines that may install now, and no others."""
        hosts = self.folder / "tftp/grub/hosts"
        with self._lock:
            now = self.clock()
            wanted: dict[str, bytes] = {}
            for node, install in self.installs().items():
                known = node in self.fleet.nodes and install.seeded_at is None
                opens = known and armed(install, now) and boot_answer(install, now)[0] is Boot.INSTALL
                if opens and (data := self._grub(node, install)):
                    wanted |= dict.fromkeys(grub_names(self.fleet.nodes[node]), data)
            for path in hosts.iterdir():
                if path.name not in wanted:
                    path.unlink(missing_ok=True)
            for name, data in wanted.items():
                place = hosts / name
                if not place.exists() or place.read_bytes() != data:
                    write_whole(place, data)  # 0644: dnsmasq gives only what everybody may read

    def _grub(self, node: str, install: Install) -> bytes | None:
        """GRUB's file of an arming, read once."""
        known = self._files_of.get(node)
        if known is None or known[0] != install.token_sha256:
            files = self._files(node, install)
            if files is None:
                return None
            known = self._files_of[node] = (files.token_sha256, files.file("install.grub"))
        return known[1]


class _Follow:
    """New lines of a log that others write, from its end on: what was before the server began is the ledger's."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read, self._file = self._size()

    def _size(self) -> tuple[int, int]:
        try:
            stat = self.path.stat()
        except OSError:
            return 0, 0
        return stat.st_size, stat.st_ino

    def sent(self) -> list[tuple[str, str]]:
        """What was sent, and to which address, since the last call."""
        size, inode = self._size()
        if inode != self._file or size < self._read:  # rotated, or begun anew
            self._read, self._file = 0, inode
        if size <= self._read:
            return []
        with self.path.open("rb") as file:
            file.seek(self._read)
            data = file.read(size - self._read)
        whole = data.rpartition(b"\n")[0]  # a line that is being written is read next time
        self._read += len(whole) + (1 if whole else 0)
        return [found for line in whole.decode(errors="replace").splitlines() if (found := sent(line))]


def _document(body: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(body)
        # JSON can name half a character (\ud800), which no ledger and no answer can hold.
        document = json.loads(json.dumps(document, ensure_ascii=False).encode(errors="replace"))
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


class _Handler(BaseHTTPRequestHandler):
    """One connection: lengths, bodies, and files; nothing is decided here."""

    protocol_version = "HTTP/1.1"
    server_version = "bedplate"
    sys_version = ""
    timeout = IDLE_S
    boot: BootServer

    def do_GET(self) -> None:
        self._handle()

    do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_GET  # noqa: N815  names of http.server

    def _handle(self) -> None:
        address = self.client_address[0]
        request = parse_request(self.command, self.path)
        try:
            if isinstance(request, Refusal):
                self.close_connection = True
                # Its first word alone: a token may stand behind it.
                asked = f"{self.command} /{self.path.lstrip('/').partition('/')[0][:40]}"
                self._send(self.boot.refuse(request, asked=asked, address=address))
            elif self.command in ("GET", "HEAD"):
                self._send(self.boot.get(request, address))
            else:
                self._send(self._body(request, address))
                if self.close_connection:
                    self._linger()
        except BedplateError as fault:
            self.close_connection = True
            self._send(Answer(503, f"{fault}\n".encode()))

    def _body(self, request: Request, address: str) -> Answer:
        length = self.headers.get("Content-Length")
        refusal = size_refusal(request.what, length) or self.boot.judged(request)
        if refusal:
            self.close_connection = True  # the body is not read
            return self.boot.refuse(refusal, asked=request.what, address=address, node=request.node)
        size = int(length or 0)
        if request.what == "upload":
            return self.boot.upload(request, address, self.rfile, size)
        body = self.rfile.read(size)
        if len(body) < size:
            self.close_connection = True
            return Answer(400, b"bytes are missing\n")
        return self.boot.tell(request, address, body)

    def _linger(self) -> None:
        """Take a little of what is still being sent: closed at once, the connection is reset and the answer lost.

        RFC 9112, 9.6.
        """
        with contextlib.suppress(OSError):
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_WR)
            self.connection.settimeout(LINGER_S)
            taken, until = 0, time.monotonic() + LINGER_S
            while taken < LINGER_BYTES and time.monotonic() < until:
                some = self.rfile.read1(65536)
                if not some:
                    return
                taken += len(some)

    def _send(self, answer: Answer) -> None:
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(answer.file.open("rb")) if answer.file else None
            size = os.fstat(file.fileno()).st_size if file else len(answer.body)
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.kind)
            self.send_header("Content-Length", str(size))
            if self.close_connection:
                self.send_header("Connection", "close")
            self.end_headers()
            if self.command == "HEAD":
                return
            if file is None:
                self.wfile.write(answer.body)
                return
            self.wfile.flush()
            try:
                self.connection.sendfile(file)
            except (ConnectionError, TimeoutError):
                self.close_connection = True

    @override
    def log_message(self, format: str, *args: object) -> None:
        """The ledger says what happened; a line for each request of hundreds of machines says nothing."""


class _Server(ThreadingHTTPServer):
    request_queue_size = WAITING
    daemon_threads = True
    allow_reuse_address = True

    @override
    def handle_error(self, request: Any, client_address: Any) -> None:
        """A machine that is switched off while it asks is no fault of the server."""


@contextlib.contextmanager
def serving(boot: BootServer, address: str, port: int) -> Iterator[int]:
    """Serve until the block ends; gives the port, which is chosen where 0 was asked for.

    Raises:
        BedplateError: the address cannot be had.
    """
    handler = type("Handler", (_Handler,), {"boot": boot})
    try:
        server = _Server((address, port), handler)
    except (OSError, socket.gaierror) as fault:
        raise BedplateError(
            f"{address}:{port}: {fault.strerror or fault} (netboot.server and .port of fleet.yml)"
        ) from fault
    ended = threading.Event()

    def publishing() -> None:
        while not ended.wait(PUBLISH_EVERY_S):
            with contextlib.suppress(BedplateError, OSError):  # the next second tries again
                boot.heard()
                boot.publish()

    boot.publish()
    threads = [
        threading.Thread(target=server.serve_forever, daemon=True),
        threading.Thread(target=publishing, daemon=True),
    ]
    for thread in threads:
        thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        ended.set()
        server.shutdown()
        server.server_close()
        for thread in threads:
            thread.join()


def forget(folder: Path, node: str) -> None:
    """Remove the files of a machine's arming."""
    shutil.rmtree(folder / "armed" / node, ignore_errors=True)
