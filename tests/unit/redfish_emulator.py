"""A Redfish service that behaves: sushy-tools' emulator with its fake driver, over TLS with passwords.

Every address of 127.0.0.0/8 is the BMC of one machine; what the emulator's systems lack (a serial number, a BIOS
version) is put into its answers here. Its machines change their state at once, not after seconds.
"""

import datetime
import ipaddress
import json
import ssl
import threading
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import bcrypt
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from werkzeug.serving import WSGIRequestHandler, make_server

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # its webob imports cgi, as far as Python still has it
    from sushy_tools.emulator import main as emulator
    from sushy_tools.emulator.resources.systems import fakedriver

USER, PASSWORD = "operator", "s3cret-of-bmc"


def write_certificates(folder: Path, addresses: Iterable[str]) -> tuple[Path, Path]:
    """A CA (as PEM) and a server's certificate with key for the addresses."""
    now = datetime.datetime.now(datetime.UTC)

    def named(name: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])

    def begun(subject: str, key: Any) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(named(subject))
            .issuer_name(named("test CA"))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        )

    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
    ca = (
        begun("test CA", ca_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    names = [x509.IPAddress(ipaddress.ip_address(each)) for each in addresses]
    leaf = begun("bmc", key).add_extension(x509.SubjectAlternativeName(names), critical=False)
    pem = serialization.Encoding.PEM
    (folder / "ca.pem").write_bytes(ca.public_bytes(pem))
    (folder / "server.pem").write_bytes(
        leaf.sign(ca_key, hashes.SHA256()).public_bytes(pem)
        + key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return folder / "ca.pem", folder / "server.pem"


class Emulator:
    """Machines by address: what each says of itself, and what was asked of it."""

    def __init__(self, serials: dict[str, str | None]) -> None:
        self.serials = serials
        self.uuids = {address: f"00000000-0000-0000-0000-{at:012d}" for at, address in enumerate(serials)}
        self.asked: list[tuple[str, str, str]] = []
        self.port = 0

    def fake(self, address: str) -> dict[str, Any]:
        found: dict[str, Any] = emulator.app.systems._get(self.uuids[address])
        return found

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        address = environ["HTTP_HOST"].partition(":")[0]
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"].rstrip("/")
        self.asked.append((address, method, path))
        said: list[Any] = []
        body = b"".join(emulator.app(environ, lambda *given: said.append(given)))
        status, headers = said[0][:2]
        if status.startswith("200") and method == "GET" and path.startswith("/redfish/v1/Systems"):
            document = json.loads(body)
            if path == "/redfish/v1/Systems":
                own = {"@odata.id": f"{path}/{self.uuids[address]}"}
                document |= {"Members": [own], "Members@odata.count": 1}
            elif path.count("/") == 4:
                document |= {"BiosVersion": "2.5.1"}
                if self.serials[address] is not None:
                    document |= {"SerialNumber": self.serials[address]}
            body = json.dumps(document).encode()
            headers = [(k, v) for k, v in headers if k.lower() != "content-length"]
            headers.append(("Content-Length", str(len(body))))
        start_response(status, headers)
        return [body]


class _Silent(WSGIRequestHandler):
    def log(self, *said: Any) -> None:
        pass


@contextmanager
def emulated(folder: Path, serials: dict[str, str | None], monkeypatch: Any) -> Iterator[Emulator]:
    """Serve them; `folder` gets ca.pem."""
    made = Emulator(serials)
    _, server_pem = write_certificates(folder, serials)
    hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
    (folder / "htpasswd").write_text(f"{USER}:{hashed}\n")
    (folder / "state").mkdir()
    monkeypatch.setattr(fakedriver.random, "randint", lambda *_: 0)
    for name in ("_cache", "wsgi_app"):  # what it remembers of an earlier test
        emulator.app.__dict__.pop(name, None)
    emulator.app.configure(extra_config={
        "SUSHY_EMULATOR_FAKE_DRIVER": True,
        "SUSHY_EMULATOR_STATE_DIR": str(folder / "state"),
        "SUSHY_EMULATOR_AUTH_FILE": str(folder / "htpasswd"),
        "SUSHY_EMULATOR_FAKE_SYSTEMS": [
            {"uuid": uuid, "name": f"m{at}", "power_state": "On", "external_notifier": False, "nics": []}
            for at, uuid in enumerate(made.uuids.values())
        ],
    })  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server_pem)
    server = make_server("0.0.0.0", 0, made, threaded=True, request_handler=_Silent, ssl_context=context)  # noqa: S104
    made.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
