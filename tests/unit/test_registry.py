import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bedplate.model.faults import BadInput
from bedplate.sources import registryconnection as module
from bedplate.sources.registry import (
    DOCKER_INDEX,
    DOCKER_MANIFEST,
    OCI_INDEX,
    OCI_MANIFEST,
    NotFound,
    Registry,
    RegistryFault,
    Unauthorised,
    Unreachable,
    WrongBytes,
)
from unit.registryd import BASIC, TOKEN, Shelf, registry, write_auth

CONFIG = "sha256:" + "c" * 64
BODY = {
    "schemaVersion": 2,
    "mediaType": DOCKER_MANIFEST,
    "config": {"digest": CONFIG},
    "layers": [{"size": 5}, {"size": 7}],
}
NOWHERE = "sha256:" + "0" * 64


@pytest.fixture
def shelf() -> Iterator[Shelf]:
    with registry() as running:
        yield running


def client(shelf: Shelf, *auth: Path) -> Registry:
    return Registry(shelf.address, auth=auth, plain_http=True)


def test_a_manifest_comes_with_the_digest_of_its_bytes(shelf: Shelf) -> None:
    digest = shelf.put(BODY, DOCKER_MANIFEST, "1")
    for reference in ("1", digest):
        found = client(shelf).manifest("a/b", reference)
        assert (found.digest, found.media_type, found.config_digest) == (digest, DOCKER_MANIFEST, CONFIG)
        assert (found.size_bytes, found.is_index) == (12, False)
        assert json.loads(found.raw) == BODY


def test_all_four_media_types_are_asked_for(shelf: Shelf) -> None:
    client(shelf).exists("a/b", NOWHERE)
    assert set(shelf.accepts[0].split(", ")) == {OCI_MANIFEST, OCI_INDEX, DOCKER_MANIFEST, DOCKER_INDEX}


def test_an_oci_manifest_may_leave_its_media_type_out(shelf: Shelf) -> None:
    digest = shelf.put({"schemaVersion": 2, "config": {"digest": CONFIG}}, OCI_MANIFEST)
    assert client(shelf).manifest("a/b", digest).media_type == OCI_MANIFEST


def test_other_bytes_than_the_digest_are_refused(shelf: Shelf) -> None:
    shelf.put(BODY, DOCKER_MANIFEST, NOWHERE)
    with pytest.raises(WrongBytes, match=f"asked for was {NOWHERE}") as caught:
        client(shelf).manifest("a/b", NOWHERE)
    assert caught.value.exit_code == 3


def test_a_digest_header_that_does_not_fit_the_bytes_is_refused(shelf: Shelf) -> None:
    shelf.put(BODY, DOCKER_MANIFEST, "1")
    shelf.digest_header = NOWHERE
    with pytest.raises(WrongBytes, match=f"named was {NOWHERE}"):
        client(shelf).manifest("a/b", "1")


@pytest.mark.parametrize(
    ("media_type", "body"),
    [
        ("text/html", b"<html>captive portal</html>"),
        (DOCKER_MANIFEST, b"[]"),
        (DOCKER_MANIFEST, b"\xff\xfe"),
        ("application/json", b"{}"),
        (OCI_INDEX, BODY),
        ("application/vnd.docker.distribution.manifest.v1+prettyjws", {"schemaVersion": 1}),
        (DOCKER_MANIFEST, {"mediaType": ["list"]}),
    ],
)
def test_what_is_no_manifest_is_refused(shelf: Shelf, media_type: str, body: object) -> None:
    shelf.put(body, media_type, "1")
    with pytest.raises(WrongBytes):
        client(shelf).manifest("a/b", "1")


