"""The importers with real mksquashfs and unsquashfs on small images, and every file read back."""

import dataclasses
import hashlib
import http.client
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from bedplate.act import importers
from bedplate.act.importers import embedded, importer, loopback, readback
from bedplate.act.importers.embedded import Embedded, mksquashfs, tree_of
from bedplate.act.importers.enroot import _mixed
from bedplate.act.importers.importer import Work
from bedplate.decide.images.rootfs import Kind
from bedplate.model.faults import BadInput, Busy, Refused
from bedplate.process import Finished, ProcessFailed, streaming
from bedplate.sources.imagestore import Damaged, Image, ImageStore, as_directory
from bedplate.sources.registry import WrongBytes
from unit import smallimage
from unit.smallimage import NOON, Member, folder, hard, link, stored, write

pytestmark = pytest.mark.slow  # every test starts programs

BASE = [
    folder("etc"),
    Member("etc/passwd", "root:x:0:0::/root:/bin/sh\n"),
    folder("usr"),
    folder("usr/lib"),
    Member("usr/lib/code.py", "print(1)\n", mtime=NOON - 5000.25),
    Member("usr/lib/big", bytes(range(256)) * 9000),
    hard("usr/lib/big2", "usr/lib/big"),
    link("lib", "usr/lib"),
    folder("opt"),
    Member("opt/gone", "gone"),
    folder("opt/cache"),
    Member("opt/cache/old", "old"),
    folder("dev"),
    Member("dev/null", type=tarfile.CHRTYPE),
]
TOP = [
    Member("opt/.wh.gone"),
    folder("opt/cache"),
    Member("opt/cache/.wh..wh..opq"),
    Member("opt/cache/new", "new"),
    Member("usr/lib/big", "small now"),
    Member("usr/bin/su", "#!", mode=0o4755, owner=(1000, 1000)),
    Member('home/one/spa ce \\ "q" \'é', "x"),
    Member("opt/zeros", b"\0" * 3_000_000),
    Member("opt/empty"),
    Member("opt/fifo", type=tarfile.FIFOTYPE),
    Member("opt/ping", "p", xattrs={"user.note": "kept", "security.selinux": "label"}),
    Member("n" * 90 + "/" + "d" * 120, "long"),
]
CONFIG = {"Entrypoint": ["/bin/sh"], "Env": ["A=1"], "WorkingDir": "/workspace/x", "Volumes": {"/data": {}}}


def work(image: Image, tmp_path: Path, name: str = "made") -> Work:
    place = tmp_path / name
    place.mkdir()
    return Work(image, tree_of(image), "r.lab/team/img", place, tmp_path / "log")


def made(tmp_path: Path, image: Image, name: str = "made") -> Work:
    doing = work(image, tmp_path, name)
    Embedded().make(doing)
    return doing


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    return stored(tmp_path_factory.mktemp("image"), [BASE, TOP], CONFIG, how=["gzip", "zstd"])


@pytest.fixture(scope="module")
def done(image: Image, tmp_path_factory: pytest.TempPathFactory) -> Work:
    return made(tmp_path_factory.mktemp("done"), image)


def unpacked(squashfs: Path, target: Path) -> Path:
    subprocess.run(["unsquashfs", "-no-progress", "-dest", target, squashfs], check=True, capture_output=True)
    return target


def test_an_image_becomes_one_squashfs_with_the_files_of_all_layers(done: Work, tmp_path: Path) -> None:
    root = unpacked(done.output, tmp_path / "root")
    assert (root / "usr/lib/big").read_text() == "small now"
    assert (root / "usr/lib/big2").read_bytes() == bytes(range(256)) * 9000
    assert not (root / "opt/gone").exists()
    assert sorted(path.name for path in (root / "opt/cache").iterdir()) == ["new"]
    assert (root / "lib").readlink() == Path("usr/lib")
    assert (root / 'home/one/spa ce \\ "q" \'é').read_text() == "x"
    assert (root / ("n" * 90) / ("d" * 120)).read_text() == "long"
    assert (root / "opt/zeros").stat().st_size == 3_000_000
    assert (root / "opt/fifo").is_fifo()
    assert list((root / "dev").iterdir()) == []
    assert (root / "usr/bin/su").stat().st_mode & 0o7777 == 0o4755
    assert (root / "workspace/x").is_dir()


def test_times_are_those_of_the_layers_so_that_compiled_python_is_believed(done: Work, tmp_path: Path) -> None:
    root = unpacked(done.output, tmp_path / "root")
    assert int((root / "usr/lib/code.py").stat().st_mtime) == int(NOON - 5000.25)
    assert int((root / "etc/passwd").stat().st_mtime) == NOON


