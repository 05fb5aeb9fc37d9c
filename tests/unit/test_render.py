"""The configuration files of a node: same input, same bytes; anything else is refused."""

import contextlib
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bedplate.decide.lockdoc import LockDocument
from bedplate.decide.render import (
    FileEntry,
    Rendering,
    file_entries,
    manifest,
    manifest_sha256,
    refuse_other_templates,
    render_node,
)
from bedplate.model.canonical import identity, sha256
from bedplate.model.faults import BadInput, Fault, Refused
from bedplate.sources import checkout
from unit.fleet_sample import node
from unit.lock_sample import document, parsed, set_at

FILES = b"""\
# what the role writes
- path: /etc/nccl.conf
  template: nccl.conf.j2
  mode: "0644"
- path: /etc/bedplate/node.conf
  template: node.conf.j2
  mode: "0600"
"""
SOURCES = {
    "roles/base/files.yml": FILES,
    "roles/base/templates/nccl.conf.j2": b"NCCL_DEBUG={{ values.nccl_debug }}\n",
    "roles/base/templates/node.conf.j2": b"{{node.name}} {{node.rack}} {{environment.name}} {{ packages[0].name }}\n",
}


def lock_of(sources: Mapping[str, bytes]) -> LockDocument:
    """The sample lock, made with these templates and file lists."""
    hashes = {path: sha256(data) for path, data in sources.items()}
    data = set_at(document(), "config", {
        "templates": {p: h for p, h in hashes.items() if "/templates/" in p},
        "files_sha256": {p: h for p, h in hashes.items() if "/templates/" not in p},
        "values": {"nccl_debug": "WARN"},
    })  # fmt: skip
    return parsed(data)


def template(text: bytes) -> dict[str, bytes]:
    return SOURCES | {"roles/base/templates/nccl.conf.j2": text}


def test_a_node_gets_every_file_of_every_role_by_path() -> None:
    files = render_node(lock_of(SOURCES), node("n1", rack="r07"), SOURCES)
    assert [(f.path, f.mode, f.role, f.data) for f in files] == [
        ("/etc/bedplate/node.conf", "0600", "base", b"n1 r07 A libnuma1\n"),
        ("/etc/nccl.conf", "0644", "base", b"NCCL_DEBUG=WARN\n"),
    ]
    assert manifest(files)["/etc/nccl.conf"] == {"mode": "0644", "sha256": sha256(b"NCCL_DEBUG=WARN\n")}
    assert manifest_sha256(files) == identity(manifest(files))


def test_the_same_input_gives_the_same_manifest_and_another_node_or_value_another_one() -> None:
    lock = lock_of(SOURCES)
    one = manifest_sha256(render_node(lock, node("n1"), SOURCES))
    assert one == manifest_sha256(render_node(lock_of(dict(reversed(SOURCES.items()))), node("n1"), SOURCES))
    other = parsed(set_at(lock.document, "config/values/nccl_debug", "INFO"))
    assert (
        len({one, *(manifest_sha256(render_node(*a, SOURCES)) for a in ((lock, node("n2")), (other, node("n1"))))}) == 3
    )


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        (b"{% if true %}\nx\n{% endif %}\ny\n", b"x\ny\n"),  # trim_blocks
        (b"  {% if true %}\nx\n  {% endif %}\n", b"  x\n  "),  # no lstrip_blocks
        (b"x", b"x"),
        (b"x\n\n", b"x\n\n"),  # the end is kept
        ("straße {{ 'ü' }}\n".encode(), "straße ü\n".encode()),
        (b"a < b & c\n", b"a < b & c\n"),
    ],
)
def test_templates_read_as_ansible_reads_them(text: bytes, rendered: bytes) -> None:
    sources = template(text)
    assert render_node(lock_of(sources), node("n1"), sources)[1].data == rendered


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        (b"\nNCCL={{ values.nccl_dbug }}\n", 2, "nccl_dbug"),
        (b"{{ nothing }}\n", 1, "'nothing' is undefined"),
        (b"x\ny\n{% if values.nope %}{% endif %}\n", 3, "nope"),
        (b"x\n{{ 'a' ~ }}\n", 2, "unexpected"),
        (b"{% for %}", 1, ""),
        (b"x\n{{ 1 // 0 }}\n", 2, ""),
        (b"{{ node.name + 1 }}\n", 1, ""),
        (b"x\n{{ node.__class__.__mro__ }}\n", 2, "unsafe"),
        (b"{{ packages.append(1) }}\n", 1, "unsafe"),
        (b"\xff\n", None, "utf-8"),
        (b"x\n{{ [1, 2] | random }}\n", 2, "random"),
        (b"{{ lipsum() }}\n", 1, "lipsum"),
    ],
)
def test_a_template_that_does_not_render_is_named_with_line_and_node(text: bytes, line: int | None, said: str) -> None:
    sources = template(text)
    with pytest.raises(BadInput) as caught:
        render_node(lock_of(sources), node("n1"), sources)
    [fault] = caught.value.faults
    assert (fault.file, fault.line) == ("roles/base/templates/nccl.conf.j2", line)
    assert fault.found.startswith("for n1: ")
    assert said in fault.found


def test_every_template_that_does_not_render_is_told_at_once() -> None:
    sources = template(b"{{ nothing }}") | {"roles/base/templates/node.conf.j2": b"{{ nothing }}"}
    with pytest.raises(BadInput) as caught:
        render_node(lock_of(sources), node("n1"), sources)
    assert len(caught.value.faults) == 2


