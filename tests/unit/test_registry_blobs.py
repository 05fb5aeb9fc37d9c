"""Blobs against a registry that lies, breaks off, and lets tokens run out; and who may push."""

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bedplate.sources import registry as rules
from bedplate.sources import registryconnection as connection
from bedplate.sources.registry import (
    DOCKER_MANIFEST,
    OCI_INDEX,
    Blob,
    NotFound,
    Registry,
    RegistryFault,
    Unauthorised,
    Unreachable,
    WrongBytes,
    read_manifest,
)
from unit.registryd import Shelf, registry, write_auth

RAW = bytes(range(256)) * 40
NOWHERE = "sha256:" + "0" * 64


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch) -> Iterator[Shelf]:
    monkeypatch.setattr(connection, "RETRIES", connection.RETRIES.new(backoff_factor=0))
    with registry() as running:
        yield running


def client(shelf: Shelf, *auth: Path) -> Registry:
    return Registry(shelf.address, auth=auth, plain_http=True)


def stored(shelf: Shelf, raw: bytes = RAW) -> Blob:
    return Blob(shelf.put_blob(raw), len(raw))


def test_a_blob_is_read_to_its_end(shelf: Shelf) -> None:
    client(shelf).check_blob("a/b", stored(shelf))
    client(shelf).check_blob("a/b", stored(shelf, b""))


@pytest.mark.parametrize(
    ("lie", "kind", "says"),
    [
        (lambda raw: raw[:-1] + b"x", WrongBytes, "answered with the bytes of sha256:"),
        (lambda raw: raw[:-1], WrongBytes, r"cut off: the registry has 10239 bytes, the manifest says 10240"),
        (lambda raw: raw + b"x", WrongBytes, "more bytes than the 10240 of the manifest"),
        (lambda _: b"", WrongBytes, "cut off: the registry has 0 bytes"),
    ],
)
def test_a_registry_that_answers_with_another_blob_is_caught(
    shelf: Shelf, lie: Callable[[bytes], bytes], kind: type[RegistryFault], says: str
) -> None:
    blob = stored(shelf)
    shelf.blobs[blob.digest] = lie(RAW)
    with pytest.raises(kind, match=f"{blob.digest}.*{says}"):
        client(shelf).check_blob("a/b", blob)


def test_a_blob_that_is_not_there_is_named(shelf: Shelf) -> None:
    with pytest.raises(NotFound, match=rf"a/b@{NOWHERE}: the registry has the manifest, and not this blob"):
        client(shelf).check_blob("a/b", Blob(NOWHERE, 5))


def test_what_broke_off_is_gone_on_with(shelf: Shelf) -> None:
    blob = stored(shelf)
    shelf.breaks[blob.digest] = [4000, 3000]
    client(shelf).check_blob("a/b", blob)
    assert len(shelf.requests) == 3


def test_a_registry_that_knows_no_ranges_is_asked_for_all_again(shelf: Shelf) -> None:
    blob = stored(shelf)
    shelf.ranges = False
    shelf.breaks[blob.digest] = [4000]
    client(shelf).check_blob("a/b", blob)


def test_one_that_never_gets_on_is_given_up(shelf: Shelf) -> None:
    blob = stored(shelf)
    shelf.breaks[blob.digest] = [0] * 100
    with pytest.raises(Unreachable, match="broke off after 0 of 10240 bytes"):
        client(shelf).check_blob("a/b", blob)
    assert len(shelf.breaks[blob.digest]) == 100 - rules.TRIES


def test_one_that_is_far_too_slow_is_given_up(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "SPARE_S", -1.0)
    with pytest.raises(Unreachable, match="slower than"):
        client(shelf).check_blob("a/b", stored(shelf))


def test_a_token_that_runs_out_between_two_ranges_is_renewed(shelf: Shelf, tmp_path: Path) -> None:
    blob = stored(shelf)
    shelf.wants, shelf.token_lasts = "Bearer", 1
    shelf.breaks[blob.digest] = [4000, 3000]
    client(shelf, write_auth(tmp_path / "auth.json", shelf.address)).check_blob("a/b", blob)
    assert shelf.scopes == ["repository:a/b:pull"] * 3


def test_whether_a_blob_is_there_is_asked_without_its_bytes(shelf: Shelf) -> None:
    blob = stored(shelf)
    assert client(shelf).has_blob("a/b", blob)
    assert not client(shelf).has_blob("a/b", dataclasses.replace(blob, size=5))
    assert not client(shelf).has_blob("a/b", Blob(NOWHERE, 5))
    assert [method for method, _, _ in shelf.requests] == ["HEAD"] * 3


@pytest.mark.parametrize(
    "said",
    [
        {"digest": "sha256:../../etc", "size": 5},
        {"digest": NOWHERE, "size": "5"},
        {"digest": NOWHERE, "size": -5},
        {"digest": NOWHERE},
        "a string",
    ],
)
def test_a_manifest_with_a_blob_that_cannot_be_compared_is_refused(said: object) -> None:
    body = {"schemaVersion": 2, "mediaType": DOCKER_MANIFEST, "config": said, "layers": [said]}
    manifest = read_manifest(json.dumps(body).encode(), DOCKER_MANIFEST, "here")
    for ask in (lambda: manifest.config, lambda: manifest.layers):
        with pytest.raises(WrongBytes, match=r"no digest of a blob|for a size"):
            ask()


def test_a_406_says_what_it_means(shelf: Shelf) -> None:
    shelf.statuses[NOWHERE] = 406
    with pytest.raises(Unreachable, match=r"answered 406: it does not give a manifest of one platform"):
        client(shelf).manifest("a/b", NOWHERE)


