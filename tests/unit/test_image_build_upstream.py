"""A build that stands on somebody's recipe: real git, a repository with each trap, and programs that behave."""

import json
import os
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bedplate.act import image as images
from bedplate.decide.buildrecord import Answer
from bedplate.model.canonical import sha256
from bedplate.model.faults import BadInput, Refused
from bedplate.sources import commit as commits
from bedplate.sources.site import open_site
from unit.imagetools import install, registry_without_tls
from unit.layered import Layered
from unit.registryd import registry
from unit.site_sample import replace_in, write_site
from unit.upstream_sample import ADDRESS, FILES, OPS, Repository, git, instead_of, write

pytestmark = pytest.mark.slow  # every test starts git

CODE = "opt/megatron-lm"
DOCKERFILE = f"""\
ARG BASE
FROM ${{BASE}}
COPY --from=upstream . /{CODE}
COPY --from=source-ops . /opt/src/ops
COPY --from=built-from built-from.json /opt/train/
"""


@dataclass
class Stand:
    root: Path
    upstream: Repository
    ops: Repository
    tools: Layered

    @property
    def definition(self) -> Path:
        return self.root / "images/a/image.yml"

    def build(self, **said: object) -> images.Outcome:
        return images.build(open_site(self.root), "A", **said)  # type: ignore[arg-type]

    def faults(self, **said: object) -> list[str]:
        with pytest.raises(BadInput) as caught:
            self.build(**said)
        return [fault.found for fault in caught.value.faults]

    def calls(self, beginning: str) -> list[list[str]]:
        return [call.split(" ") for call in self.tools.calls if call.startswith(beginning)]


def holding(repository: Repository, built_from: bytes) -> dict[str, str]:
    """What an image has whose Dockerfile copied everything."""
    there = {f"{CODE}/{path}": text for path, text in repository.files.items()}
    return there | {"opt/train/built-from.json": built_from.decode()}


@pytest.fixture
def stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stand]:
    upstream = Repository(tmp_path / "upstream")
    ops = Repository(tmp_path / "ops", {"setup.py": "print()\n", "csrc/op.cu": "// op\n"}, tag=None)
    for name, value in instead_of({ADDRESS: upstream.folder, OPS: ops.folder}).items():
        monkeypatch.setenv(name, value)
    tools = Layered({})
    with registry() as shelf:
        install(monkeypatch, tools)
        registry_without_tls(monkeypatch)
        root = write_site(tmp_path / "site")
        base = shelf.put_image("base")
        (root / "images/a/image.yml").write_text(
            f"""\
name: lab-train:mc0.19.2
repository: {shelf.address}/lab/train
base: {{reference: "{shelf.address}/base/pytorch:26.06-py3", digest: "{base}"}}
upstream:
  repository: {ADDRESS}
  tag: core_v0.19.2
  commit: {upstream.head}
  target: main
  dockerfile: docker/Dockerfile.ci.dev
  arguments: {{UV_VERSION: "0.7.2"}}
  lockfiles: {{uv.lock: "{sha256(FILES["uv.lock"].encode())}"}}
  empty: [assets]
  code: /{CODE}
layers:
  - {{kind: source, repository: "{OPS}", commit: {ops.head}, toolkit: 13.3.0}}
expects: {{cuda: 13.3.0}}
"""
        )
        (root / "images/a/Dockerfile").write_text(DOCKERFILE)
        built_from = {
            "image": "lab-train:mc0.19.2",
            "commits": [
                {
                    "name": "upstream", "repository": ADDRESS, "tag": "core_v0.19.2", "commit": upstream.head,
                    "tree": git(upstream.folder, "rev-parse", "HEAD^{tree}"),
                },
                {
                    "name": "source-ops", "repository": OPS, "commit": ops.head, "toolkit": "13.3.0",
                    "tree": git(ops.folder, "rev-parse", "HEAD^{tree}"),
                },
            ],
        }  # fmt: skip
        said = (json.dumps(built_from, indent=2, sort_keys=True) + "\n").encode()
        tools.files = holding(upstream, said) | {
            "usr/local/cuda-13.3/version.json": json.dumps({"cuda": {"name": "CUDA", "version": "13.3.0"}})
        }
        yield Stand(root, upstream, ops, tools)


# --- what is built -------------------------------------------------------------------------------------------------


