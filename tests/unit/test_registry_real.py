"""The client against Debian's docker-registry with TLS and a password, filled by skopeo; all on loopback."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bedplate.model.faults import BadInput
from bedplate.sources import certificates
from bedplate.sources.registry import DOCKER_MANIFEST, NotFound, Registry, Unauthorised, Unreachable, WrongBytes
from unit import realregistry
from unit.registryd import write_auth
from unit.smallimage import Member, write

pytestmark = realregistry.needed
LAYER = [Member("etc/motd", "hello\n"), Member("opt/big", bytes(range(256)) * 2000)]


@dataclass(frozen=True)
class Filled:
    registry: realregistry.Running
    digest: str

    @property
    def host(self) -> str:
        return self.registry.host

    @property
    def ca(self) -> Path:
        return self.registry.ca

    @property
    def auth(self) -> Path:
        return self.registry.auth


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    root = tmp_path_factory.mktemp("registry")
    digest = write(root / "image", [LAYER])
    with realregistry.serving(root) as registry:
        registry.skopeo(f"dir:{root}/image", f"docker://{registry.host}/lab/small:1")
        yield Filled(registry, digest)


def test_what_skopeo_pushed_is_found_by_digest(running: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(running.ca))
    found = Registry(running.host, auth=[running.auth]).manifest("lab/small", running.digest)
    assert found.digest == running.digest
    assert found.media_type == DOCKER_MANIFEST


def test_what_nobody_pushed_is_not_found(running: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(running.ca))
    registry = Registry(running.host, auth=[running.auth])
    assert not registry.exists("lab/small", "sha256:" + "0" * 64)
    with pytest.raises(NotFound):
        registry.manifest("lab/other", "1")


def test_it_wants_a_password(running: Filled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(running.ca))
    wrong = write_auth(tmp_path / "auth.json", running.host, login="ci:hunter2")
    for auth in ([], [wrong]):
        with pytest.raises(Unauthorised):
            Registry(running.host, auth=auth).manifest("lab/small", "1")


def test_a_certificate_that_nobody_vouches_for_is_refused(running: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)
    monkeypatch.delenv("CURL_CA_BUNDLE", raising=False)
    with pytest.raises(Unreachable, match=r"TLS: .*certificate verify failed"):
        Registry(running.host, auth=[running.auth]).manifest("lab/small", "1")


def test_its_blobs_are_read_to_their_end_and_one_that_was_damaged_on_its_disk_is_found(
    running: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(running.ca))
    registry = Registry(running.host, auth=[running.auth])
    layer = registry.manifest("lab/small", running.digest).layers[0]
    assert registry.has_blob("lab/small", layer)
    registry.check_blob("lab/small", layer)
    (file,) = running.registry.root.glob(f"data/docker/registry/v2/blobs/sha256/*/{layer.hexadecimal}/data")
    whole = file.read_bytes()
    for damaged in (whole[:-1], whole[:-1] + b"x"):
        file.write_bytes(damaged)
        with pytest.raises(WrongBytes):
            registry.check_blob("lab/small", layer)
    file.write_bytes(whole)
    registry.check_blob("lab/small", layer)


def test_who_may_push_is_found_out_and_nothing_is_left(running: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(running.ca))
    Registry(running.host, auth=[running.auth]).let_in_to_push("lab/small")
    # 2.8.2 keeps the state of a hash, until it purges uploads; of the upload itself nothing is left.
    assert not list(running.registry.root.glob("data/docker/registry/v2/repositories/lab/small/_uploads/*/data"))
    with pytest.raises(Unauthorised, match="a push to lab/small"):
        Registry(running.host, auth=[]).let_in_to_push("lab/small")


def test_a_ca_of_its_own_may_stand_where_docker_and_podman_read_it(
    running: Filled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(certificates, "FOLDERS", (tmp_path,))
    folder = tmp_path / running.host
    folder.mkdir()
    with pytest.raises(Unreachable, match="certificate verify failed"):
        Registry(running.host, auth=[running.auth]).manifest("lab/small", "1")
    (folder / "ca.crt").write_bytes(running.ca.read_bytes())
    assert Registry(running.host, auth=[running.auth]).manifest("lab/small", "1").digest == running.digest
    (folder / "ca.crt").write_text("no certificate")
    with pytest.raises(BadInput, match=r"ca\.crt: no certificate"):
        Registry(running.host, auth=[running.auth]).manifest("lab/small", "1")
