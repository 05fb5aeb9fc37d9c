"""What a recipe leaves open, by a Dockerfile of our own that has each trap, and by locks and checkouts that do."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from bedplate.cli.main import bedplate
from bedplate.decide.images.lint import lint
from bedplate.decide.images.recipe import Recipe, Role, own_arguments, read_recipe, upstream_arguments
from bedplate.decide.images.rules import all_rules
from bedplate.decide.images.shell import commands
from bedplate.model.canonical import sha256
from bedplate.model.faults import BadInput
from bedplate.model.image import parse_image
from unit.lock_sample import digest

COMMIT, OTHER = "a" * 40, "b" * 40
OWN = "ARG BASE\nFROM ${BASE}\nCOPY --from=built-from built-from.json /opt/\n"
PINNED = f"FROM nvcr.io/nvidia/pytorch:26.06-py3@{digest('1')} AS main\n"

# Each trap of the upstream recipe (docker/Dockerfile.ci.dev of core_v0.19.0), in words of our own.
TRAPS = f"""\
# Copyright of somebody
# syntax=docker/dockerfile:1.3-labs
ARG FROM_IMAGE_NAME=nvcr.io/nvidia/pytorch:26.06-py3
FROM ${{FROM_IMAGE_NAME}} AS main
ARG UV_VERSION=0.7.2
ARG DEEPEP_COMMIT={COMMIT}
RUN bash -ex <<"EOF"
    apt-get update
    apt-get install -y gettext \\
        psmisc
    ARCH=$(uname -m)
    wget https://yq.example/v1/yq_${{ARCH}} -O /usr/local/bin/yq
    curl -LsSf https://uv.example/${{UV_VERSION}}/install.sh | sh
EOF
COPY README.md pyproject.toml uv.lock /workspace/
RUN --mount=type=cache,target=/root/.cache/uv bash -ex <<"EOF"
    uv venv /opt/venv --system-site-packages
    uv sync --only-group build
    uv sync --extra dev --locked --no-install-package torch
EOF
RUN <<EOF
    uv pip install nvidia-nvshmem-cu13==3.4.5
    git clone https://git.example/DeepEP.git
    pushd DeepEP
        git fetch origin $DEEPEP_COMMIT
        git checkout FETCH_HEAD
        uv pip install --no-build-isolation -v .
    popd
    git clone --branch main https://git.example/other.git
EOF
COPY assets/ /opt/data/
FROM main AS jet
RUN --mount=type=secret,id=JET_INDEX_URLS pip install "jet-client~=4.0"
"""
LOCK = f"""\
version = 1
revision = 2

[[package]]
name = "recipe"
version = "0.1.0"
source = {{ virtual = "." }}
metadata = {{ requires-dist = [{{ name = "einops" }}] }}

[[package]]
name = "einops"
version = "0.8.2"
source = {{ registry = "https://pypi.org/simple" }}
wheels = [{{ url = "https://x.example/e.whl", hash = "{digest("2")}" }}]