def test_the_named_stage_is_built_of_the_commit_and_ours_stands_on_it(stand: Stand) -> None:
    seen = stand.tools.watch("upstream")
    record = stand.build(checkout=stand.upstream.folder).record
    theirs, ours = stand.calls("buildah bud")
    assert theirs[theirs.index("--target") + 1] == "main"
    assert any(word.startswith("FROM_IMAGE_NAME=") and "@sha256:" in word for word in theirs)
    assert "UV_VERSION=0.7.2" in theirs
    (stage,) = [word for word in ours if word.startswith("BASE=")]
    assert stage == f"BASE={seen.image_id}"
    assert seen.files == {*FILES, "assets"}
    assert record.upstream
    assert (record.upstream.commit, record.upstream.head) == (stand.upstream.head, stand.upstream.head)
    assert record.upstream.tree == git(stand.upstream.folder, "rev-parse", "HEAD^{tree}")
    assert [step.made_empty for step in record.steps] == [("assets",), ()]
    assert record.lockfiles == {"uv.lock": sha256(FILES["uv.lock"].encode())}
    assert [(source.name, source.commit, source.toolkit) for source in record.sources] == [
        ("source-ops", stand.ops.head, "13.3.0")
    ]
    assert record.versions == {"cuda": "13.3.0"}
    assert record.reproduced.answer is Answer.NOT_TRIED


def test_without_a_checkout_the_commit_is_fetched_and_kept(stand: Stand) -> None:
    first = stand.build().record
    (stand.root / "builds/lab-train-mc0.19.2.json").unlink()
    second = stand.build(checkout=stand.upstream.folder).record
    assert first.steps == second.steps
    assert first.upstream == second.upstream
    assert len(list((stand.root / "builds/git").iterdir())) == 2


def test_a_dirty_worktree_and_a_persons_settings_change_nothing(stand: Stand) -> None:
    clean = stand.build(checkout=stand.upstream.folder).record
    write(stand.upstream.folder, {"uv.lock": "changed\n", "new.py": "", "assets/data": "x"})
    (stand.upstream.folder / "README.md").chmod(0o600)
    for name, value in (("core.autocrlf", "true"), ("tar.umask", "0077")):
        git(stand.upstream.folder, "config", name, value)
    (stand.root / "builds/lab-train-mc0.19.2.json").unlink()
    old = os.umask(0o077)
    try:
        again = stand.build(checkout=stand.upstream.folder).record
    finally:
        os.umask(old)
    assert again.steps == clean.steps
    assert again.manifest_digest == clean.manifest_digest


def test_the_commits_are_labels_and_a_file_of_the_image(stand: Stand) -> None:
    stand.build(checkout=stand.upstream.folder)
    ours = stand.calls("buildah bud")[-1]
    assert f"bedplate.upstream.commit={stand.upstream.head}" in ours
    assert f"bedplate.source-ops.commit={stand.ops.head}" in ours
    contexts = [word.partition("=")[0] for at, word in enumerate(ours) if ours[at - 1] == "--build-context"]
    assert contexts == ["built-from", "source-ops", "upstream"]


def test_what_is_not_pinned_is_told_and_recorded(stand: Stand) -> None:
    said: list[str] = []
    record = stand.build(checkout=stand.upstream.folder, say=said.append).record
    assert any("inputs of its recipe are not pinned" in text for text in said)
    assert record.provenance
    came = json.loads((stand.root / record.provenance.path).read_text())
    opened = came["predicate"]["buildDefinition"]["internalParameters"]["openInputs"]
    assert any("DOWNLOAD-UNCHECKED" in text and "docker/Dockerfile.ci.dev:7" in text for text in opened)
    assert any("SYNTAX-IGNORED" in text for text in opened)
    assert not any("COPY-MISSING" in text for text in opened)


# --- what is refused -----------------------------------------------------------------------------------------------


def test_a_tag_that_is_missing_or_elsewhere_names_both(stand: Stand) -> None:
    first = stand.upstream.head
    git(stand.upstream.folder, "tag", "--delete", "core_v0.19.2")
    for said in ({}, {"checkout": stand.upstream.folder}):
        (found,) = stand.faults(**said)
        assert "no tag core_v0.19.2 in" in found
        assert first in found
    second = stand.upstream.commit("second")
    git(stand.upstream.folder, "tag", "core_v0.19.2")
    found = stand.faults()[0]
    assert f"the tag core_v0.19.2 is {second}, commit is {first}" in found
    assert any(f"the tag core_v0.19.2 is {second}" in each for each in stand.faults(checkout=stand.upstream.folder))
    assert stand.tools.calls_of("buildah bud") == []


