"""The builders behind one interface: which one builds, what it is told, and what a second build says."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from bedplate.act import image as images
from bedplate.act.builders import buildah, buildkit, choice
from bedplate.act.builders.builder import Dockerfile, Order, Paths
from bedplate.decide.buildrecord import Answer
from bedplate.decide.images.sourcepolicy import full, pinned, source_policy
from bedplate.model.canonical import sha256
from bedplate.model.faults import BadInput
from bedplate.process import Finished, ProcessFailed
from bedplate.sources.site import open_site
from unit.imagetools import install, registry_without_tls
from unit.layered import Layered, layer
from unit.lock_sample import digest
from unit.registryd import registry
from unit.site_sample import write_site

BASE = f"r.lab/base@{digest('1')}"
PINNED = f"docker.io/library/busybox:1.36@{digest('2')}"


def dockerfile(name: str, **said: object) -> Dockerfile:
    given: dict[str, object] = {
        "context": Path("/w/context"), "arguments": {}, "network": "host", "base_argument": "BASE",
        "file": "Dockerfile",
    }  # fmt: skip
    return Dockerfile(name=name, **{**given, **said})  # type: ignore[arg-type]


class Docker(Layered):
    """A docker with buildx and a daemon, as far as a build sees them: captured from docker 26.1.5, buildx 0.13.1."""

    INSPECTED = "Name:   default\nDriver: docker\n\nNodes:\nStatus:           running\nBuildKit version: v0.13.2\n"

    def __init__(self, files: dict[str, str] | None = None) -> None:
        super().__init__(files or {})
        self.store = '[["driver-type","io.containerd.snapshotter.v1"]]\n'
        self.buildx = "github.com/docker/buildx 0.13.1+ds1 0.13.1+ds1-3\n"
        self.daemon = True
        self.policies: dict[str, dict[str, object]] = {}
        self.environment: dict[str, str] = {}

    def answer_to(self, words: tuple[str, ...]) -> Callable[[list[str], Mapping[str, str]], str]:
        for beginning, answer in (
            ("docker buildx version", lambda *_: self.buildx),
            ("docker buildx inspect", self.inspect),
            ("docker info", lambda *_: self.store),
            ("docker version", lambda *_: "26.1.5+dfsg1\n"),
            ("docker buildx build", self.buildx_build),
        ):
            if " ".join(words).startswith(beginning):
                return answer
        return super().answer_to(words)

    def inspect(self, words: list[str], _env: Mapping[str, str]) -> str:
        if self.daemon:
            return self.INSPECTED
        said = "ERROR: Cannot connect to the Docker daemon at unix:///var/run/docker.sock"
        raise ProcessFailed(Finished(tuple(words), 1, "", said), "docker ended with 1")

    def buildx_build(self, words: list[str], env: Mapping[str, str]) -> str:
        said = dict(part.partition("=")[::2] for part in words[words.index("--output") + 1].split(","))
        layout, context = Path(said["dest"]), Path(words[-1])
        layout.mkdir()
        labels = dict(word.split("=", 1) for at, word in enumerate(words) if words[at - 1] == "--label")
        there = sorted(path.relative_to(context).as_posix() for path in context.rglob("*"))
        config = {"os": "linux", "architecture": "amd64", "config": {"Labels": labels}, "rootfs": {"diff_ids": []}}
        (layout / "config").write_text(json.dumps({**config, "made_of": there}))
        (layout / "index.json").write_text(
            json.dumps({"manifests": [{"digest": sha256((layout / "config").read_bytes())}]})
        )
        own = {"buildx.build.provenance": {"buildType": "https://mobyproject.org/buildkit@v1"}}
        Path(words[words.index("--metadata-file") + 1]).write_text(json.dumps(own))
        policy = env["EXPERIMENTAL_BUILDKIT_SOURCE_POLICY"]
        self.policies[Path(policy).name] = json.loads(Path(policy).read_text())
        self.environment = dict(env)
        return "#1 DONE\n"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with registry() as shelf:
        root = write_site(tmp_path / "site")
        base = shelf.put_image("base")
        text = (
            f"name: lab-small\nrepository: {shelf.address}/lab/small\n"
            f"base: {{reference: '{shelf.address}/base/debian', digest: '{base}'}}\nnetwork: none\n"
        )
        (root / "images/a/image.yml").write_text(text)
        registry_without_tls(monkeypatch)
        yield root


# --- which one builds ----------------------------------------------------------------------------------------------


def test_buildkit_builds_where_its_daemon_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Docker())
    assert choice.chosen().NAME == "buildkit"
    assert choice.chosen("buildah").NAME == "buildah"
    said = buildkit.builder()
    assert (said.name, said.version) == ("buildkit", "v0.13.2")
    assert said.programs == {"buildx": "0.13.1+ds1", "driver": "docker", "docker": "26.1.5+dfsg1", "skopeo": "1.18.0"}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"daemon": False}, "docker ended with 1: ERROR: Cannot connect to the Docker daemon"),
        ({"buildx": "buildah 1.39.3\n"}, "no buildx of docker"),  # podman's `docker`
        ({"store": '[["Backing Filesystem","extfs"]]\n'}, "containerd-snapshotter"),
    ],
)
def test_buildah_builds_where_buildkit_cannot_and_a_named_one_says_why(
    change: dict[str, object], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = Docker()
    for name, value in change.items():
        setattr(tools, name, value)
    install(monkeypatch, tools)
    assert choice.chosen().NAME == "buildah"
    with pytest.raises(BadInput, match="nothing can build an image here: buildkit: ") as caught:
        choice.chosen("buildkit")
    assert why in str(caught.value)


def test_where_nothing_can_build_each_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    tools = Layered({})
    tools.fails = "buildah --version"
    install(monkeypatch, tools)
    with pytest.raises(BadInput, match=r"buildkit: no program docker.*; buildah: buildah ended with 1"):
        choice.chosen()


# --- what they are told --------------------------------------------------------------------------------------------


def test_buildah_is_cut_off_from_the_network_by_a_namespace_once_the_images_are_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tools = Layered({})
    install(monkeypatch, tools)
    (tmp_path / "context").mkdir()
    one = dockerfile("image", context=tmp_path / "context", network="none", images={"busybox:1.36": PINNED})
    words = buildah.build_command("a", one, BASE, Paths(tmp_path, tmp_path / "log"))
    assert words[:4] == ["unshare", "--net", "buildah", "bud"]
    assert f"busybox:1.36=docker-image://{PINNED}" in words
    assert "--target" not in words
    tools.fails = "buildah bud"
    with pytest.raises(ProcessFailed):
        buildah.build(Order("a", BASE, [one]), Paths(tmp_path, tmp_path / "log"))
    assert [call.rpartition(" ")[2] for call in tools.calls_of("buildah pull")] == [BASE, PINNED]


def test_buildah_does_not_pretend_to_check_an_address() -> None:
    one = dockerfile("upstream", addresses={"https://x.example/f": digest("3")})
    with pytest.raises(BadInput, match=r"cannot check https://x\.example/f .*--builder buildkit"):
        buildah.build(Order("a", BASE, [one]), Paths(Path("/w"), Path("/l")))


@pytest.mark.parametrize(
    ("text", "said", "translated"),
    [
        ("FROM a\nRUN <<EOF\necho hi\nEOF\n", 'Error: building at STEP "ECHO ": Unknown instruction: "ECHO"', True),
        ("FROM a\nRUN echo\n", 'Error: Unknown instruction: "RNU"', False),
        ("FROM a\nRUN <<EOF\necho hi\nEOF\n", "no such package", False),
    ],
)
def test_a_buildah_that_reads_no_here_documents_is_told_as_that(
    text: str, said: str, translated: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """buildah#5474: the one of Ubuntu 24.04 takes every line of a here-document for an instruction."""
    tools = Layered({})
    install(monkeypatch, tools)
    tools.fails, tools.says = "buildah bud", said
    (tmp_path / "Dockerfile.ci").write_text(text)
    one = dockerfile("upstream", context=tmp_path, file="Dockerfile.ci")
    with pytest.raises(BadInput if translated else ProcessFailed) as caught:
        buildah.build(Order("a", BASE, [one]), Paths(tmp_path, tmp_path / "log"))
    assert said in str(caught.value)
    hint = "Dockerfile.ci has here-documents, which this buildah takes for instructions"
    assert (hint in str(caught.value)) is translated