[[package]]
name = "torch"
version = "2.13.0"
source = {{ registry = "https://pypi.org/simple" }}
wheels = [{{ url = "https://x.example/t.whl", hash = "{digest("3")}" }}]
"""
PROJECT = '[project]\nname = "recipe"\nversion = "0.1.0"\ndependencies = ["einops>=0.8"]\n'
FILES = frozenset({"README.md", "pyproject.toml", "uv.lock"})
TEXTS = {"uv.lock": LOCK, "pyproject.toml": PROJECT}


def found(recipe: Recipe) -> list[tuple[str, int | None]]:
    return [(finding.rule, finding.fault.line) for finding in lint([recipe])]


def plain(text: str, **said: object) -> Recipe:
    return read_recipe(text, "Dockerfile", **said)  # type: ignore[arg-type]


def test_each_trap_of_the_upstream_recipe_is_found_at_its_line() -> None:
    assert found(plain(TRAPS, target="main", files=FILES, texts=TEXTS)) == [
        ("SYNTAX-IGNORED", 2),
        ("FROM-UNPINNED", 4),
        ("APT-UNPINNED", 9),
        ("DOWNLOAD-UNCHECKED", 12),
        ("DOWNLOAD-UNCHECKED", 13),
        ("CACHE-MOUNT", 16),
        ("UV-UNLOCKED", 18),
        ("CORE-REPLACED", 22),
        ("OUTSIDE-LOCK", 22),
        ("PIP-UNPINNED", 27),
        ("GIT-UNPINNED", 29),
        ("COPY-MISSING", 31),
    ]


def test_a_stage_that_is_not_built_leaves_nothing_open_and_the_last_one_is_built_where_none_is_named() -> None:
    whole = found(plain(TRAPS, files=FILES, texts=TEXTS))
    assert {("TARGET-MISSING", 33), ("PIP-UNPINNED", 33)} <= set(whole)
    assert ("TARGET-MISSING", None) in found(plain(TRAPS, target="mian", files=FILES, texts=TEXTS))


CASES = [
    # 0.16 to 0.18 of the upstream recipe: an argument without a default
    ("ARG FROM_IMAGE_NAME\nFROM ${FROM_IMAGE_NAME}\n", [("FROM-UNPINNED", 2)]),
    ("FROM debian:12\nCOPY --from=busybox:1 /bin/sh /sh\n", [("FROM-UNPINNED", 1), ("FROM-UNPINNED", 2)]),
    (PINNED + "FROM scratch\nCOPY --from=main /a /a\n", []),
    (PINNED + "RUN --mount=type=bind,from=alpine:3,target=/x true\n", [("FROM-UNPINNED", 2)]),
    ("# syntax=docker/dockerfile:1.7\n" + PINNED, [("SYNTAX-UNPINNED", 1)]),
    (f"# syntax=docker/dockerfile:1.7@{digest('5')}\n" + PINNED, []),
    ("\n# syntax=docker/dockerfile:1.7\n" + PINNED, [("SYNTAX-IGNORED", 2)]),
    (PINNED + "RUN curl -fsSLo f https://x.example/f && echo HASH f | sha256sum -c\n".replace("HASH", "c" * 64), []),
    (PINNED + "RUN curl -fsSLo f https://x.example/f && curl -O https://x.example/s && sha256sum -c s\n",
     [("DOWNLOAD-UNCHECKED", 2), ("DOWNLOAD-UNCHECKED", 2)]),
    (PINNED + f"RUN curl -fsSLo f https://x.example/f && echo '{'c' * 64}  g' | sha256sum -c -\n",
     [("DOWNLOAD-UNCHECKED", 2)]),
    (PINNED + 'RUN KEY="$(curl -s https://x.example/k)" && echo "$KEY"\n', [("DOWNLOAD-UNCHECKED", 2)]),
    (PINNED + 'RUN ["bash", "-c", "true"]\nRUN bash -c "wget https://x.example/f"\n', [("DOWNLOAD-UNCHECKED", 3)]),
    (PINNED + "ADD https://x.example/f /f\n", [("DOWNLOAD-UNCHECKED", 2)]),
    (PINNED + f"ADD --checksum={digest('4')} https://x.example/f /f\n", []),
    (PINNED + "ADD https://x.example/a.git#main /a\n", [("GIT-UNPINNED", 2)]),
    (PINNED + f"ADD https://x.example/a.git#{COMMIT} /a\n", []),
    (PINNED + f"RUN git clone https://x.example/a.git && cd a && git checkout {COMMIT}\n", []),
    (PINNED + "RUN git clone https://x.example/a.git && cd a && git checkout abcdef0\n", [("GIT-UNPINNED", 2)]),
    (PINNED + "RUN git clone https://x.example/a.git \\\n  && true\n", [("GIT-UNPINNED", 2)]),
    (PINNED + "RUN pip install einops\n", [("PIP-UNPINNED", 2)]),
    (PINNED + "RUN python3 -m pip install --no-cache-dir 'einops>=0.8' -i https://x.example/simple\n",
     [("PIP-UNPINNED", 2)]),
    (PINNED + "RUN pip install einops==0.8.2\n", [("OUTSIDE-LOCK", 2)]),
    (PINNED + "RUN pip install --require-hashes -r r.txt\n", []),
    (PINNED + "RUN pip install -r r.txt\n", [("PIP-UNPINNED", 2)]),
    (PINNED + "RUN pip install --no-deps .\n", []),
    (PINNED + f"RUN pip install git+https://x.example/a.git@{COMMIT}\n", []),
    (PINNED + "RUN pip install git+https://x.example/a.git@v1\n", [("PIP-UNPINNED", 2)]),
    (PINNED + "RUN pip install torch==2.14.0\n", [("CORE-REPLACED", 2), ("OUTSIDE-LOCK", 2)]),
    (PINNED + "RUN uv sync --frozen\n", [("UV-UNLOCKED", 2)]),
    (PINNED + "RUN apt-get install -y --no-install-recommends jq=1.7.1-3\n", []),
    (PINNED + "RUN apt-get install -y ./local.deb\n", []),
    (PINNED + "RUN apt-get -o A=b install -y jq # why\n", [("APT-UNPINNED", 2)]),
    (PINNED + "RUN # comment\n", []),
    (PINNED + "RUN python3 <<EOF\npip install no\nEOF\n", []),
    (PINNED + "RUN cat <<EOF > f\npip install no\nEOF\n", []),
    (PINNED + "COPY . /app\n", [("CONTEXT-OPEN", 2)]),
    (PINNED + 'COPY ["a b", "c", "/d/"]\n', [("COPY-MISSING", 2), ("COPY-MISSING", 2)]),
    (PINNED + "COPY <<EOF /etc/x\nhello\nEOF\n", []),
    (PINNED + "COPY *.md /x/\nCOPY *.txt /x/\n", [("COPY-MISSING", 3)]),
    (PINNED + "RUN --mount=type=bind,source=docker/i.sh,target=/i.sh bash /i.sh\n", [("COPY-MISSING", 2)]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), CASES, ids=[case[0][-50:] for case in CASES])
def test_what_is_not_pinned_is_found_and_what_is_pinned_is_not(text: str, expected: list[tuple[str, int]]) -> None:
    assert found(plain(text, files=frozenset({"README.md"}))) == expected


def test_a_lock_that_installs_torch_over_the_images_own_is_found() -> None:
    assert found(plain(PINNED + "RUN uv sync --locked\n", files=FILES, texts=TEXTS)) == [("CORE-REPLACED", 2)]
    kept = plain(PINNED + "RUN uv sync --locked --no-install-package=torch\n", files=FILES, texts=TEXTS)
    assert found(kept) == []


def git_package(rev: str, commit: str, version: str) -> str:
    address = f"https://git.example/flash.git?{rev}#{commit}"
    return f'\n[[package]]\nname = "flash-mla"\nversion = "{version}"\nsource = {{ git = "{address}" }}\n'


LOCKS = [
    # Megatron-LM: FlashMLA is asked for by a branch, and its label names another commit than is locked.
    (git_package("rev=nv_dev", OTHER, f"1.0.0+{COMMIT[:7]}"), PROJECT, ["LOCK-BRANCH", "LOCK-BUILT", "LOCK-LABEL"]),
    (git_package(f"rev={OTHER}", OTHER, f"1.0.0+{OTHER[:7]}"), PROJECT, ["LOCK-BUILT"]),
    (git_package("rev=v1", "", "1.0.0"), PROJECT, ["LOCK-BRANCH", "LOCK-BUILT"]),
    # vibetuner#946: the project's own version was raised, and --locked failed
    ("", PROJECT.replace("0.1.0", "0.2.0"), ["LOCK-STALE"]),
    # uv-dynamic-versioning#63: a version that git computes churns the lock
    ("", PROJECT.replace('version = "0.1.0"', 'dynamic = ["version"]'), ["LOCK-STALE"]),
    ("", PROJECT.replace('8"]', '8", "regex"]'), ["LOCK-STALE"]),
    ("", "<<<<<<< HEAD", ["FILE-UNREADABLE"]),
    ('\n[[package]]\nname = "old"\nversion = "1"\nsource = { registry = "https://x.example" }\nsdist = { url = "u" }\n',
     PROJECT, ["LOCK-BUILT"]),
    ("", PROJECT + '[[tool.uv.dependency-metadata]]\nname = "flash-mla"\nversion = "1"\n', []),
    ("[[[", PROJECT, ["FILE-UNREADABLE", "LOCK-STALE"]),
]  # fmt: skip


@pytest.mark.parametrize(("more", "project", "expected"), LOCKS)
def test_what_a_lock_leaves_open_is_found(more: str, project: str, expected: list[str]) -> None:
    texts = {"uv.lock": LOCK + more, "pyproject.toml": project}
    findings = lint([plain(PINNED, files=FILES, texts=texts)])
    assert [finding.rule for finding in findings] == expected
    assert {finding.fault.file for finding in findings} <= {"uv.lock", "pyproject.toml"}


DEFINITION = f"""\
name: train:mc1
repository: registry.lab:5443/lab/train
base: {{reference: "nvcr.io/nvidia/pytorch:26.06-py3", digest: "{digest("1")}"}}
upstream:
  repository: https://git.example/NVIDIA/Megatron-LM
  tag: core_v0.19.2
  commit: {COMMIT}
  target: main
  lockfiles:
    uv.lock: {sha256(LOCK.encode())}
