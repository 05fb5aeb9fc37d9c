"""Stand-ins for the door to buildah, skopeo and enroot that behave, as far as the image stages see them.

The image is a config with the context and the arguments in it; skopeo puts its manifest to the registry of
registryd; the squashfs is a superblock with the image's URI behind it.
"""

import functools
import hashlib
import http.client
import json
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from bedplate.act import enroot
from bedplate.act.builders import buildah, builder, buildkit
from bedplate.act.image import building, pushing, state
from bedplate.process import Finished, ProcessFailed
from bedplate.sources.registry import DOCKER_MANIFEST, Registry


class Tools:
    def __init__(self) -> None:
        self.calls: list[str] = []
        self.fails = ""  # calls with these words in them fail
        self.says = ""  # with this
        self.cuts_off = False
        self.last_id = ""
        self.images: dict[str, bytes] = {}  # buildah's storage: image id -> config

    def run(
        self,
        argv: Sequence[str | Path],
        *,
        check: bool = True,
        timeout_s: float = 600.0,  # noqa: ARG002
        env: Mapping[str, str] | None = None,
        log: Path | None = None,
    ) -> Finished:
        words = tuple(map(str, argv))
        call = " ".join(words)
        self.calls.append(call)
        if self.fails and self.fails in call:
            said = f"told to fail: {self.says}"
            if check:
                raise ProcessFailed(Finished(words, 1, "", said), f"{words[0]} ended with 1")
            return Finished(words, 1, "", said)
        out = self.answer_to(words)(list(words), env or {})
        if log:
            with log.open("a") as file:
                file.write(f"$ {call}\n{out}")
        return Finished(words, 0, "" if log else out, "")

    def answer_to(self, words: tuple[str, ...]) -> Callable[[list[str], Mapping[str, str]], str]:
        for beginning, answer in (
            ("buildah --version", lambda *_: "buildah version 1.39.3 (image-spec 1.1.0, runtime-spec 1.2.0)\n"),
            ("skopeo --version", lambda *_: "skopeo version 1.18.0\n"),
            ("docker buildx version", self.no_program),
            ("git --version", lambda *_: "git version 2.39.5\n"),
            ("enroot version", lambda *_: "4.1.2\n"),
            ("buildah bud", self.bud),
            ("buildah push", self.export),
            ("buildah rmi", self.remove),
            ("skopeo copy --quiet --format v2s2 oci:", self.convert),
            ("skopeo copy --quiet --preserve-digests dir:", self.push),
            ("enroot import", self.import_),
        ):
            if " ".join(words).startswith(beginning):
                return answer
        raise AssertionError(f"no program does {words}")

    @staticmethod
    def no_program(words: list[str], _env: Mapping[str, str]) -> str:
        raise ProcessFailed(Finished(tuple(words), 127, "", "not found"), f"no program {words[0]}")

    def bud(self, words: list[str], _env: Mapping[str, str]) -> str:
        named = [word for at, word in enumerate(words) if words[at - 1] == "--build-context"]
        inputs = [word for word in words if "=" in word and word not in named]
        inputs.append(words[words.index("--timestamp") + 1])
        others = [Path(word.partition("=")[2]) for word in named if "://" not in word]
        for context in (Path(words[-1]), *others):
            for path in sorted(context.rglob("*")):
                inputs += [str(path.relative_to(context)), oct(path.stat().st_mode)]
                inputs += [path.read_text()] if path.is_file() else []
        labels = dict(word.split("=", 1) for at, word in enumerate(words) if words[at - 1] == "--label")
        said = {"architecture": "amd64", "os": "linux", "config": {"Labels": labels}, "rootfs": {"diff_ids": []}}
        config = json.dumps(said | {"made_of": inputs}).encode()
        name = hashlib.sha256(config).hexdigest()
        self.images[name], self.last_id = config, name
        Path(words[words.index("--iidfile") + 1]).write_text(f"sha256:{name}")
        return "STEP 1/1: built\n"

    def export(self, words: list[str], _env: Mapping[str, str]) -> str:
        folder = Path(words[-1].split(":")[1])
        folder.mkdir()
        (folder / "config").write_bytes(self.images[words[-2]])
        return ""

    def remove(self, words: list[str], _env: Mapping[str, str]) -> str:
        del self.images[words[-1]]
        return ""

    def convert(self, words: list[str], _env: Mapping[str, str]) -> str:
        folder = Path(words[-1].removeprefix("dir:"))
        folder.mkdir()
        config = Path(words[-2].split(":")[1], "config").read_bytes()
        digest = "sha256:" + hashlib.sha256(config).hexdigest()
        (folder / digest.removeprefix("sha256:")).write_bytes(config)
        manifest = {"schemaVersion": 2, "mediaType": DOCKER_MANIFEST, "config": {"digest": digest}, "layers": []}
        (folder / "manifest.json").write_text(json.dumps(manifest))
        return ""

    def push(self, words: list[str], _env: Mapping[str, str]) -> str:
        raw = Path(words[-2].removeprefix("dir:"), "manifest.json").read_bytes()
        host, _, rest = words[-1].removeprefix("docker://").partition("/")
        path, _, tag = rest.rpartition(":")
        connection = http.client.HTTPConnection(host, timeout=10)
        connection.request("PUT", f"/v2/{path}/manifests/{tag}", raw, {"Content-Type": DOCKER_MANIFEST})
        assert connection.getresponse().status == 201
        connection.close()
        return ""

    def import_(self, words: list[str], env: Mapping[str, str]) -> str:
        output = Path(words[words.index("--output") + 1])
        assert not output.exists(), "[ERROR] File already exists"
        body = (words[-1] + env["SOURCE_DATE_EPOCH"] + env["ENROOT_SQUASH_OPTIONS"]).encode()
        size = 96 + len(body)
        head = struct.pack("<5I6H8Q", 0x73717368, 1, 0, 131072, 0, 6, 17, 0, 1, 4, 0, 0, size, *[0] * 6)
        output.write_bytes((head + body)[: size - 10 if self.cuts_off else size])
        return ""


def install(monkeypatch: pytest.MonkeyPatch, tools: Tools | None = None) -> Tools:
    tools = tools or Tools()
    for module in (buildah, buildkit, builder, enroot, pushing):
        monkeypatch.setattr(module, "run", tools.run)
    return tools


def registry_without_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (building, state):
        monkeypatch.setattr(module, "Registry", functools.partial(Registry, auth=[], plain_http=True))