def test_buildkit_is_told_everything_that_a_release_could_decide_by_itself() -> None:
    paths = Paths(Path("/w"), Path("/l"))
    first = buildkit.build_command(dockerfile("upstream", target="main", network="none"), BASE, None, paths)
    for pair in (("--network", "none"), ("--target", "main"), ("--build-arg", f"BASE={BASE}"),
                 ("--metadata-file", "/w/upstream.metadata.json")):  # fmt: skip
        assert first[first.index(pair[0]) + 1] == pair[1]
    assert {"--no-cache", "--provenance=false", "--sbom=false"} <= set(first)
    output = first[first.index("--output") + 1].split(",")
    assert {"type=oci", "oci-mediatypes=true", "compression=gzip", "rewrite-timestamp=true"} <= set(output)
    stage = f"bedplate-stage@{digest('4')}"
    second = buildkit.build_command(dockerfile("image"), stage, Path("/w/upstream.oci"), paths)
    assert second[second.index("--build-arg") + 1] == "BASE=bedplate-stage"
    assert f"bedplate-stage=oci-layout:///w/upstream.oci@{digest('4')}" in second


def test_a_source_policy_denies_every_image_that_has_no_digest() -> None:
    said = source_policy(BASE, {"busybox:1.36": PINNED}, {"https://x.example/f": digest("3")})
    rules = [(rule["action"], rule["selector"]["identifier"]) for rule in said["rules"]]
    assert rules == [
        ("DENY", "docker-image://*"),
        ("ALLOW", f"docker-image://{PINNED}"),
        ("ALLOW", f"docker-image://{BASE}"),
        ("CONVERT", "docker-image://docker.io/library/busybox:1.36"),
        ("CONVERT", "https://x.example/f"),
    ]
    assert said["rules"][3]["updates"] == {"identifier": f"docker-image://{PINNED}"}
    assert said["rules"][4]["updates"]["attrs"] == {"http.checksum": digest("3")}
    # with match_type EXACT BuildKit would replace the tag by itself
    assert all(set(rule["selector"]) == {"identifier"} for rule in said["rules"])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("busybox:1.36", "docker.io/library/busybox:1.36"),
        ("bitnami/git:2", "docker.io/bitnami/git:2"),
        ("docker.io/busybox:1", "docker.io/library/busybox:1"),
        ("nvcr.io/nvidia/pytorch:26.06-py3", "nvcr.io/nvidia/pytorch:26.06-py3"),
        ("localhost/a:1", "localhost/a:1"),
        ("reg:5000/a:1", "reg:5000/a:1"),
    ],
)
def test_a_name_is_spelled_out_as_buildkit_does(name: str, expected: str) -> None:
    assert full(name) == expected
    assert pinned(name, {expected: digest("5")}) == f"{expected}@{digest('5')}"
    assert pinned(name, {}) is None


