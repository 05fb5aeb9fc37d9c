"""Which commands of a RUN fetch something, and what: pip, apt, curl, wget, git, uv."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bedplate.decide.images.shell import Command

COMMIT = re.compile(r"[0-9a-f]{40}")
EXACT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[^\]]*\])?\s*={2,3}\s*[^\s*,;]+(\s*;.*)?")
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_ADDRESS = re.compile(r"(https?|ftp)://", re.IGNORECASE)

# Flags that take the next word with them.
_PIP_VALUES = frozenset(
    ["-r", "--requirement", "--requirements", "-c", "--constraint", "--constraints", "-i", "--index-url",
     "--extra-index-url", "-f", "--find-links", "-t", "--target", "-e", "--editable", "--prefix", "--root", "--python",
     "-p", "--index", "--default-index", "--link-mode", "--no-binary", "--only-binary", "--platform", "--trusted-host",
     "--cache-dir", "--config-settings", "-C", "--global-option", "--build-constraint", "--build-constraints", "-b",
     "--group", "--overrides", "--override", "--exclude-newer", "--index-strategy", "--prerelease", "--torch-backend",
     "--no-build-isolation-package", "--reinstall-package", "--upgrade-package", "-P"]
)  # fmt: skip


@dataclass(frozen=True)
class PipInstall:
    """wanted: requirements as written, editable ones too; files: of -r."""

    line: int
    wanted: tuple[str, ...]
    files: tuple[str, ...]
    flags: frozenset[str]

    @property
    def hashed(self) -> bool:
        return "--require-hashes" in self.flags

    @property
    def without_dependencies(self) -> bool:
        return "--no-deps" in self.flags


def normal(requirement: str) -> str:
    """The name in a requirement, as indexes write it."""
    found = _NAME.match(requirement)
    return re.sub(r"[-_.]+", "-", found[0]).lower() if found else ""


def local(requirement: str) -> bool:
    """Whether a requirement is a path."""
    return requirement.startswith((".", "/", "~", "$")) or requirement.endswith((".whl", ".tar.gz", ".zip"))


def pip_installs(commands: Sequence[Command]) -> Iterator[PipInstall]:
    for command in commands:
        words = _pip_words(command)
        if words[:1] == ["install"]:
            yield _pip_install(command.line, words[1:])


def _pip_words(command: Command) -> list[str]:
    """What pip is told, whoever starts it; nothing where it is not pip."""
    words = list(command.words)
    if re.fullmatch(r"python[0-9.]*", command.program) and words[1:3] == ["-m", "pip"]:
        words = words[2:]
    elif command.program == "uv" and words[1:2] == ["pip"]:
        words = words[1:]
    elif not re.fullmatch(r"pip[0-9.]*", command.program):
        return []
    words = words[1:]
    while words and words[0].startswith("-"):
        words.pop(0)
    return words


def _pip_install(line: int, words: Sequence[str]) -> PipInstall:
    wanted, files, flags = [], [], set()
    rest = iter(words)
    for word in rest:
        flag, equals, value = word.partition("=")
        if word in {"<", ">"}:
            next(rest, "")
        elif not word.startswith("-"):
            wanted.append(word)
        else:
            flags.add(flag if word.startswith("--") else word)
            given = value if equals and word.startswith("--") else next(rest, "") if word in _PIP_VALUES else ""
            if flag in {"-r", "--requirement", "--requirements"}:
                files.append(given)
            elif flag in {"-e", "--editable"}:
                wanted.append(given)
    return PipInstall(line, tuple(wanted), tuple(files), frozenset(flags))


def apt_installs(commands: Sequence[Command]) -> Iterator[tuple[int, list[str]]]:
    """Line and packages of each apt-get install, those with a version too; files of packages are none."""
    for command in commands:
        if command.program not in {"apt-get", "apt", "aptitude"}:
            continue
        words = list(command.arguments)
        plain: list[str] = []
        while words:
            word = words.pop(0)
            if word in {"-o", "-c", "-t", "--option", "--target-release", "<", ">"}:
                words[:1] = []
            elif not word.startswith("-"):
                plain.append(word)
        if plain[:1] == ["install"]:
            yield command.line, [each for each in plain[1:] if not local(each) and not each.endswith(".deb")]


@dataclass(frozen=True)
class Download:
    """address: as far as it is known; output: name of the file, "" where it goes to a pipe."""

    line: int
    program: str
    address: str
    output: str
    pipeline: int


def downloads(commands: Sequence[Command]) -> Iterator[Download]:
    for command in commands:
        if command.program not in {"curl", "wget"}:
            continue
        # An address may hold a variable alone: curl -o f "$URL".
        named = [word for word in command.arguments if _ADDRESS.match(word) or word.startswith("$")]
        for address in named or ["an address that is not written here"]:
            yield Download(command.line, command.program, address, _output(command, address), command.pipeline)


def _output(command: Command, address: str) -> str:
    words = command.arguments
    short = {"curl": ("-o", "--output"), "wget": ("-O", "--output-document")}[command.program]
    for index, word in enumerate(words[:-1]):
        if word in short or (command.program == "curl" and re.fullmatch(r"-[A-Za-z]*o", word)) or word == ">":
            return "" if words[index + 1] in {"-", "/dev/stdout"} else words[index + 1]
        if word.startswith(tuple(f"{flag}=" for flag in short if flag.startswith("--"))):
            return word.partition("=")[2]
    if command.program == "wget" or any(re.fullmatch(r"-[A-Za-z]*O|--remote-name", word) for word in words):
        return address.partition("?")[0].rpartition("/")[2]
    return ""
