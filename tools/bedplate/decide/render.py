"""The configuration files of a node: templates + environment-wide values + what the site says of it -> bytes.

Invariants
- Same lock, same fleet and models, same templates -> same bytes; nothing else enters (no time, no facts of the node).
- A node gets the files of the roles that apply to it, and of those that the playbooks use for every node.
- A template that is not the one whose sha256 the lock holds is refused: the lock would lie otherwise.
- An undefined name is an error, never an empty string.

Example: roles/base/files.yml names `/etc/nccl.conf` with template nccl.conf.j2; rendering it for n1 under
lock A gives a RenderedFile(role="base", path="/etc/nccl.conf", data=b"NCCL_DEBUG=WARN\n", mode="0644").
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import StrictUndefined, TemplateError
from jinja2.meta import find_undeclared_variables
from jinja2.sandbox import ImmutableSandboxedEnvironment

from bedplate.decide.lockdoc import LockDocument
from bedplate.decide.roles import Role, applicable, declared
from bedplate.model.canonical import identity, sha256
from bedplate.model.faults import BadInput, Fault, Refused
from bedplate.model.fleet import Node
from bedplate.model.nodes import fold
from bedplate.model.text import parse_yaml

# As ansible.builtin.template has them, so that a template reads the same in both.
JINJA = ImmutableSandboxedEnvironment(
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=False,
    keep_trailing_newline=True,
    autoescape=False,
)
# Two runs would differ.
del JINJA.filters["random"], JINJA.globals["lipsum"]
JINJA.filters["fold"] = fold  # names of nodes -> gpu[001-640]
MODE = re.compile(r"0[0-7]{3}")
PATH = re.compile(r"(/[A-Za-z0-9._@+-]+)+")  # nothing that a shell would read otherwise
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
    entries: dict[str, FileEntry] = {}
    for name, data in sorted(sources.items()):
        match = FILES.fullmatch(name)
        if match is None:
            continue
        try:
            document = parse_yaml(data.decode(errors="replace"), name)
        except BadInput as fault:
            faults += fault.faults
            continue
        if not isinstance(document.data, list):
            faults.append(Fault(name, 1, "not a list of files", "list {path, template, mode} items"))
            continue
        for index, item in enumerate(document.data):
            if not isinstance(item, dict) or set(item) != {"path", "template", "mode"}:
                faults.append(Fault(name, document.line(index), "a file needs exactly path, template and mode"))
                continue
            entry = FileEntry(
                match[1], str(item["path"]), f"roles/{match[1]}/templates/{item['template']}", str(item["mode"])
            )
            faults += [
                Fault(name, document.line(index, key), found, remedy)
                for key, found, remedy in _entry_faults(entry, sources, entries)
            ]
            entries.setdefault(entry.path, entry)
    if faults:
        raise BadInput(faults)
    return list(entries.values())


def _roles_with_files(sources: Mapping[str, bytes]) -> set[str]:
    return {match[1] for name in sources if (match := FILES.fullmatch(name))}


def _entry_faults(
    entry: FileEntry, sources: Mapping[str, bytes], others: Mapping[str, FileEntry]
) -> Iterator[tuple[str, str, str]]:
    """Key, what is wrong with its value, what to do."""
    if not PATH.fullmatch(entry.path) or ".." in entry.path.split("/"):
        yield "path", f"{entry.path!r} is no absolute path", "letters, digits and ._@+- between slashes"
    if not MODE.fullmatch(entry.mode):
        yield "mode", f"mode {entry.mode!r}", 'write it like "0644"'
    if entry.template not in sources:
        yield "template", f"no template {entry.template}", ""
    if entry.path in others:
        yield "path", f"{entry.path} is written by role {others[entry.path].role} already", "one role owns a file"


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


def render_node(
    lock: LockDocument, node: Node, sources: Mapping[str, bytes], around: Mapping[str, Any] | None = None
) -> list[RenderedFile]:
    """Every file of one node, by path; for many nodes of a lock: Rendering.

    Raises:
        Refused: the templates are not those of the lock.
        BadInput: a template does not render; names template, line and node.
    """
    return Rendering(lock, sources, around).files(node)


class Rendering:
    """The templates of a lock, read once: 660 nodes with 2,500 pinned packages render in seconds.

    What does not name `node` is the same for all nodes of a kind, and rendered once for them.
    """

    def __init__(
        self, lock: LockDocument, sources: Mapping[str, bytes], around: Mapping[str, Any] | None = None
    ) -> None:
        """Read them; around: what surroundings() says, for templates that name `fleet` or `model`.

        Raises:
            Refused: the templates are not those of the lock.
            BadInput: a list of files or a role.yml is wrong.
        """
        refuse_other_templates(lock, sources)
        self.lock = lock
        self._around = around or {}
        known = declared(sources)
        self._always = _roles_with_files(sources) - {role.name for role in known}
        self.roles: dict[str, list[Role]] = {kind: applicable(known, lock, kind) for kind in lock.kinds}
        self._read = [(entry, _Template(sources[entry.template])) for entry in file_entries(sources)]
        self._packages = {
            kind: [{"name": name, "version": package.version} for name, package in lock.packages(kind).items()]
            for kind in lock.kinds
        }
        self._of_kind: dict[tuple[str, str], RenderedFile] = {}

    def files(self, node: Node) -> list[RenderedFile]:
        """Every file of a node, by path.

        Raises:
            BadInput: the lock is not for its kind, or a template does not render; names template, line and node.
        """
        lock = self.lock
        if node.kind not in self._packages:
            lock.packages(node.kind)  # says what the lock is for
        scope = {
            "node": {
                "name": node.name, "serial": node.serial, "address": node.address, "rack": node.rack,
                "position": node.position, "kind": node.kind, "groups": list(node.groups),
            },
            "environment": {"name": lock.name, "identity": lock.identity},
            "values": dict(lock.values),
            "archive": lock.document["archive"],
            "packages": self._packages[node.kind],
            "layers": lock.layers,
            "image": lock.document["image"],
        }  # fmt: skip
        scope |= {"fleet": self._around["fleet"]} if "fleet" in self._around else {}
        models = self._around.get("models", {})
        scope |= {"model": models[node.kind], "models": models} if node.kind in models else {}
        wanted = self._always | {role.name for role in self.roles[node.kind]}
        faults: list[Fault] = []
        files: list[RenderedFile] = []
        for entry, template in self._read:
            if entry.role not in wanted:
                continue
            known = self._of_kind.get((node.kind, entry.path))
            if known is None:
                try:
                    known = RenderedFile(entry.role, entry.path, entry.mode, template.render(scope).encode())
                except (TemplateError, TypeError, ValueError, ArithmeticError) as fault:
                    what = f"for {node.name}: {fault}"
                    faults.append(Fault(entry.template, _line(fault), what, "see config.values of the environment"))
                    continue
                if not template.names_node:
                    self._of_kind[node.kind, entry.path] = known
            files.append(known)
        if faults:
            raise BadInput(faults)
        return sorted(files, key=lambda file: file.path)


class _Template:
    """A template, compiled; one that cannot be says so when it is rendered."""

    def __init__(self, data: bytes) -> None:
        self._fault: Exception | None = None
        self.names_node = True
        try:
            text = data.decode()
            self.names_node = "node" in find_undeclared_variables(JINJA.parse(text))
            self._compiled = JINJA.from_string(text)
        except (TemplateError, ValueError) as fault:
            self._fault = fault

    def render(self, scope: Mapping[str, object]) -> str:
        if self._fault is not None:
            raise self._fault
        return self._compiled.render(scope)


def _line(fault: Exception) -> int | None:
    """The line of a template where it failed: a syntax error knows it, others have it in their traceback."""
    line: int | None = getattr(fault, "lineno", None)
    trace = fault.__traceback__
    while trace is not None and line is None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def manifest(files: Sequence[RenderedFile]) -> dict[str, dict[str, str]]:
    """Path -> mode and sha256: what a node's disk must show."""
    return {file.path: {"mode": file.mode, "sha256": file.sha256} for file in files}


def manifest_sha256(files: Sequence[RenderedFile]) -> str:
    return identity(manifest(files))
