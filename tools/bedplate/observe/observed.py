"""What a node shows: three questions, whatever the number of packages and files; and hashes of the answers."""

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bedplate.decide.squashfs import IMAGES
from bedplate.model.canonical import identity
from bedplate.observe.expectation import Expectation

# Each answer ends with a line of its own: one that was cut anywhere lacks it.
QUERY = r"dpkg-query -W -f='${binary:Package} ${Version} ${db:Status-Want} ${db:Status-Status}\n' && echo end"
FILES = 'for f in {paths}; do if test -f "$f"; then stat -c "%a %n" "$f"; sha256sum "$f"; fi; done; echo end'
IMAGE = "if test -e {image}; then readlink -f {image}; sha256sum {image}; fi; echo end"
PACKAGE = re.compile(r"(?P<name>[^ :]+)(?::\S+)? (?P<version>\S+) (?P<want>\S+) (?P<status>\S+)")


@dataclass(frozen=True)
class Observed:
    """What one node showed.

    packages: every installed one, name -> version; held: names; files: path -> {mode, sha256}, absent ones
    left out; image: what the name that jobs use points at, and its sha256, None where there is nothing.
    """

    packages: Mapping[str, str]
    held: frozenset[str]
    files: Mapping[str, Mapping[str, str]]
    image: tuple[str, str] | None

    def facts(self) -> dict[str, str]:
        """Hashes by which two states of a node can be compared: packages and holds, files, image."""
        return {
            "packages": identity({"packages": dict(self.packages), "held": sorted(self.held)}),
            "files": identity({path: dict(entry) for path, entry in self.files.items()}),
            "image": self.image[1] if self.image else "none",
        }


class NotUnderstood(Exception):
    """A node's answer has another shape than it must have: nothing is known."""


def look(run: Callable[..., Any], expected: Expectation) -> Observed:
    """Ask a node; run: testinfra's host.run.

    Raises:
        NotUnderstood: an answer is empty, cut or of another shape.
    """
    packages, held = parse_packages(_said(run(QUERY)))
    files = parse_files(_said(run(FILES.format(paths=shlex.join(expected.files)))))
    image = parse_image(_said(run(IMAGE.format(image=shlex.quote(f"{IMAGES}/current.sqsh")))))
    return Observed(packages, held, files, image)


def _said(answer: Any) -> str:
    if answer.rc:
        raise NotUnderstood(f"{answer.command!r} ended with {answer.rc}: {answer.stderr.strip()[-500:]}")
    return str(answer.stdout)


def _whole(text: str, about: str) -> list[str]:
    *lines, end = text.split("\n")[:-1] or [""]
    if end != "end" or not text.endswith("end\n"):
        raise NotUnderstood(f"the answer about {about} is cut")
    return lines


def parse_packages(text: str) -> tuple[dict[str, str], frozenset[str]]:
    packages: dict[str, str] = {}
    held = set()
    for line in _whole(text, "packages"):
        match = PACKAGE.fullmatch(line)
        if match is None:
            raise NotUnderstood(f"dpkg-query said {line!r}")
        if match["status"] != "installed":
            continue
        packages[match["name"]] = match["version"]
        if match["want"] == "hold":
            held.add(match["name"])
    if "dpkg" not in packages:
        raise NotUnderstood("dpkg-query did not name dpkg itself: the answer is none")
    return packages, frozenset(held)


def parse_files(text: str) -> dict[str, dict[str, str]]:
    lines = _whole(text, "files")
    if len(lines) % 2:
        raise NotUnderstood("the answer about files has an odd number of lines")
    files = {}
    for stat, checksum in zip(lines[::2], lines[1::2], strict=True):
        mode, _, path = stat.partition(" ")
        digest, _, named = checksum.partition("  ")
        if not re.fullmatch(r"[0-7]{3,4}", mode) or not re.fullmatch(r"[0-9a-f]{64}", digest) or named != path:
            raise NotUnderstood(f"stat and sha256sum said {stat!r} and {checksum!r}")
        files[path] = {"mode": mode.rjust(4, "0"), "sha256": f"sha256:{digest}"}
    return files


def parse_image(text: str) -> tuple[str, str] | None:
    match _whole(text, "the image"):
        case []:
            return None
        case [path, checksum] if re.match(r"[0-9a-f]{64}  /", checksum) and path.startswith("/"):
            return path, f"sha256:{checksum[:64]}"
        case lines:
            raise NotUnderstood(f"readlink and sha256sum said {lines!r}")
