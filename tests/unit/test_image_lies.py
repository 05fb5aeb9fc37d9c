"""Push, import and verify against a registry that lies: each lie is caught and named, and nothing is published."""

import base64
import dataclasses
import errno
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from bedplate.act import image as images
from bedplate.act.image import artifacts, proof, skopeo, state
from bedplate.cli.main import bedplate
from bedplate.decide.buildrecord import BuildRecord, Stage
from bedplate.model.faults import BadInput, BedplateError, Busy, Refused
from bedplate.process import ProcessFailed
from bedplate.sources import registryconnection
from bedplate.sources.registry import (
    DOCKER_MANIFEST,
    OCI_INDEX,
    NotFound,
    Registry,
    Unauthorised,
    Unreachable,
    WrongBytes,
)
from bedplate.sources.site import Site, open_site
from unit.imagetools import Tools, install, registry_without_tls
from unit.registryd import Shelf, registry, write_auth
from unit.site_sample import write_site

pytestmark = pytest.mark.slow  # every test starts programs


@dataclasses.dataclass
class Stand:
    root: Path
    shelf: Shelf
    tools: Tools

    @property
    def site(self) -> Site:
        return open_site(self.root)

    @property
    def record(self) -> BuildRecord:
        record = images.read(self.site, "lab-small")
        assert record
        return record

    @property
    def published(self) -> list[str]:
        """Squashfs files and records; whatever a failed import leaves counts too."""
        folder = self.root / "artifacts"
        return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stand]:
    monkeypatch.setattr(registryconnection, "RETRIES", registryconnection.RETRIES.new(backoff_factor=0))
    with registry() as shelf:
        tools = install(monkeypatch)
        root = write_site(tmp_path / "site")
        base = shelf.put_image("base")
        (root / "images/a/image.yml").write_text(
            f"name: lab-small\nrepository: {shelf.address}/lab/small\n"
            f"base: {{reference: '{shelf.address}/base/debian', digest: '{base}'}}\narguments: {{GREETING: hello}}\n"
        )
        registry_without_tls(monkeypatch)
        images.build(open_site(root), "A")
        yield Stand(root, shelf, tools)


@pytest.fixture
def pushed(built: Stand) -> Stand:
    images.push(built.site, "A")
    return built


def another_manifest(stand: Stand) -> None:
    kind, raw = stand.shelf.manifests[stand.record.manifest_digest]
    stand.shelf.manifests[stand.record.manifest_digest] = (kind, raw.replace(b'"layers": []', b'"layers":  []'))


def another_image_for_the_digest(stand: Stand) -> None:
    other = json.dumps({"mediaType": DOCKER_MANIFEST, "config": {"digest": "sha256:" + "1" * 64, "size": 1}}).encode()
    stand.shelf.manifests[stand.record.manifest_digest] = (DOCKER_MANIFEST, other)


def truncated_blob(stand: Stand) -> None:
    stand.shelf.blobs[stand.record.config_digest] = stand.shelf.blobs[stand.record.config_digest][:-3]


def another_blob(stand: Stand) -> None:
    raw = stand.shelf.blobs[stand.record.config_digest]
    stand.shelf.blobs[stand.record.config_digest] = raw.replace(b"amd64", b"arm64")


def lost_blob(stand: Stand) -> None:
    del stand.shelf.blobs[stand.record.config_digest]


def no_platform_manifest(stand: Stand) -> None:
    stand.shelf.statuses[stand.record.manifest_digest] = 406


def wants_a_password(stand: Stand) -> None:
    stand.shelf.wants = "Basic"


# the lie, what an import ends with, what it says, and the exit code of verify
LIES = [
    (another_manifest, WrongBytes, "answered with the bytes of sha256:", 3),
    (another_image_for_the_digest, WrongBytes, "answered with the bytes of sha256:", 3),
    (truncated_blob, WrongBytes, "copied with other bytes|cut off", 3),
    (another_blob, WrongBytes, "copied with other bytes|answered with the bytes of", 3),
    (lost_blob, (ProcessFailed, NotFound), "404|not this blob of it", 5),
    (no_platform_manifest, Unreachable, "answered 406", 4),
    (wants_a_password, Unauthorised, r"refuses lab/small \(401\), asked without credentials", 4),
]