def test_everything_is_roots_as_what_enroot_makes(done: Work) -> None:
    said = subprocess.run(["unsquashfs", "-lln", done.output], check=True, capture_output=True, text=True).stdout
    assert {line.split()[1] for line in said.splitlines() if line[:1] in "-dlp" and "/" in line} == {"0/0"}


@pytest.mark.skipif(os.geteuid() != 0, reason="extended attributes are unpacked by root")
def test_attributes_are_kept_and_labels_are_not(done: Work, tmp_path: Path) -> None:
    root = unpacked(done.output, tmp_path / "root")
    try:
        os.setxattr(root / "opt/empty", "user.try", b"1")
    except OSError:
        pytest.skip("this file system has no extended attributes")
    assert os.listxattr(root / "opt/ping") == ["user.note"]


def test_enroots_files_are_in_it(done: Work, tmp_path: Path) -> None:
    root = unpacked(done.output, tmp_path / "root")
    assert "exec '/bin/sh'" in (root / "etc/rc").read_text()
    assert (root / "etc/environment").read_text() == "A=1\n"
    assert "/data none x-create=dir" in (root / "etc/fstab").read_text()
    assert (root / "etc/rc.local").exists()
    assert (root / "etc/passwd").exists()


def test_the_same_image_gives_the_same_bytes(image: Image, done: Work, tmp_path: Path) -> None:
    again = made(tmp_path, image)
    sums = {hashlib.sha256(each.output.read_bytes()).hexdigest() for each in (done, again)}
    assert len(sums) == 1


def test_an_epoch_of_the_environment_changes_nothing(
    image: Image, done: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mksquashfs takes one from there, and ends where options for times are given besides."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    assert made(tmp_path, image).output.read_bytes() == done.output.read_bytes()


def test_the_number_of_processors_makes_no_difference(image: Image, done: Work, tmp_path: Path) -> None:
    doing = work(image, tmp_path)
    command = [*mksquashfs(doing.output, doing.tree.nodes[""].mode, doing.options), "-processors", "1"]
    env = {**os.environ, "SOURCE_DATE_EPOCH": str(doing.tree.latest_s)}
    with streaming(command, feeds=True, timeout_s=60, env=env, log=doing.log) as pipe:
        embedded._feed(pipe, doing)
    assert doing.output.read_bytes() == done.output.read_bytes()


def test_what_was_made_is_read_back_to_its_last_byte(done: Work) -> None:
    assert readback.check(done.output, done.tree, frozenset(), done.log) == len(done.tree.nodes)
    found = readback.read(done.output)
    assert found["usr/lib/big2"].sha256 == f"sha256:{hashlib.sha256(bytes(range(256)) * 9000).hexdigest()}"
    assert found["lib"].target == "usr/lib"


@pytest.mark.parametrize("place", [120, 250, 400])
def test_a_flipped_bit_of_a_file_is_found(done: Work, tmp_path: Path, place: int) -> None:
    raw = bytearray(done.output.read_bytes())
    raw[place] ^= 0x10  # the data of files are behind the superblock
    (tmp_path / "flipped").write_bytes(raw)
    with pytest.raises((Refused, ProcessFailed)):
        readback.check(tmp_path / "flipped", done.tree, frozenset(), done.log)


def test_one_that_is_cut_off_is_found(done: Work, tmp_path: Path) -> None:
    raw = done.output.read_bytes()
    (tmp_path / "cut").write_bytes(raw[: len(raw) // 2])
    with pytest.raises((Refused, ProcessFailed)):
        readback.check(tmp_path / "cut", done.tree, frozenset(), done.log)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda top: [*top, Member("opt/new", "n")], '"/opt/new" is missing'),
        (lambda top: [*top, Member("opt/empty", "full")], '"/opt/empty" differs'),
        (lambda top: [*top, Member("usr/lib/.wh.big2")], '"/usr/lib/big2" is not of the image'),
        (lambda top: [*top, Member("usr/bin/su", "other", mode=0o4755)], '"/usr/bin/su" differs'),
    ],
)
def test_a_squashfs_of_something_else_is_refused(done: Work, tmp_path: Path, change: object, says: str) -> None:
    other = stored(tmp_path, [BASE, change(TOP)], CONFIG)  # type: ignore[operator]
    with pytest.raises(Refused, match=says):
        readback.check(done.output, tree_of(other), frozenset(), done.log)