expects: {{nccl: "2.30.7-1+cuda13.3", megatron-core: "0.19.2"}}
"""
UPSTREAM = "ARG FROM_IMAGE_NAME=nvcr.io/nvidia/pytorch:26.06-py3\nFROM ${FROM_IMAGE_NAME} AS main\n"


# The second place of Megatron-LM's base: a matrix with an entry for each Dockerfile, and others' entries beside it.
PIPELINE = """\
test:pre_build_image:
  extends: [.build_image]
  parallel:
    matrix:
      - IMAGE: LTS
        FILE: Dockerfile.ci.lts
        BASE_IMAGE: nvcr.io/nvidia/pytorch:25.11-py3
      - IMAGE: DEV
        FILE: Dockerfile.ci.dev
        IMAGE_TYPE: dev
        BASE_IMAGE: nvcr.io/nvidia/pytorch:26.06-py3
        PLATFORM: amd64
  script:
    - !reference [.build, script]
"""


def test_a_base_that_the_definition_pins_is_pinned_in_the_upstream_recipe_too() -> None:
    image = parse_image(DEFINITION, "image.yml")
    given = upstream_arguments(image)
    assert given == {"FROM_IMAGE_NAME": f"nvcr.io/nvidia/pytorch:26.06-py3@{digest('1')}"}
    recipe = read_recipe(UPSTREAM, "D", role=Role.UPSTREAM, target="main", given=given, image=image)
    assert [finding.rule for finding in lint([recipe])] == ["LOCKFILE-DIGEST"]


@pytest.mark.parametrize(
    ("text", "texts", "expected"),
    [
        # the base pin stands twice, and a bump forgot one
        (UPSTREAM, {"docker/.ngc_version.dev": "nvcr.io/nvidia/pytorch:26.04-py3\n"}, ["BASE-TWICE"]),
        (UPSTREAM.replace("26.06", "26.04"), {}, ["BASE-TWICE"]),
        (UPSTREAM, {".gitlab/stages/01.build.yml": PIPELINE.replace("26.06", "26.04")}, ["BASE-TWICE"]),
        (UPSTREAM, {".gitlab/stages/01.build.yml": PIPELINE}, []),
        # the base's NCCL is replaced by what an argument says
        (UPSTREAM + "ARG NCCL_VERSION=2.30.4-1+cuda13.2\nRUN true\n", {}, ["VERSION-DISAGREES"]),
        (UPSTREAM + "ARG NCCL_VERSION=2.30.7-1+cuda13.3\nRUN true\n", {}, []),
        # core_v0.19.0 has the package 0.19.1
        (UPSTREAM, {"megatron/core/package_info.py": "MAJOR = 0\nMINOR = 19\nPATCH = 3\nPRE_RELEASE = ''\n"},
         ["TAG-VERSION", "TAG-VERSION"]),
        (UPSTREAM, {"megatron/core/package_info.py": "MAJOR = 0\nMINOR = 19\nPATCH = 2\nPRE_RELEASE = ''\n"}, []),
        (UPSTREAM, {"uv.lock": LOCK + "\n"}, ["LOCKFILE-DIGEST"]),
    ],
)  # fmt: skip
def test_what_an_upstream_recipe_says_otherwise_than_its_definition_is_found(
    text: str, texts: dict[str, str], expected: list[str]
) -> None:
    image = parse_image(DEFINITION, "image.yml")
    recipe = read_recipe(
        text, "docker/Dockerfile.ci.dev", role=Role.UPSTREAM, target="main", given=upstream_arguments(image),
        image=image,
        texts={"uv.lock": LOCK, "pyproject.toml": PROJECT} | texts,
    )  # fmt: skip
    assert [finding.rule for finding in lint([recipe])] == expected


def test_a_definition_without_a_digest_is_found_and_so_is_an_upstream_that_nobody_looked_at() -> None:
    image = parse_image(DEFINITION.replace(digest("1"), "unknown"), "image.yml")
    recipe = read_recipe(OWN, "Dockerfile", role=Role.OWN, given=own_arguments(image), image=image)
    findings = lint([recipe])
    assert [(f.rule, f.fault.line) for f in findings] == [("DEFINITION-UNKNOWN", 3), ("UPSTREAM-UNSEEN", 4)]
    assert "skopeo inspect --raw docker://nvcr.io/nvidia/pytorch:26.06-py3 | sha256sum" in str(findings[0])
    other = read_recipe("FROM debian:12\n", "Dockerfile", role=Role.OWN, given={}, image=parse_image(DEFINITION, "i"))
    assert "DEFINITION-BASE" in {finding.rule for finding in lint([other])}


# --- checkouts -----------------------------------------------------------------------------------------------------


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false", "-c", "tag.gpgsign=false"]
    return subprocess.run(["git", "-C", str(folder), *who, *words], capture_output=True, text=True, check=True).stdout


@pytest.fixture
def upstream(tmp_path: Path) -> Path:
    folder = tmp_path / "Megatron-LM"
    folder.mkdir()
    (folder / "Dockerfile").write_text(UPSTREAM)
    (folder / "uv.lock").write_text(LOCK)
    (folder / "pyproject.toml").write_text(PROJECT)
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "one")
    git(folder, "tag", "-a", "-m", "x", "core_v0.19.2")
    return folder


@pytest.fixture
def definition(tmp_path: Path, upstream: Path) -> Path:
    folder = tmp_path / "train"
    folder.mkdir()
    (folder / "image.yml").write_text(DEFINITION.replace(COMMIT, git(upstream, "rev-parse", "HEAD").strip()))
    (folder / "Dockerfile").write_text(OWN)
    return folder


def command(*words: str | Path) -> Result:
    return CliRunner().invoke(bedplate, ["image", "lint", *map(str, words)], standalone_mode=False)


def test_a_definition_and_its_upstream_at_the_named_commit_leave_nothing_open(definition: Path, upstream: Path) -> None:
    done = command(definition, "--checkout", upstream)
    assert (done.return_value, done.stderr) == (0, "")
    assert done.stdout.startswith("0 findings in ")


def test_a_tag_that_is_missing_or_elsewhere_is_named_with_both_commits(definition: Path, upstream: Path) -> None:
    first = git(upstream, "rev-parse", "HEAD").strip()
    git(upstream, "commit", "-q", "--allow-empty", "-m", "two")
    second = git(upstream, "rev-parse", "HEAD").strip()
    git(upstream, "tag", "-f", "core_v0.19.2")
    said = command(definition, "--checkout", upstream).stderr
    assert f"TAG-COMMIT: upstream.tag: the tag core_v0.19.2 is {second}, commit is {first}" in said
    assert f"TAG-COMMIT: upstream.commit: {first}, but {upstream} is at {second}" in said
    git(upstream, "tag", "-d", "core_v0.19.2")
    assert f"no tag core_v0.19.2 in {upstream}, which is at {second}" in command(
        definition, "--checkout", upstream
    ).stderr  # fmt: skip


def test_a_label_that_names_another_commit_than_the_checkout_is_found(upstream: Path) -> None:
    text = PINNED + f"LABEL org.opencontainers.image.revision={OTHER} maintainer=x\n"
    (upstream / "Dockerfile").write_text(text)
    done = command(upstream, "--json")
    assert done.return_value == 2
    told = json.loads(done.stdout)
    assert [(each["rule"], each["line"]) for each in told["findings"]] == [("LABEL-COMMIT", 2)]
    (upstream / "Dockerfile").write_text(text.replace(OTHER, git(upstream, "rev-parse", "--short", "HEAD").strip()))
    assert command(upstream).return_value == 0


def test_a_script_that_a_run_starts_is_looked_into_and_one_that_is_only_copied_is_not(tmp_path: Path) -> None:
    """The upstream recipe fetches cuda-keyring this way, without a checksum."""
    text = "RUN --mount=type=bind,source=docker/install.sh,target=/opt/install.sh \\\n  bash /opt/install.sh --V=1\n"
    (tmp_path / "docker").mkdir()
    (tmp_path / "Dockerfile").write_text(PINNED + text + "COPY docker /docker\n")
    script = "#!/bin/bash\nset -ex\n\ncurl -fsSLO https://x.example/${ARCH}/keyring.deb\ndpkg -i keyring.deb\n"
    for name in ("install.sh", "other.sh"):
        (tmp_path / "docker" / name).write_text(script)
    told = json.loads(command(tmp_path, "--target", "main", "--json").stdout)
    assert [(Path(each["file"]).name, each["line"], each["rule"]) for each in told["findings"]] == [
        ("install.sh", 4, "DOWNLOAD-UNCHECKED")
    ]


def test_a_finding_is_accepted_by_its_rule_and_an_unknown_rule_is_refused(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM debian:12\n")
    assert command(tmp_path).return_value == 2
    done = command(tmp_path, "--accept", "FROM-UNPINNED", "--json")
    assert (done.return_value, json.loads(done.stdout)["accepted"]) == (0, 1)
    assert isinstance(command(tmp_path, "--accept", "FROM").exception, BadInput)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["nowhere"], "no such directory"),
        (["."], "no such file"),
        ([".", "--checkout", "."], "no image.yml"),
    ],
)
def test_what_cannot_be_looked_at_is_bad_input(
    words: list[str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = command(*words)
    assert isinstance(done.exception, BadInput)
    assert expected in str(done.exception)


def test_every_rule_has_a_source_a_test_and_a_line_in_the_documentation() -> None:
    rules = all_rules()
    assert len({rule.id for rule in rules}) == len(rules)
    page = (Path(__file__).resolve().parents[2] / "docs/image.md").read_text()
    tests = Path(__file__).read_text()
    for rule in rules:
        assert rule.source, rule.id
        assert f"`{rule.id}`" in page, rule.id
        assert f'"{rule.id}"' in tests or f"{rule.id}: " in tests, rule.id


# --- garbage -------------------------------------------------------------------------------------------------------

_SHELL = st.text(alphabet="ab $(){}\"'`\\\n|&;<>#=-/:.", max_size=80)


@given(_SHELL)
def test_any_text_is_read_as_commands_to_its_end(text: str) -> None:
    lines = list(enumerate(text.split("\n"), 1))
    for each in commands(lines, {"a": "b"}):
        assert 1 <= each.line <= len(lines)


@given(st.lists(st.sampled_from([*TRAPS.splitlines(), *LOCK.splitlines()]) | _SHELL, max_size=12).map("\n".join))
def test_no_recipe_and_no_lock_makes_the_lint_fail(text: str) -> None:
    recipe = plain(text, target="main", files=FILES, texts={"uv.lock": text, "pyproject.toml": text})
    for finding in lint([recipe]):
        assert str(finding)


def packages_of(**versions: str) -> str:
    return "version = 1\n" + "".join(
        f'[[package]]\nname = "{name}"\nversion = "{version}"\nsource = {{ registry = "https://x.example" }}\n'
        for name, version in versions.items()
    )


ROOT = '[[package]]\nname = "ours"\nversion = "1"\nsource = { virtual = "." }\ndependencies = [{ name = "torch" }]\n'


def extended(own: str, upstream: str, dockerfile: str = OWN) -> list[str]:
    image = parse_image(
        f"name: x\nrepository: r.lab/x\nbase: {{reference: r.lab/b:1, digest: {digest('1')}}}\n", "image.yml"
    )
    recipe = read_recipe(
        dockerfile, "image/Dockerfile", role=Role.OWN, files=frozenset({"uv.lock"}), texts={"uv.lock": own},
        image=image, folder="image",
    )  # fmt: skip
    recipe = replace(recipe, below=upstream)
    return [str(each.fault) for each in lint([recipe]) if each.rule == "LOCK-EXTENDS"]


def test_a_lock_that_would_replace_what_upstreams_lock_installed_is_told_with_the_constraint_that_mends_it() -> None:
    own = ROOT + packages_of(torch="2.13.0", filelock="4.3.1", pytest="9.2.0", einops="1").replace("version = 1\n", "")
    needs = own.replace('name = "torch"\nversion', 'name = "torch"\ndependencies = [{ name = "filelock" }]\nversion')
    upstream = packages_of(torch="2.13.1", filelock="3.32.3", pytest="9.1.1")
    (told,) = extended(needs, upstream)
    assert "filelock 4.3.1 would replace the 3.32.3 of upstream's lock" in told
    assert '"filelock==3.32.3" in constraint-dependencies' in told
    assert extended(needs, upstream.replace("3.32.3", "4.3.1")) == [], (
        "torch is the image's, and pytest is no need of ours"
    )
    assert extended(needs, upstream, OWN + "RUN uv sync --locked --no-install-package filelock\n") == []
    assert extended(needs, "") == extended(needs, "[[[") == []


def test_what_comes_with_an_extra_that_somebody_needs_is_judged_too() -> None:
    extras = '\n[package.optional-dependencies]\nhttp = [{ name = "aiohttp" }]\ns3 = [{ name = "boto3" }]\n'
    own = ROOT.replace('"torch" }', '"fsspec", extra = ["http"] }') + packages_of(aiohttp="4", boto3="2", fsspec="1")
    (told,) = extended(own.replace("version = 1\n", "") + extras, packages_of(aiohttp="3", boto3="1", fsspec="1"))
    assert "aiohttp 4 would replace the 3" in told


def test_a_package_that_upstream_locks_in_two_versions_is_not_judged() -> None:
    two = packages_of(filelock="3") + '[[package]]\nname = "filelock"\nversion = "2"\n'
    assert extended(packages_of(filelock="4"), two) == []
    assert len(extended(packages_of(filelock="4"), packages_of(filelock="3"))) == 1


@pytest.mark.parametrize(
    ("own", "upstream", "says"),
    [
        ("version = 1\nrevision = 5\n", "version = 1\nrevision = 2\n", "revision 5 of uv's lock, and upstream's"),
        ("version = 2\n", "version = 1\nrevision = 2\n", "version 2, revision 0 of uv's lock, and upstream's"),
        ("version = 1\nrevision = 1\n", "version = 1\n", "revision 1 of uv's lock"),
        ("version = 1\nrevision = 2\n", "version = 1\nrevision = 2\n", ""),
        ("version = 1\n", "version = 1\nrevision = 2\n", ""),
        ("version = 1\nrevision = 5\n", "", ""),
        ("version = 1\nrevision = 5\n", "[[[", ""),
        ("", "version = 1\n", ""),
    ],
)
def test_a_lock_that_another_uv_wrote_than_the_images_is_told_with_the_uv_to_take(
    own: str, upstream: str, says: str
) -> None:
    arguments = '  arguments: {UV_VERSION: "0.7.2"}\n  target: main'
    image = parse_image(DEFINITION.replace("  target: main", arguments), "image.yml")
    recipe = read_recipe(
        OWN, "image/Dockerfile", role=Role.OWN, files=frozenset({"uv.lock"}), texts={"uv.lock": own}, image=image,
        given=own_arguments(image), folder="image",
    )  # fmt: skip
    told = [str(each) for each in lint([replace(recipe, below=upstream)]) if each.rule == "LOCK-WRITER"]
    assert len(told) == bool(says)
    for each in told:
        assert each.startswith("image/uv.lock:1: LOCK-WRITER: version ")
        assert says in each
        assert each.endswith("(lock it again with upstream's uv: uvx uv@0.7.2 lock)")