@pytest.mark.parametrize(
    ("sources", "named"),
    [
        (template(b"NCCL_DEBUG=INFO\n"), "roles/base/templates/nccl.conf.j2: lock A says sha256:"),
        ({k: v for k, v in SOURCES.items() if "nccl" not in k}, "this checkout has nothing"),
        (SOURCES | {"roles/new/templates/x.j2": b""}, "roles/new/templates/x.j2: lock A says nothing"),
        (SOURCES | {"roles/base/files.yml": FILES + b"\n"}, "roles/base/files.yml: lock A says sha256:"),
    ],
)
def test_templates_that_are_not_those_of_the_lock_are_refused(sources: dict[str, bytes], named: str) -> None:
    with pytest.raises(Refused, match="not those of lock A") as caught:
        render_node(lock_of(SOURCES), node("n1"), sources)
    assert named in str(caught.value)


def test_many_nodes_render_as_each_alone() -> None:
    rendering = Rendering(lock_of(SOURCES), SOURCES)
    for name in ("n1", "n2", "n1"):
        assert rendering.files(node(name)) == render_node(lock_of(SOURCES), node(name), SOURCES)
    assert rendering.files(node("n1"))[1] is rendering.files(node("n2"))[1], "what names no node is rendered once"


def test_a_node_of_a_kind_that_the_lock_is_not_for_is_refused() -> None:
    with pytest.raises(BadInput, match="not for kind cpu"):
        render_node(lock_of(SOURCES), node("n1", kind="cpu"), SOURCES)


def test_a_template_that_fails_fails_for_every_node() -> None:
    sources = template(b"{{ nothing")
    rendering = Rendering(lock_of(sources), sources)
    for name in ("n1", "n2"):
        with pytest.raises(BadInput, match=f"for {name}: "):
            rendering.files(node(name))


# --- files.yml ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        (b"a: b\n", [(1, "not a list of files")]),
        (b"", [(1, "not a list of files")]),
        (b"- x\n", [(1, "a file needs exactly path, template and mode")]),
        (b"- {path: /a, template: nccl.conf.j2}\n", [(1, "a file needs exactly path, template and mode")]),
        (
            b'- path: etc/a\n  template: nccl.conf.j2\n  mode: "0644"\n',
            [(1, "'etc/a' is no absolute path")],
        ),
        (
            b'- path: /etc/../a\n  template: nccl.conf.j2\n  mode: "0644"\n',
            [(1, "'/etc/../a' is no absolute path")],
        ),
        (
            b'- path: "/etc/a b; rm"\n  template: nccl.conf.j2\n  mode: "0644"\n',
            [(1, "'/etc/a b; rm' is no absolute path")],
        ),
        (
            b'- path: /etc/a\n  template: no.j2\n  mode: "644"\n- path: /etc/a\n  template: ../x\n  mode: "0999"\n',
            [
                (2, "no template roles/base/templates/no.j2"), (3, "mode '644'"),
                (4, "/etc/a is written by role base already"), (5, "no template roles/base/templates/../x"),
                (6, "mode '0999'"),
            ],
        ),
        (b"- path: [\n", [(2, "")]),
        (b"- path: /a\n  template: nccl.conf.j2\n  mode: 0644\n", [(3, "")]),
        (b"\xff", [(1, "")]),
    ],
)  # fmt: skip
def test_faults_of_a_file_list_are_told_with_their_lines(text: bytes, faults: list[tuple[int, str]]) -> None:
    with pytest.raises(BadInput) as caught:
        file_entries(SOURCES | {"roles/base/files.yml": text})
    found = caught.value.faults
    assert [(f.file, f.line) for f in found] == [("roles/base/files.yml", line) for line, _ in faults]
    assert all(said in fault.found for fault, (_, said) in zip(found, faults, strict=True))


def test_a_file_that_two_roles_write_is_a_fault_of_the_second() -> None:
    sources = SOURCES | {
        "roles/other/files.yml": FILES,
        "roles/other/templates/nccl.conf.j2": b"",
        "roles/other/templates/node.conf.j2": b"",
    }
    with pytest.raises(BadInput) as caught:
        file_entries(sources)
    assert caught.value.faults == [
        Fault("roles/other/files.yml", line, f"{path} is written by role base already", "one role owns a file")
        for line, path in ((2, "/etc/nccl.conf"), (5, "/etc/bedplate/node.conf"))
    ]


def test_faults_of_all_file_lists_are_told_at_once() -> None:
    with pytest.raises(BadInput) as caught:
        file_entries({"roles/a/files.yml": b"- [", "roles/b/files.yml": b"x", "roles/c/templates/files.yml": b"- ["})
    assert {fault.file for fault in caught.value.faults} == {"roles/a/files.yml", "roles/b/files.yml"}


@settings(max_examples=80, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_for_a_file_list_are_entries_or_faults(data: bytes) -> None:
    with contextlib.suppress(BadInput):
        assert all(entry.template in SOURCES for entry in file_entries(SOURCES | {"roles/base/files.yml": data}))


# --- the roles of this checkout -------------------------------------------------------------------


def test_the_roles_of_this_checkout_render() -> None:
    sources = checkout.roles()
    lock = lock_of(sources)
    refuse_other_templates(lock, sources)
    around = {"fleet": {"host_keys": ["n1 ssh-ed25519 AAAA"], "nodes": {}}}
    files = {file.path: file for file in render_node(lock, node("n1"), sources, around)}
    assert b"URIs: http://archive.lab:8080/\n" in files["/etc/apt/sources.list.d/bedplate.sources"].data
    pins = files["/etc/apt/preferences.d/bedplate.pref"].data.decode()
    for name, package in lock.packages("gpu").items():
        assert f"\n\nPackage: {name}\nPin: version {package.version}\nPin-Priority: 1001\n" in pins
    assert b"SERIAL=LAB-0001\n" in files["/etc/bedplate/node.conf"].data
    assert {FileEntry(f.role, f.path, "", f.mode).path for f in files.values()} == files.keys()