def test_enroots_own_files_may_differ_and_must_be_there(done: Work, tmp_path: Path) -> None:
    other = stored(tmp_path, [BASE, TOP], {**CONFIG, "Env": ["A=2"]})
    with pytest.raises(Refused, match='"/etc/environment" differs'):
        readback.check(done.output, tree_of(other), frozenset(), done.log)
    readback.check(done.output, tree_of(other), {"etc/environment"}, done.log)


def test_a_layer_with_a_hole_in_it_is_read_as_it_is(tmp_path: Path) -> None:
    place = tmp_path / "files"
    place.mkdir()
    with (place / "sparse").open("wb") as file:
        file.seek(5_000_000)
        file.write(b"end")
        file.truncate(9_000_000)
    archive = tmp_path / "sparse.tar"
    subprocess.run(["tar", "--sparse", "--format=gnu", "-C", place, "-cf", archive, "sparse"], check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(smallimage, "tar", lambda _: archive.read_bytes())
        holed = stored(tmp_path / "image", [[]])
    doing = made(tmp_path, holed)
    readback.check(doing.output, doing.tree, frozenset(), doing.log)
    assert (doing.tree.nodes["sparse"].size, doing.tree.nodes["sparse"].kind) == (9_000_000, Kind.FILE)
    assert doing.tree.nodes["sparse"].sha256 == f"sha256:{hashlib.sha256((place / 'sparse').read_bytes()).hexdigest()}"


@pytest.mark.parametrize("how", ["gzip", "zstd", "plain"])
def test_every_compression_of_a_layer_is_read(tmp_path: Path, how: str) -> None:
    doing = work(stored(tmp_path, [BASE], how=[how]), tmp_path)
    assert doing.tree.nodes["etc/passwd"].size == 26


def test_a_layer_that_is_not_what_the_configuration_says_is_refused(tmp_path: Path) -> None:
    one = stored(tmp_path, [BASE])
    config = dict(one.config)
    config["rootfs"] = {"diff_ids": ["sha256:" + "0" * 64]}
    lying = dataclasses.replace(one)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Image, "config", config)
        with pytest.raises(Refused, match="the image's configuration says sha256:0000"):
            tree_of(lying)
        config["rootfs"] = {"diff_ids": []}
        with pytest.raises(Refused, match="1 layers, its configuration has 0 diff ids"):
            tree_of(lying)


@pytest.mark.parametrize("bad", [Member("../../evil", "x"), Member("lib/evil", "x"), hard("evil", "../../etc/shadow")])
def test_a_layer_that_leads_out_is_refused_and_nothing_is_made(tmp_path: Path, bad: Member) -> None:
    with pytest.raises(BadInput, match=r"layer 2 \([0-9a-f]{12}\)"):
        work(stored(tmp_path, [BASE, [bad]]), tmp_path)
    assert not (tmp_path.parent / "evil").exists()


def test_an_image_without_layers_has_enroots_files(tmp_path: Path) -> None:
    doing = made(tmp_path, stored(tmp_path, []))
    assert readback.check(doing.output, doing.tree, frozenset(), doing.log) == 6


def test_a_mksquashfs_that_fails_says_why(image: Image, tmp_path: Path) -> None:
    doing = work(image, tmp_path)
    (tmp_path / "made").rmdir()
    with pytest.raises(ProcessFailed, match=r"(?s)mksquashfs ended with 1.*made/image\.sqsh"):
        Embedded().make(doing)


# --- the store ------------------------------------------------------------------------------------------------------


def test_another_manifest_or_blob_than_asked_for_is_not_taken(tmp_path: Path) -> None:
    digest = write(tmp_path / "dir", [BASE])
    store = ImageStore(tmp_path / "store")
    with pytest.raises(WrongBytes, match="asked for sha256:0000"):
        store.take(tmp_path / "dir", "sha256:" + "0" * 64, "a test")
    blob = max((path for path in (tmp_path / "dir").iterdir() if len(path.name) == 64), key=lambda p: p.stat().st_size)
    blob.write_bytes(blob.read_bytes()[:-1])
    with pytest.raises(WrongBytes, match=f"blob sha256:{blob.name} was copied with other bytes"):
        store.take(tmp_path / "dir", digest, "a test")
    assert not (tmp_path / "store").exists()


def test_what_rots_in_the_store_is_removed_and_told(tmp_path: Path) -> None:
    one = stored(tmp_path, [BASE])
    assert one.store.image(one.manifest.digest) == one
    blob = one.path(one.manifest.layers[0])
    blob.write_bytes(b"rot")
    with pytest.raises(Damaged, match=blob.name):
        one.store.image(one.manifest.digest)
    assert not blob.exists()
    assert one.store.image(one.manifest.digest) is None