def test_a_tag_that_moves_in_between_changes_nothing(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    first = shelf.put({"mediaType": DOCKER_MANIFEST, "config": {"digest": NOWHERE}}, DOCKER_MANIFEST)
    second = shelf.put({"mediaType": DOCKER_MANIFEST, "config": {"digest": NOWHERE}, "new": 1}, DOCKER_MANIFEST)
    indexes = [
        {"mediaType": OCI_INDEX, "manifests": [{"digest": each, "platform": {"os": "linux", "architecture": "amd64"}}]}
        for each in (first, second)
    ]
    index = shelf.put(indexes[0], OCI_INDEX, "1")
    asking = client(shelf)
    manifest = asking.manifest

    def moving(repository: str, reference: str) -> rules.Manifest:
        found = manifest(repository, reference)
        shelf.put(indexes[1], OCI_INDEX, "1")
        return found

    monkeypatch.setattr(asking, "manifest", moving)
    index_digest, found = asking.platform("a/b", "1", "amd64")
    assert (index_digest, found.digest) == (index, first)


def test_a_token_that_lets_nobody_in_is_no_success(shelf: Shelf, tmp_path: Path) -> None:
    shelf.wants, shelf.anonymous, shelf.token_lasts = "Bearer", True, 0
    auth = write_auth(tmp_path / "auth.json", shelf.address)
    for asking, says in ((client(shelf), "without credentials"), (client(shelf, auth), f"asked with .*{auth}")):
        with pytest.raises(Unauthorised, match=says):
            asking.manifest("a/b", NOWHERE)


def test_a_manifest_of_4_mib_is_taken(shelf: Shelf) -> None:
    body = {"mediaType": DOCKER_MANIFEST, "config": {"digest": NOWHERE}, "annotations": {"x": "y" * 4 * 1024 * 1024}}
    digest = shelf.put(body, DOCKER_MANIFEST)
    assert client(shelf).manifest("a/b", digest).digest == digest


def test_along_a_redirect_goes_no_password(shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".netrc").write_text("default login ci password hunter2\n")
    (tmp_path / ".netrc").chmod(0o600)
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    with registry() as elsewhere:
        blob = stored(elsewhere)
        shelf.put_blob(RAW)
        shelf.wants = "Basic"
        other = elsewhere.address.replace("127.0.0.1", "localhost")
        shelf.redirects[blob.digest] = f"http://{other}/v2/cdn/blobs/{blob.digest}"
        client(shelf, write_auth(tmp_path / "auth.json", shelf.address)).check_blob("a/b", blob)
        assert [sent for _, _, sent in elsewhere.requests] == [None]


# --- who may push --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wants", [None, "Basic", "Bearer"])
def test_an_upload_is_begun_and_given_up(shelf: Shelf, tmp_path: Path, wants: str | None) -> None:
    shelf.wants = wants
    client(shelf, write_auth(tmp_path / "auth.json", shelf.address)).let_in_to_push("a/b")
    assert shelf.uploads == []
    assert set(shelf.scopes) <= {"repository:a/b:pull,push"}
    assert [method for method, _, _ in shelf.requests][-1] == "DELETE"


def test_one_who_may_not_push_is_told_before_anything_is_sent(shelf: Shelf, tmp_path: Path) -> None:
    shelf.wants, shelf.may_push = "Basic", False
    auth = write_auth(tmp_path / "auth.json", shelf.address)
    with pytest.raises(Unauthorised, match=rf"refuses a push to a/b \(403\), asked with entry .*{auth}") as caught:
        client(shelf, auth).let_in_to_push("a/b")
    assert "se:cret" not in str(caught.value)


@pytest.mark.parametrize(("status", "kind"), [(404, NotFound), (405, Unauthorised), (500, Unreachable)])
def test_a_registry_that_takes_no_pushes_is_named(shelf: Shelf, status: int, kind: type[RegistryFault]) -> None:
    shelf.failures = [status] * 10
    with pytest.raises(kind):
        client(shelf).let_in_to_push("a/b")


def test_ngc_is_told_with_its_login_and_its_second_machine(tmp_path: Path) -> None:
    auth = write_auth(tmp_path / "auth.json", "nvcr.io", login="$oauthtoken:nvapi-wrong")
    talk = connection.Connection("nvcr.io", auth=[auth], plain_http=False)
    said = str(talk.refused("nvidia/pytorch", 401, connection.PULL, at="authn.nvidia.com"))
    assert "authn.nvidia.com, token service of nvcr.io, refuses nvidia/pytorch (401)" in said
    assert "'$oauthtoken'" in said
    assert "machine nvcr.io and for machine authn.nvidia.com" in said
    assert "nvapi-wrong" not in said


@pytest.mark.parametrize("second", ["", "machine tokens.lab login ci password hunter2\n"])
def test_enroots_file_without_the_token_service_is_told(tmp_path: Path, second: str) -> None:
    (tmp_path / ".credentials").write_text("machine r.lab login ci password hunter2\n" + second)
    talk = connection.Connection("r.lab:5443", auth=[tmp_path / ".credentials"], plain_http=False)
    said = str(talk.refused("a/b", 401, connection.PULL, at="tokens.lab:8443"))
    assert ("Enroot itself would also need a line for machine tokens.lab" in said) == (not second)
    assert "hunter2" not in said


def test_a_credential_helper_is_named_where_one_is_not_let_in(shelf: Shelf, tmp_path: Path) -> None:
    shelf.wants = "Basic"
    (tmp_path / "config.json").write_text(json.dumps({"auths": {shelf.address: {}}, "credsStore": "pass"}))
    with pytest.raises(Unauthorised, match=r'helper "docker-credential-pass", which is not read'):
        client(shelf, tmp_path / "config.json").manifest("a/b", "1")