def test_an_endless_answer_is_cut_off(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LIMIT_BYTES", 100_000)
    shelf.put(b"x" * 300_000, DOCKER_MANIFEST, "1")
    with pytest.raises(WrongBytes, match="more than 100000 bytes"):
        client(shelf).manifest("a/b", "1")


def test_an_absent_manifest_is_not_found(shelf: Shelf) -> None:
    with pytest.raises(NotFound, match="MANIFEST_UNKNOWN: manifest unknown") as caught:
        client(shelf).manifest("a/b", NOWHERE)
    assert caught.value.exit_code == 2
    assert not client(shelf).exists("a/b", NOWHERE)


def test_a_server_error_that_passes_is_asked_again(shelf: Shelf) -> None:
    digest = shelf.put(BODY)
    shelf.failures = [503]
    assert client(shelf).exists("a/b", digest)


def test_a_server_error_that_stays_is_not_taken_for_absence(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRIES", module.RETRIES.new(backoff_factor=0))
    shelf.failures = [500] * 20
    with pytest.raises(Unreachable, match="answered 500") as caught:
        client(shelf).exists("a/b", NOWHERE)
    assert caught.value.exit_code == 4


def test_basic_credentials_are_sent_when_they_are_asked_for(shelf: Shelf, tmp_path: Path) -> None:
    shelf.wants = "Basic"
    digest = shelf.put(BODY)
    asking = client(shelf, write_auth(tmp_path / "auth.json", shelf.address))
    assert asking.exists("a/b", digest)
    assert asking.exists("a/b", digest)
    assert [authorization for _, _, authorization in shelf.requests] == [None, BASIC, BASIC]


def test_bearer_tokens_come_from_the_token_service(shelf: Shelf, tmp_path: Path) -> None:
    shelf.wants = "Bearer"
    digest = shelf.put(BODY)
    asking = client(shelf, write_auth(tmp_path / "auth.json", shelf.address))
    assert asking.exists("a/b", digest)
    assert asking.exists("a/b", digest)
    bearer = f"Bearer {TOKEN}"
    assert [authorization for _, _, authorization in shelf.requests] == [None, BASIC, bearer, bearer]


def test_a_public_repository_gets_a_token_without_credentials(shelf: Shelf) -> None:
    shelf.wants = "Bearer"
    shelf.anonymous = True
    assert client(shelf).exists("a/b", shelf.put(BODY))


@pytest.mark.parametrize("wants", ["Basic", "Bearer"])
def test_wrong_or_absent_credentials_are_named_by_their_file_alone(shelf: Shelf, tmp_path: Path, wants: str) -> None:
    shelf.wants = wants
    auth = write_auth(tmp_path / "auth.json", shelf.address, login="ci:hunter2")
    with pytest.raises(Unauthorised, match=f"{auth}") as caught:
        client(shelf, auth).manifest("a/b", NOWHERE)
    assert "hunter2" not in str(caught.value)
    assert caught.value.exit_code == 2
    with pytest.raises(Unauthorised, match="without credentials"):
        client(shelf, tmp_path / "none").manifest("a/b", NOWHERE)


def test_a_token_service_without_tls_gets_no_password(tmp_path: Path) -> None:
    challenge = 'Bearer realm="http://elsewhere.example/token",service="x"'
    asking = Registry("registry.example", auth=[write_auth(tmp_path / "a", "registry.example")])
    with pytest.raises(Unauthorised, match="without TLS"):
        asking._connection._token(challenge, "a/b", "pull", None)


def test_a_netrc_is_not_read(shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login ci password se:cret\n")
    (tmp_path / ".netrc").chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    client(shelf).exists("a/b", NOWHERE)
    assert shelf.requests[0][2] is None


def test_nobody_listening_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRIES", module.RETRIES.new(backoff_factor=0))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(Unreachable, match="Connection refused") as caught:
        Registry(f"127.0.0.1:{port}", auth=[], plain_http=True).manifest("a/b", "1")
    assert "0x" not in str(caught.value)


def test_a_server_that_hangs_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRIES", module.RETRIES.new(total=0, connect=0, read=0))
    monkeypatch.setattr(module, "TIMEOUT_S", (1.0, 0.2))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        host = f"127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(Unreachable, match="timed out"):
            Registry(host, auth=[], plain_http=True).manifest("a/b", "1")


def test_an_answer_that_breaks_off_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRIES", module.RETRIES.new(total=0, connect=0, read=0))
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def half() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")

        thread = threading.Thread(target=half)
        thread.start()
        host = f"127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(Unreachable):
            Registry(host, auth=[], plain_http=True).manifest("a/b", "1")
        thread.join()


def test_an_index_leads_to_the_manifest_of_a_platform(shelf: Shelf) -> None:
    wanted = shelf.put(BODY)
    platforms = [("linux", "arm64", NOWHERE), ("linux", "amd64", wanted), ("unknown", "unknown", NOWHERE)]
    entries = [{"digest": digest, "platform": {"os": os, "architecture": a}} for os, a, digest in platforms]
    index = shelf.put({"mediaType": OCI_INDEX, "manifests": entries}, OCI_INDEX, "1")
    index_digest, manifest = client(shelf).platform("a/b", "1", "amd64")
    assert (index_digest, manifest.digest) == (index, wanted)
    with pytest.raises(NotFound, match="0 manifests for linux/riscv64"):
        client(shelf).platform("a/b", "1", "riscv64")
    assert client(shelf).platform("a/b", wanted, "amd64")[0] is None


def test_every_fault_of_a_registry_has_an_exit_code_of_its_own_kind() -> None:
    assert {kind: kind.exit_code for kind in RegistryFault.__subclasses__()} == {
        Unreachable: 4, Unauthorised: 2, NotFound: 2, WrongBytes: 3,
    }  # fmt: skip
    assert not issubclass(RegistryFault, BadInput)