def test_a_checkout_that_is_at_another_commit_is_refused(stand: Stand) -> None:
    first, second = stand.upstream.head, stand.upstream.commit("second")
    (found,) = stand.faults(checkout=stand.upstream.folder)
    assert f"upstream.commit: {first}, but" in found
    assert second in found


def test_a_directory_that_the_commit_lacks_is_made_only_where_the_definition_says_so(stand: Stand) -> None:
    replace_in(stand.definition, "  empty: [assets]\n", "")
    assert any("COPY takes assets/, which is not in" in found for found in stand.faults())
    replace_in(stand.definition, "  code:", "  empty: [docker, assets]\n  code:")
    assert stand.faults() == ["upstream.empty[0]: the commit has docker"]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("target: main", "target: mian", "target mian: no stage of this name"),
        ("{uv.lock: ", '{uv.lock: "sha256:' + "0" * 64 + '"} #', 'upstream.lockfiles["uv.lock"]: sha256:000'),
        ("  empty:", "  base_argument: BASE_IMAGE\n  empty:", "no digest pins it"),
        ("  empty:", "  pins: {docker.io/library/busybox:1.36: unknown}\n  empty:", "unknown: nobody has written"),
        ("  empty:", '  pins: {docker.io/library/busybox:1.36: "sha256:' + "1" * 64 + '"}\n  empty:',
         'upstream.pins["docker.io/library/busybox:1.36"]: nothing takes it'),
    ],
)  # fmt: skip
def test_what_the_definition_could_pin_and_does_not_is_refused(stand: Stand, old: str, new: str, expected: str) -> None:
    replace_in(stand.definition, old, new)
    assert any(expected in found for found in stand.faults())
    assert stand.tools.calls_of("buildah bud") == []


def test_a_source_that_has_no_such_commit_or_has_submodules_is_refused(stand: Stand) -> None:
    replace_in(stand.definition, stand.ops.head, "c" * 40)
    assert stand.faults() == [f"layers[0].commit: {OPS} has no commit {'c' * 40}"]
    git(stand.ops.folder, "update-index", "--add", "--cacheinfo", f"160000,{'d' * 40},csrc/cutlass")
    git(stand.ops.folder, "commit", "--quiet", "-m", "submodule")
    replace_in(stand.definition, "c" * 40, stand.ops.head)
    (found,) = stand.faults()
    assert "has submodules, which git archive leaves out: csrc/cutlass" in found


def test_a_commit_that_no_branch_points_to_is_fetched_too(stand: Stand) -> None:
    wanted = stand.ops.head
    stand.ops.commit("later")
    assert stand.build().record.sources[0].commit == wanted


def test_an_attribute_that_changes_a_file_on_the_way_out_is_refused(stand: Stand) -> None:
    write(stand.upstream.folder, {".git/info/attributes": "uv.lock eol=crlf\n"})
    with pytest.raises(BadInput, match=r"uv\.lock: git archive hands out .*name a fresh clone"):
        stand.build(checkout=stand.upstream.folder)


def test_an_image_without_the_commits_files_or_with_others_is_refused(stand: Stand) -> None:
    whole = dict(stand.tools.files)
    for change, expected in (
        ({f"{CODE}/megatron/core/__init__.py": None}, f"/{CODE}/: missing: {CODE}/megatron/core/__init__.py"),
        ({f"{CODE}/megatron/core/__init__.py": "x"}, "with other bytes than the commit's"),
        ({f"{CODE}/megatron/core/new.py": "x"}, "no file of the commit"),
        ({"opt/train/built-from.json": None}, "no built-from.json in the built image"),
        ({"opt/train/built-from.json": "{}"}, "does not name the commits that it is built from"),
    ):
        there = {**whole, **change}
        stand.tools.files = {path: text for path, text in there.items() if text is not None}
        with pytest.raises(Refused, match="is not the one that is expected") as caught:
            stand.build()
        assert expected in str(caught.value)
    assert not (stand.root / "builds/lab-train-mc0.19.2.json").exists()


def test_a_checkout_for_a_definition_without_an_upstream_is_refused(stand: Stand) -> None:
    text = stand.definition.read_text()
    stand.definition.write_text(text[: text.index("upstream:")])
    (stand.root / "images/a/Dockerfile").write_text("ARG BASE\nFROM ${BASE}\n")
    assert stand.faults(checkout=stand.upstream.folder) == ["names no upstream"]
    assert stand.build().record.upstream is None