# --- whole builds --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_image_is_built_by_buildkit_and_its_own_provenance_kept(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = Docker()
    install(monkeypatch, tools)
    record = images.build(open_site(site), "A").record
    assert (record.builder.name, record.steps[0].network) == ("buildkit", "none")
    assert tools.environment["SOURCE_DATE_EPOCH"] == "1735689600"
    assert record.provenance
    came = json.loads((site / record.provenance.path).read_text())
    assert sha256((site / record.provenance.path).read_bytes()) == record.provenance.sha256
    own = came["predicate"]["buildDefinition"]["internalParameters"]["builderProvenance"]
    assert own == [{"buildType": "https://mobyproject.org/buildkit@v1"}]
    assert came["subject"] == [
        {"name": record.repository, "digest": {"sha256": record.manifest_digest.removeprefix("sha256:")}}
    ]
    assert not tools.calls_of("buildah")


@pytest.mark.slow
def test_a_second_build_with_the_same_digest_is_recorded_as_such(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = Layered({"opt/a": "1"})
    install(monkeypatch, tools)
    outcome = images.build(open_site(site), "A", twice=True)
    assert outcome.record.reproduced.answer is Answer.YES
    assert outcome.says.endswith("; built twice: the same digest")
    assert len(tools.calls_of("unshare --net buildah bud")) == 2
    # of an image that is there one more build is enough, and it is what is compared
    again = images.build(open_site(site), "A", twice=True)
    assert (again.record.manifest_digest, again.did) == (outcome.record.manifest_digest, True)
    assert len(tools.calls_of("unshare --net buildah bud")) == 3
    assert images.read(open_site(site), "lab-small") == again.record


class Drifting(Layered):
    """Each build gives another layer."""

    def __init__(self, *layers: bytes) -> None:
        super().__init__({})
        self.layers = list(layers)

    def convert(self, words: list[str], env: object) -> str:
        super().convert(words, env)
        folder, data = Path(words[-1].removeprefix("dir:")), self.layers.pop(0)
        (folder / sha256(data).removeprefix("sha256:")).write_bytes(data)
        manifest = json.loads((folder / "manifest.json").read_text())
        (folder / "manifest.json").write_text(json.dumps(manifest | {"layers": [{"digest": sha256(data)}]}))
        return ""


DRIFTS = [
    ({"opt/a": "1", "var/log/dpkg.log": "09:14"}, {"opt/a": "1", "var/log/dpkg.log": "09:15"},
     "layer 1: /var/log/dpkg.log: its bytes differ (5 and 5) (likely: a log has times in it"),
    ({"opt/a": "1"}, {"opt/a": "1", "opt/b": "2", "opt/c": "3"}, "/opt/b: only the second build has it, and 1 more"),
    ({"opt/m/__pycache__/x.cpython-312.pyc": "1"}, {}, "only the first build has it (likely: Python puts"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second", "expected"), DRIFTS)
def test_a_second_build_with_another_digest_says_what_differs_first_and_why_that_is_likely(
    first: dict[str, str], second: dict[str, str], expected: str, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, Drifting(layer(first), layer(second)))
    outcome = images.build(open_site(site), "A", twice=True)
    assert outcome.record.reproduced.answer is Answer.NO
    assert expected in outcome.record.reproduced.says
    assert "NOT the same" in outcome.says


@pytest.mark.slow
def test_a_file_that_only_has_another_time_is_told_as_that(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Drifting(layer({"a": "1"}), layer({"a": "1"}, mtime_s=7)))
    says = images.build(open_site(site), "A", twice=True).record.reproduced.says
    assert says == "layer 1: /a: its time differs (0 and 7)"