@pytest.mark.skipif(not shutil.which("skopeo"), reason="needs skopeo")
def test_skopeo_reads_what_the_store_lends_it(tmp_path: Path) -> None:
    one = stored(tmp_path, [BASE, TOP])
    place = as_directory(one, tmp_path / "lent")
    said = subprocess.run(["skopeo", "inspect", "--raw", f"dir:{place}"], check=True, capture_output=True)
    assert said.stdout == one.manifest.raw


# --- Enroot, and the registry on loopback that it asks ----------------------------------------------------------------


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loopback, "PORT", 0)
    monkeypatch.setattr(loopback, "ADDRESS", "127.0.0.1")


@pytest.mark.skipif(not shutil.which("skopeo"), reason="needs skopeo")
def test_a_client_gets_the_verified_image_from_loopback(image: Image, tmp_path: Path) -> None:
    with loopback.serving(image, "team/img") as host:
        reference = f"docker://{host}/team/img@{image.manifest.digest}"
        command = ["skopeo", "copy", "--quiet", "--src-tls-verify=false", "--preserve-digests", reference]
        subprocess.run([*command, f"dir:{tmp_path}/got"], check=True, capture_output=True)
    got = ImageStore(tmp_path / "store").take(tmp_path / "got", image.manifest.digest, "loopback")
    assert got.manifest == image.manifest


@pytest.mark.parametrize("accept", ["", "application/vnd.oci.image.index.v1+json", "application/json"])
def test_loopback_answers_whatever_is_accepted(image: Image, accept: str) -> None:
    digest = image.manifest.digest
    with loopback.serving(image, "team/img") as host:
        for method, path, status in (
            ("GET", "/v2/", 200),
            ("HEAD", f"/v2/team/img/manifests/{digest}", 200),
            ("GET", f"/v2/team/img/manifests/{digest}", 200),
            ("GET", f"/v2/team/img/blobs/{image.manifest.layers[0].digest}", 200),
            ("GET", "/v2/team/img/manifests/latest", 404),
            ("GET", f"/v2/team/other/manifests/{digest}", 404),
            ("GET", "/v2/team/img/blobs/sha256:../../../../etc/passwd", 404),
        ):
            connection = http.client.HTTPConnection(host, timeout=60)
            connection.request(method, path, headers={"Accept": accept})
            answer = connection.getresponse()
            raw = answer.read()
            connection.close()
            assert answer.status == status
            if method == "GET" and "manifests/sha256" in path and status == 200:
                assert raw == image.manifest.raw


def test_two_imports_take_turns_on_loopback(image: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loopback, "WAIT_S", 0.0)
    with (
        loopback.serving(image, "team/img"),
        pytest.raises(Busy, match="another import serves"),
        loopback.serving(image, "team/img"),
    ):
        pass
    with loopback.serving(image, "team/img"):
        pass


def test_layers_of_two_compressions_are_refused_where_enroot_mixes_them_up(image: Image) -> None:
    assert _mixed(image, "4.1.2") is None
    body = dict(image.manifest.body)
    body["layers"] = [
        {**layer, "mediaType": f"application/vnd.oci.image.layer.v1.tar+{kind}"}
        for layer, kind in zip(body["layers"], ("gzip", "zstd"), strict=True)
    ]
    mixed = dataclasses.replace(image, manifest=dataclasses.replace(image.manifest, body=body))
    assert "takes the first layer's for all of them" in str(_mixed(mixed, "4.1.2+lab-stand-in"))
    assert _mixed(mixed, "4.2.0") is None


# --- which one ------------------------------------------------------------------------------------------------------


def test_enroot_is_chosen_where_it_is_and_the_embedded_one_where_it_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert importers.choose("embedded").name == "embedded"
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    if not shutil.which("enroot"):
        assert importers.choose(None).name == "embedded"
        with pytest.raises(BadInput, match="no program enroot"):
            importers.choose("enroot")
    (tmp_path / "enroot").write_text("#!/bin/sh\necho 4.1.2\n")
    (tmp_path / "enroot").chmod(0o755)
    assert importers.choose(None).name == "enroot"


def test_tools_that_are_missing_or_do_damage_are_named_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importer, "run", lambda *_, **__: Finished((), 0, "mksquashfs version 4.7.2 (2025)\n", ""))
    with pytest.raises(BadInput, match=r"mksquashfs 4\.7\.2 damages images"):
        importers.choose("embedded")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadInput, match="install the package squashfs-tools"):
        importers.choose("embedded")
