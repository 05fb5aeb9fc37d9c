"""The configuration files of a node: templates + environment-wide values + the node's fleet entry -> bytes.

Invariants
- Same lock, same fleet entry, same templates -> same bytes; nothing else enters (no time, no facts of the node).
- A template that is not the one whose sha256 the lock holds is refused: the lock would lie otherwise.
- An undefined name is an error, never an empty string.

Example: roles/base/files.yml names `/etc/nccl.conf` with template nccl.conf.j2; rendering it for n1 under
lock A gives a RenderedFile(role="base", path="/etc/nccl.conf", data=b"NCCL_DEBUG=WARN\n", mode="0644").
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jinja2 import StrictUndefined, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from bedplate.decide.lockdoc import LockDocument
from bedplate.model.canonical import identity, sha256
from bedplate.model.faults import BadInput, Fault, Refused
from bedplate.model.fleet import Node
from bedplate.model.text import parse_yaml

# As ansible.builtin.template has them, so that a template reads the same in both.
JINJA = ImmutableSandboxedEnvironment(
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=False,
    keep_trailing_newline=True,
    autoescape=False,
)
MODE = re.compile(r"0[0-7]{3}")
FILES = re.compile(r"roles/([a-z0-9_]+)/files\.yml")


@dataclass(frozen=True)
class RenderedFile:
    role: str
    path: str
    mode: str
    data: bytes

    @property
    def sha256(self) -> str:
        return sha256(self.data)


@dataclass(frozen=True)
class FileEntry:
    """A file that a role puts on its nodes: an item of roles/ROLE/files.yml."""

    role: str
    path: str
    template: str
    mode: str


def file_entries(sources: Mapping[str, bytes]) -> list[FileEntry]:
    """The files that roles declare; sources: path in the checkout -> bytes.

    Raises:
        BadInput: every fault of every files.yml.
    """
    faults: list[Fault] = []
    entries: list[FileEntry] = []
    for name, data in sorted(sources.items()):
        match = FILES.fullmatch(name)
        if match is None:
            continue
        document = parse_yaml(data.decode(), name)
        items = document.data
        if not isinstance(items, list):
            faults.append(Fault(name, 1, "not a list of files", "list {path, template, mode} items"))
            continue
        for index, item in enumerate(items):
            if not isinstance(item, dict) or set(item) != {"path", "template", "mode"}:
                faults.append(Fault(name, document.line(index), "a file needs exactly path, template and mode"))
                continue
            template = f"roles/{match[1]}/templates/{item['template']}"
            if not str(item["path"]).startswith("/") or ".." in str(item["path"]).split("/"):
                faults.append(Fault(name, document.line(index, "path"), f"{item['path']!r} is no absolute path"))
            if not MODE.fullmatch(str(item["mode"])):
                faults.append(
                    Fault(name, document.line(index, "mode"), f"mode {item['mode']!r}", 'write it like "0644"')
                )
            if template not in sources:
                faults.append(Fault(name, document.line(index, "template"), f"no template {template}"))
            entries.append(FileEntry(match[1], str(item["path"]), template, str(item["mode"])))
    paths = [entry.path for entry in entries]
    faults += [
        Fault(f"roles/{e.role}/files.yml", None, f"{e.path} is written by two roles")
        for e in entries
        if paths.count(e.path) > 1
    ]
    if faults:
        raise BadInput(faults)
    return entries


def refuse_other_templates(lock: LockDocument, sources: Mapping[str, bytes]) -> None:
    """Refuse to render a lock with templates that are not the ones it was made with."""
    found = {name: sha256(data) for name, data in sources.items()}
    locked = lock.templates
    wrong = [
        f"  {name}: lock {lock.name} says {locked.get(name, 'nothing')}, this checkout has {found.get(name, 'nothing')}"
        for name in sorted(found.keys() | locked.keys())
        if found.get(name) != locked.get(name)
    ]
    if wrong:
        raise Refused(
            f"the templates of this checkout are not those of lock {lock.name}:\n" + "\n".join(wrong)
            + "\n  check out the commit that the lock was made from, or lock a new environment"
        )  # fmt: skip


def render_node(lock: LockDocument, node: Node, sources: Mapping[str, bytes]) -> list[RenderedFile]:
    """Every file of a node, by path.

    Raises:
        Refused: the templates are not those of the lock.
        BadInput: a template does not render; names template, line and node.
    """
    refuse_other_templates(lock, sources)
    scope = {
        "node": {
            "name": node.name, "serial": node.serial, "address": node.address, "rack": node.rack,
            "position": node.position, "kind": node.kind, "groups": list(node.groups),
        },
        "environment": {"name": lock.name, "identity": lock.identity},
        "values": dict(lock.values),
        "archive": lock.slice(node.kind)["archive"],
        "packages": [{"name": n, "version": p.version} for n, p in sorted(lock.packages(node.kind).items())],
    }  # fmt: skip
    faults: list[Fault] = []
    files: list[RenderedFile] = []
    for entry in file_entries(sources):
        try:
            text = JINJA.from_string(sources[entry.template].decode()).render(scope)
        except TemplateError as fault:
            line = getattr(fault, "lineno", None)
            faults.append(
                Fault(
                    entry.template,
                    line,
                    f"for {node.name}: {fault.message}",
                    "see config.values of the environment",
                )
            )
            continue
        files.append(RenderedFile(entry.role, entry.path, entry.mode, text.encode()))
    if faults:
        raise BadInput(faults)
    return sorted(files, key=lambda file: file.path)


def manifest(files: Sequence[RenderedFile]) -> dict[str, dict[str, str]]:
    """Path -> mode and sha256: what a node's disk must show."""
    return {file.path: {"mode": file.mode, "sha256": file.sha256} for file in files}


def manifest_sha256(files: Sequence[RenderedFile]) -> str:
    return identity(manifest(files))