@pytest.mark.parametrize(("lie", "kind", "says", "_code"), LIES)
def test_a_lie_is_caught_at_import_and_nothing_is_published(
    pushed: Stand, lie: Callable[[Stand], None], kind: type[BedplateError], says: str, _code: int
) -> None:
    lie(pushed)
    with pytest.raises(kind, match=says):
        images.import_(pushed.site, "A")
    assert pushed.published == []
    assert not (pushed.root / "builds/mirror/blobs").exists()
    assert pushed.record.stage is Stage.PUSHED


@pytest.mark.parametrize(("lie", "_kind", "_says", "code"), LIES)
def test_a_lie_is_named_by_verify(
    pushed: Stand, lie: Callable[[Stand], None], _kind: type[BedplateError], _says: str, code: int
) -> None:
    assert {part.state for part in images.verify(pushed.site, "A")} == {images.State.WHOLE}
    lie(pushed)
    wrong = [part for part in images.verify(pushed.site, "A") if part.state is not images.State.WHOLE]
    assert wrong
    assert all(part.what.startswith("registry: ") for part in wrong)
    result = CliRunner().invoke(bedplate, ["--site", str(pushed.root), "image", "verify", "A"], standalone_mode=False)
    assert result.return_value == code


@pytest.mark.parametrize(("lie", "_kind", "says", "_code"), LIES[2:5])
def test_a_registry_that_keeps_other_bytes_is_found_out_by_the_push(
    built: Stand, monkeypatch: pytest.MonkeyPatch, lie: Callable[[Stand], None], _kind: object, says: str, _code: int
) -> None:
    whole = Tools.push

    def then_lies(tools: Tools, words: list[str], env: dict[str, str]) -> str:
        said = whole(tools, words, env)
        lie(built)
        return said

    monkeypatch.setattr(Tools, "push", then_lies)
    with pytest.raises((WrongBytes, NotFound), match=says):
        images.push(built.site, "A")
    assert built.record.stage is Stage.BUILT


def test_a_tag_that_moves_is_told_and_what_is_imported_stays_the_same(pushed: Stand) -> None:
    other = pushed.shelf.put({"mediaType": DOCKER_MANIFEST, "config": {"digest": "sha256:" + "1" * 64, "size": 1}})
    tag = proof.keep_tag(pushed.record)
    pushed.shelf.manifests[tag] = pushed.shelf.manifests[other]
    assert images.import_(pushed.site, "A").record.manifest_digest == pushed.record.manifest_digest
    wrong = [part.says for part in images.verify(pushed.site, "A") if part.state is images.State.WRONG]
    assert len(wrong) == 1
    assert wrong[0].startswith(
        f"{pushed.record.repository}:{tag} names {other}: the next garbage collection may remove"
    )
    assert wrong[0].endswith("(run: bedplate image push A)")


def test_a_tag_that_is_gone_is_told_and_set_again_by_push(pushed: Stand) -> None:
    tag = proof.keep_tag(pushed.record)
    del pushed.shelf.manifests[tag]
    missing = [part for part in images.verify(pushed.site, "A") if part.state is images.State.MISSING]
    assert [part.what for part in missing] == ["registry: keep-tag"]
    assert images.push(pushed.site, "A").did
    assert pushed.shelf.manifests[tag] == pushed.shelf.manifests[pushed.record.manifest_digest]
    assert not images.push(pushed.site, "A").did


def test_one_who_may_not_push_learns_it_before_anything_moves(built: Stand) -> None:
    built.shelf.may_push = False
    built.tools.calls.clear()
    with pytest.raises(Unauthorised, match=r"refuses a push to lab/small \(403\)"):
        images.push(built.site, "A")
    assert built.tools.calls == []