def test_a_package_that_is_not_beside_the_dockerfile_is_refused(stand: Stand) -> None:
    replace_in(stand.definition, "layers:\n", "layers:\n  - {kind: package, path: bedplate_train}\n")
    (found,) = stand.faults()
    assert found.startswith("layers[0].path: ")
    assert found.endswith("images/a/bedplate_train is not there")


def test_a_definition_whose_dockerfile_takes_nothing_of_the_commit_is_refused(stand: Stand) -> None:
    replace_in(stand.root / "images/a/Dockerfile", f"COPY --from=upstream . /{CODE}\n", "")
    assert stand.faults() == ["takes nothing from upstream"]


# --- git's files ---------------------------------------------------------------------------------------------------


def test_a_commits_links_modes_and_names_are_what_is_laid_out(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "r", {"a b/ü.txt": "1\n", "run.sh": "#!/bin/sh\n"}, tag=None)
    (repository.folder / "link").symlink_to("run.sh")
    head = repository.commit("link")
    done = commits.export(commits.Commit(ADDRESS, repository.folder, head, head), tmp_path / "out")
    assert set(done.blobs) == {"a b/ü.txt", "run.sh", "link"}
    assert done.left_out == ()
    assert (tmp_path / "out/run.sh").stat().st_mode & 0o777 == 0o755
    assert {path.lstat().st_mtime for path in (tmp_path / "out").rglob("*")} == {commits.EPOCH_S}


def test_what_git_archive_leaves_out_is_named(tmp_path: Path) -> None:
    files = {"a": "1\n", "secret": "2\n", ".gitattributes": "secret export-ignore\n"}
    repository = Repository(tmp_path / "r", files, tag=None)
    done = commits.export(commits.Commit(ADDRESS, repository.folder, repository.head, ""), tmp_path / "out")
    assert done.left_out == ("secret",)


# --- our lock's wheel of the upstream's package -----------------------------------------------------------------------


def our_lock(stand: Stand, tmp_path: Path) -> Path:
    """A wheel of megatron-core that has one file changed, and a lock beside image.yml that has it."""
    wheel = tmp_path / "megatron_core-0.19.2-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("megatron/core/__init__.py", FILES["megatron/core/__init__.py"])
        archive.writestr("megatron/core/package_info.py", "MAJOR = 0\nMINOR = 19\nPATCH = 1\n")
        archive.writestr("megatron/core/helpers.so", "ELF")
    (stand.root / "images/a/uv.lock").write_text(
        'version = 1\n[[package]]\nname = "megatron_core"\nversion = "0.19.2"\n'
        f'wheels = [{{ url = "https://x.example/a.whl", hash = "{sha256(wheel.read_bytes())}" }}]\n'
    )
    return wheel


def test_where_our_wheel_and_the_commit_part_stands_in_the_record(stand: Stand, tmp_path: Path) -> None:
    given = our_lock(stand, tmp_path)
    record = stand.build(checkout=stand.upstream.folder, wheels=[given]).record
    (wheel,) = record.wheels
    assert (wheel.name, wheel.version, wheel.sha256) == ("megatron-core", "0.19.2", sha256(given.read_bytes()))
    assert wheel.says == "1 files are the same, 1 differ"
    assert list(wheel.differ) == ["megatron/core/package_info.py"]
    assert wheel.compiled == ("megatron/core/helpers.so",)
    assert images.read(open_site(stand.root), record.name) == record
    assert any("a wheel is compared while one is" in fault for fault in stand.faults(wheels=[given]))


def test_a_wheel_that_was_not_given_is_recorded_as_not_compared(stand: Stand, tmp_path: Path) -> None:
    our_lock(stand, tmp_path)
    (wheel,) = stand.build(checkout=stand.upstream.folder).record.wheels
    assert (wheel.sha256, wheel.differ) == (None, {})
    assert wheel.says.startswith("not compared")


def test_a_wheel_that_our_lock_does_not_have_is_refused(stand: Stand, tmp_path: Path) -> None:
    given = our_lock(stand, tmp_path)
    with zipfile.ZipFile(given, "a") as archive:
        archive.writestr("megatron/core/more.py", "")
    (found,) = stand.faults(checkout=stand.upstream.folder, wheels=[given])
    assert "is no wheel that uv.lock of the definition has" in found


def test_the_base_is_recorded_with_its_index_where_there_is_one(stand: Stand) -> None:
    assert stand.build(checkout=stand.upstream.folder).record.base.index_digest is None