def test_a_wrong_password_is_named_by_its_file_and_never_printed(
    pushed: Stand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pushed.shelf.wants = "Basic"
    auth = write_auth(tmp_path / "auth.json", pushed.shelf.address, login="ci:hunter2")

    def wrong(host: str) -> Registry:
        return Registry(host, auth=[auth], plain_http=True)

    monkeypatch.setattr(proof, "Registry", wrong)
    with pytest.raises(Unauthorised, match=str(auth)) as caught:
        images.import_(pushed.site, "A")
    assert "hunter2" not in str(caught.value)
    assert pushed.published == []


def test_what_only_enroots_file_knows_skopeo_is_told_for_this_once(
    pushed: Stand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".credentials").write_text("machine 127.0.0.1 login ci password se:cret\n")

    def with_enroots(host: str) -> Registry:
        return Registry(host, auth=[tmp_path / ".credentials"], plain_http=True)

    seen: list[tuple[int, object]] = []
    pull = pushed.tools.pull

    def spied(words: list[str], env: Mapping[str, str]) -> str:
        file = Path(env["REGISTRY_AUTH_FILE"])
        seen.append((file.stat().st_mode & 0o777, json.loads(file.read_text())))
        return pull(words, env)

    for module in (proof, skopeo):
        monkeypatch.setattr(module, "Registry", with_enroots)
    monkeypatch.setattr(pushed.tools, "pull", spied)
    images.import_(pushed.site, "A")
    encoded = base64.b64encode(b"ci:se:cret").decode()
    assert seen == [(0o600, {"auths": {pushed.shelf.address: {"auth": encoded}}})]
    assert not any("se:cret" in call or encoded in call for call in pushed.tools.calls)
    assert not list((pushed.root / "builds").rglob("auth.json"))


def test_an_index_must_name_the_manifest_and_keeps_it(pushed: Stand) -> None:
    entries = [{"digest": pushed.record.manifest_digest, "platform": {"os": "linux", "architecture": "amd64"}}]
    index = pushed.shelf.put({"mediaType": OCI_INDEX, "manifests": entries}, OCI_INDEX)
    record = dataclasses.replace(pushed.record, index_digest=index)
    pushed.shelf.manifests[proof.keep_tag(record)] = pushed.shelf.manifests[index]
    assert {part.state for part in proof.parts(record)} == {images.State.WHOLE}
    other = pushed.shelf.put({"mediaType": OCI_INDEX, "manifests": []}, OCI_INDEX)
    with pytest.raises(WrongBytes, match="the index does not name"):
        proof.manifest(dataclasses.replace(record, index_digest=other))


# --- a lost registry is no loss --------------------------------------------------------------------------------------


def test_what_was_mirrored_is_imported_and_pushed_without_the_registry(pushed: Stand) -> None:
    first = images.import_(pushed.site, "A").record.squashfs
    assert first
    (pushed.root / first.path).unlink()
    pushed.shelf.manifests.clear()
    pushed.shelf.blobs.clear()
    assert images.import_(pushed.site, "A").record.squashfs == first
    shutil.rmtree(images.built_path(pushed.site, "lab-small"))
    assert images.push(pushed.site, "A").did
    assert pushed.record.manifest_digest in pushed.shelf.manifests
    assert pushed.record.config_digest in pushed.shelf.blobs


def test_a_mirror_that_rots_is_filled_again(pushed: Stand) -> None:
    first = images.import_(pushed.site, "A").record.squashfs
    assert first
    blob = pushed.root / "builds/mirror/blobs/sha256" / pushed.record.config_digest.removeprefix("sha256:")
    blob.write_bytes(b"rot")
    assert [p.what for p in images.verify(pushed.site, "A") if p.state is images.State.WRONG] == ["mirror"]
    blob.write_bytes(b"rot")
    (pushed.root / first.path).unlink()
    assert images.import_(pushed.site, "A").record.squashfs == first
    assert blob.read_bytes() == pushed.shelf.blobs[pushed.record.config_digest]


# --- verify on this machine -------------------------------------------------------------------------------------------


def test_verify_looks_at_everything_that_was_recorded(pushed: Stand) -> None:
    images.import_(pushed.site, "A")
    parts = list(images.verify(pushed.site, "A"))
    assert [part.what for part in parts] == [
        "built image", "registry: manifest", "registry: configuration", "registry: keep-tag", "mirror", "squashfs",
    ]  # fmt: skip
    assert {part.state for part in parts} == {images.State.WHOLE}


def test_verify_names_what_is_damaged_here(pushed: Stand) -> None:
    squashfs = images.import_(pushed.site, "A").record.squashfs
    assert squashfs
    artifact = pushed.root / squashfs.path
    artifact.chmod(0o644)
    artifact.write_bytes(artifact.read_bytes()[:-1])
    artifact.with_suffix(".json").unlink()
    config = images.built_path(pushed.site, "lab-small") / pushed.record.config_digest.removeprefix("sha256:")
    config.write_bytes(b"{}")
    found = {part.what: part.state for part in images.verify(pushed.site, "A")}
    assert found["built image"] is found["squashfs"] is images.State.WRONG
    assert found["its record"] is images.State.MISSING


def test_verify_of_what_was_never_built_says_what_to_do(built: Stand) -> None:
    (built.root / "builds/lab-small.json").unlink()
    with pytest.raises(BadInput, match="bedplate image build A"):
        list(images.verify(built.site, "A"))


# --- Enroot's squashfs is read back as well --------------------------------------------------------------------------


def test_enroot_imports_from_loopback_what_was_verified(pushed: Stand) -> None:
    record = images.import_(pushed.site, "A", importer="enroot").record
    assert record.squashfs
    assert record.squashfs.tool == "enroot 4.1.2"
    assert record.squashfs.uri == f"docker://127.0.0.77:5077#lab/small@{record.manifest_digest}"
    assert json.loads((pushed.root / record.squashfs.path).with_suffix(".json").read_text())["importer"] == "enroot"


def test_enroot_asks_loopback_itself_where_the_site_has_a_proxy(pushed: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy.invalid:3128")
    monkeypatch.setenv("no_proxy", "127.0.0.1")  # the registry of this test
    seen: list[Mapping[str, str]] = []
    whole = pushed.tools.import_

    def spied(words: list[str], env: Mapping[str, str]) -> str:
        seen.append(env)
        return whole(words, env)

    monkeypatch.setattr(pushed.tools, "import_", spied)
    images.import_(pushed.site, "A", importer="enroot")
    assert [(env["no_proxy"], env["NO_PROXY"]) for env in seen] == [("127.0.0.77", "127.0.0.77")]


def test_what_enroot_says_of_any_answer_that_is_no_json_is_translated(pushed: Stand) -> None:
    """enroot#143, #241, #8, #9, #14: a 401, and whatever else answers, is `Could not process JSON input`."""
    pushed.tools.fails, pushed.tools.says = "enroot import", "[ERROR] Could not process JSON input"
    with pytest.raises(BedplateError, match=r"no password is asked for at 127\.0\.0\.77:5077.*--importer embedded"):
        images.import_(pushed.site, "A", importer="enroot")
    assert pushed.published == []
    pushed.tools.says = "[ERROR] No space left on device"
    with pytest.raises(ProcessFailed, match="No space left on device") as caught:
        images.import_(pushed.site, "A", importer="enroot")
    assert "password" not in str(caught.value)


def test_a_squashfs_that_is_not_the_image_is_never_published(pushed: Stand) -> None:
    pushed.tools.adds = ("shadow",)
    with pytest.raises(Refused, match='"/etc/shadow" is not of the image'):
        images.import_(pushed.site, "A", importer="enroot")
    assert pushed.published == []


def test_an_image_imported_by_another_tool_has_another_name_and_that_is_said(pushed: Stand) -> None:
    first = images.import_(pushed.site, "A").record.squashfs
    assert first
    (pushed.root / first.path).unlink()
    second = images.import_(pushed.site, "A", importer="enroot")
    assert f"before it was {first.sha256}" in second.says


# --- space, turns ---------------------------------------------------------------------------------------------------


def test_a_full_disk_is_told_before_anything_is_copied(pushed: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=-1))
    pushed.tools.calls.clear()
    with pytest.raises(BadInput, match=r"GB are free, the copy of the image needs about .* GB of layers x 1\.05"):
        images.import_(pushed.site, "A")
    assert not any(call.startswith("skopeo copy") for call in pushed.tools.calls)


def test_the_disk_that_enroot_unpacks_on_is_looked_at_too(pushed: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = shutil.disk_usage
    monkeypatch.setenv("ENROOT_TEMP_PATH", "/nowhere/scratch")
    monkeypatch.setattr(
        shutil, "disk_usage", lambda at: SimpleNamespace(free=-1) if str(at) == "/nowhere/scratch" else whole(at)
    )
    with pytest.raises(BadInput, match=r"/nowhere/scratch: .*Enroot \(ENROOT_TEMP_PATH\) needs"):
        images.import_(pushed.site, "A", importer="enroot")
    assert pushed.published == []


def test_the_disk_that_fills_up_on_the_way_leaves_nothing(pushed: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(artifacts, "write_whole", full)
    with pytest.raises(OSError, match="No space"):
        images.import_(pushed.site, "A")
    assert pushed.published == []
    monkeypatch.undo()


def test_one_who_waits_too_long_is_told_whom_for(pushed: Stand) -> None:
    said: list[str] = []
    with state.alone(pushed.site, "lab-small"), pytest.raises(Busy, match=r"process \d+ .*waited 1 s"):
        images.import_(pushed.site, "A", wait_s=1, say=said.append)
    assert any("waiting at most 1 s" in line for line in said)
