"""What layers amount to, how Enroot is told to start it, and how it is read back: computing alone."""

import dataclasses
import shlex
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedplate.decide.images import enrootfiles
from bedplate.decide.images.pseudofile import Member, member
from bedplate.decide.images.rootfs import Entry, Found, Kind, Tree, differences
from bedplate.decide.squashfs import tool_faults
from bedplate.model.faults import BadInput


def entry(path: str, kind: Kind = Kind.FILE, target: str = "", **more: object) -> Entry:
    return Entry(0, path, kind, target=target, **more)  # type: ignore[arg-type]


def folder(path: str) -> Entry:
    return entry(path, Kind.DIRECTORY)


def tree(*layers: list[Entry]) -> Tree:
    made = Tree()
    for number, layer in enumerate(layers):
        numbered = [dataclasses.replace(each, position=place) for place, each in enumerate(layer)]
        made.lay(number, numbered)
    return made


def paths(made: Tree) -> list[str]:
    return sorted(made.nodes)[1:]


@pytest.mark.parametrize(
    ("layers", "left"),
    [
        ([[entry("a/b")]], ["a", "a/b"]),
        ([[entry("./a/b"), folder("./a/")], [entry("/a/c")]], ["a", "a/b", "a/c"]),
        ([[entry("a/b"), entry("a/c")], [entry("a/.wh.b")]], ["a", "a/c"]),
        ([[entry("a/b"), entry("a/c/d")], [entry("a/.wh..wh..opq")]], ["a"]),
        ([[entry("a/b/c")], [entry(".wh.a")]], []),
        ([[entry("a")], [entry("b"), entry(".wh.a"), entry(".wh.b")]], ["b"]),
        ([[entry("a/b")], [entry("a/c"), entry("a/.wh..wh..opq")]], ["a", "a/c"]),
        ([[entry("a/b")], [entry("a")]], ["a"]),
        ([[entry("a")], [folder("a"), entry("a/b")]], ["a", "a/b"]),
        ([[entry("a/b")], [folder("a")]], ["a", "a/b"]),
        ([[entry("a")], [entry(".wh.nothing")]], ["a"]),
        ([[entry(".wh..wh.plnk/1.2"), entry(".wh..wh.aufs")]], []),
        ([[entry("dev/null", Kind.DEVICE), folder("dev"), entry("dev/shm", Kind.DIRECTORY)]], ["dev"]),
        ([[entry("a"), entry("b", Kind.HARDLINK, "a")], [entry(".wh.a")]], ["b"]),
        ([[entry("a")], [entry("b", Kind.HARDLINK, "./a")]], ["a", "b"]),
        ([[entry("a..b"), entry("...")]], ["...", "a..b"]),
    ],
)
def test_layers_are_laid_over_each_other(layers: list[list[Entry]], left: list[str]) -> None:
    assert paths(tree(*layers)) == left


def test_a_whiteout_never_takes_what_its_own_layer_brings() -> None:
    made = tree([entry("a", size=1)], [entry("a", size=2), entry(".wh.a")])
    assert made.nodes["a"].size == 2


def test_bytes_stay_with_the_name_that_is_left() -> None:
    made = tree([entry("a", size=7), entry("b", Kind.HARDLINK, "a")], [entry("a", size=9)])
    assert (made.nodes["b"].size, made.nodes["a"].size) == (7, 9)
    assert made.names() == {(0, 0): ["b"], (1, 0): ["a"]}


def test_a_directory_that_nobody_describes_is_made() -> None:
    made = tree([entry("a/b/c")])
    assert (made.nodes["a/b"].kind, made.nodes["a/b"].mode, made.nodes["a/b"].uid) == (Kind.DIRECTORY, 0o755, 0)


def test_a_directory_that_is_there_gets_the_attributes_of_the_layer_above() -> None:
    made = tree([folder("a"), entry("a/b")], [entry("a", Kind.DIRECTORY, mode=0o1777)])
    assert made.nodes["a"].mode == 0o1777
    assert "a/b" in made.nodes


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (entry("../etc/passwd"), "leads out of the image"),
        (entry("a/../../b"), "leads out of the image"),
        (entry("a", Kind.HARDLINK, "../../etc/shadow"), "leads out of the image"),
        (entry("a", Kind.HARDLINK, "gone"), 'hard link to "gone", which is not there'),
        (entry("a", Kind.HARDLINK, "folder"), "which is not there"),
        (entry("link/x"), 'lies below "link", which is a symlink'),
        (entry("file/x/y"), 'lies below "file", which is a file'),
        (entry("a", Kind.DEVICE), "is a device"),
        (entry("a", xattrs={"trusted.overlay.opaque": "y"}), 'has the attribute "trusted.overlay.opaque"'),
        (entry("a\nb"), "line break"),
        (entry("a", Kind.SYMLINK, "b\nc"), "line break"),
        (entry("", Kind.SYMLINK, "elsewhere"), "the root is a symlink"),
    ],
)
def test_what_cannot_be_kept_is_named(bad: Entry, says: str) -> None:
    made = tree([folder("folder"), entry("file"), entry("link", Kind.SYMLINK, "/usr/lib")])
    with pytest.raises(BadInput, match=says.replace("(", r"\(")):
        made.lay(1, [bad])


def test_every_fault_of_a_layer_is_told_at_once() -> None:
    with pytest.raises(BadInput) as caught:
        Tree().lay(0, [entry("../a"), entry("b", Kind.DEVICE), entry("c")], name="layer 1 (abc)")
    assert [fault.file for fault in caught.value.faults] == ["layer 1 (abc)"] * 2


def test_capabilities_and_users_attributes_are_kept_labels_are_not() -> None:
    made = tree([entry("a", xattrs={"security.capability": "x", "user.a": "y", "security.selinux": "z"})])
    assert made.nodes["a"].xattrs == {"security.capability": "x", "user.a": "y"}


def test_times_are_kept_within_what_squashfs_counts() -> None:
    made = tree([entry("a", mtime=-5), entry("b", mtime=2**33), entry("c", mtime=7)])
    assert [made.nodes[name].mtime for name in "abc"] == [0, 2**32 - 1, 7]
    assert made.latest_s == 2**32 - 1


names = st.text(st.sampled_from("ab./"), max_size=6)
entries = st.lists(
    st.builds(
        lambda path, kind, target, mark: entry(f"{path}/.wh.{target}" if mark else path, kind, target),
        names, st.sampled_from([Kind.FILE, Kind.DIRECTORY, Kind.SYMLINK, Kind.HARDLINK]), names, st.booleans(),
    ), max_size=6,
)  # fmt: skip


@given(st.lists(entries, max_size=4))
def test_whatever_layers_say_nothing_leads_out_and_every_parent_is_a_directory(layers: list[list[Entry]]) -> None:
    made = Tree()
    for number, layer in enumerate(layers):
        try:
            made.lay(number, layer)
        except BadInput:
            return
    for path in paths(made):
        assert not {"", ".", ".."} & set(path.split("/"))
        assert ".wh." not in path
        assert made.nodes[path.rpartition("/")[0]].kind is Kind.DIRECTORY
    assert made._children.keys() == {path for path, node in made.nodes.items() if node.kind is Kind.DIRECTORY}


# --- what was made, compared ---------------------------------------------------------------------------------------


def test_what_differs_is_named_by_its_path() -> None:
    made = tree([entry("a", size=1, sha256="x"), entry("b", Kind.SYMLINK, "a"), folder("c"), entry("d", Kind.FIFO)])
    found = {
        "": Found(Kind.DIRECTORY), "a": Found(Kind.FILE, 1, "x"), "b": Found(Kind.SYMLINK, target="a"),
        "c": Found(Kind.DIRECTORY), "d": Found(Kind.FIFO),
    }  # fmt: skip
    assert differences(made, found) == []
    for change, says in (
        ({"a": Found(Kind.FILE, 1, "y")}, '"/a" differs'),
        ({"a": Found(Kind.FILE, 2, "x")}, '"/a" differs'),
        ({"b": Found(Kind.SYMLINK, target="c")}, '"/b" differs'),
        ({"c": Found(Kind.FILE)}, '"/c" differs'),
        ({"e": Found(Kind.FILE)}, '"/e" is not of the image'),
    ):
        assert differences(made, found | change) == [says]
    del found["a"]
    assert differences(made, found) == ['"/a" is missing']


def test_of_many_differences_the_first_are_named_and_the_rest_counted() -> None:
    made = tree([entry(f"f{number}") for number in range(9)])
    assert differences(made, {"": Found(Kind.DIRECTORY)})[-1] == "and 4 more"


# --- the pseudo file of unsquashfs -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("/ D 1700000000 755 0 0", Member("", Kind.DIRECTORY)),
        (r"a\ dir/we\ ird\\\" R 1000 644 0 0 3000000 12", Member('a dir/we ird\\"', Kind.FILE, 3000000, 12)),
        ("etc/rc R 1000 644 0 0 212 0 1", Member("etc/rc", Kind.FILE, 212, 0)),
        ("etc/x L etc/hard", Member("etc/x", Kind.HARDLINK, target="etc/hard")),
        ("etc/sym S 1000 777 0 0 ../a b", Member("etc/sym", Kind.SYMLINK, target="../a b")),
        ("run/fifo I 1000 644 0 0 f", Member("run/fifo", Kind.FIFO)),
        ("dev/null C 1000 666 0 0 1 3", Member("dev/null", Kind.DEVICE)),
        ("etc/x x user.a=b", None),
    ],
)
def test_lines_of_a_pseudo_file_are_read(line: str, what: Member | None) -> None:
    assert member(line) == what


@pytest.mark.parametrize("line", ["", "a", "a R 1 2 3", "a R 1 644 0 0 x 0", "a Q 1 644 0 0", "#x y"])
def test_a_line_that_is_not_known_is_not_taken_for_read(line: str) -> None:
    with pytest.raises(ValueError, match=r"no line|no size|unknown kind"):
        member(line)


# --- how Enroot starts it -------------------------------------------------------------------------------------------

RC = """\
# maintainer NVIDIA
# long first
# long second

mkdir -p "/work" 2> /dev/null
cd "/work" && unset OLDPWD || exit 1

if [ -s /etc/rc.local ]; then
    . /etc/rc.local
fi

if [ $# -gt 0 ]; then
    exec '/opt/entry point' "$@"
else
    exec '/opt/entry point' 'it'\\''s' '$HOME'
fi
"""


def test_enroots_files_are_as_enroot_writes_them() -> None:
    files = enrootfiles.files(
        {
            "config": {
                "Labels": {"maintainer": "NVIDIA", "long": "first\nsecond"}, "WorkingDir": "/work",
                "Entrypoint": ["/opt/entry point"], "Cmd": ["it's", "$HOME"], "Env": ["A=1", "B=two words"],
                "Volumes": {"/z": {}, "/data": {}},
            }
        }
    )  # fmt: skip
    assert files["etc/rc"] == RC
    assert files["etc/environment"] == "A=1\nB=two words\n"
    assert files["etc/fstab"] == (
        "${ENROOT_ROOTFS}/data /data none x-create=dir,bind,rw,nosuid,nodev\n"
        "${ENROOT_ROOTFS}/z /z none x-create=dir,bind,rw,nosuid,nodev\n"
    )
    assert files["etc/rc.local"].startswith("# This file is sourced by /etc/rc")


@pytest.mark.parametrize("config", [{}, {"config": None}, {"config": {"Cmd": None, "Env": None, "Labels": None}}])
def test_an_image_that_says_nothing_starts_a_shell(config: dict[str, object]) -> None:
    files = enrootfiles.files(config)
    assert "    exec  '/bin/sh'\n" in files["etc/rc"]
    assert 'cd "/" && unset OLDPWD' in files["etc/rc"]
    assert files["etc/fstab"] == files["etc/environment"] == ""


@pytest.mark.skipif(not shutil.which("sh"), reason="needs sh")
@given(st.lists(st.text(st.characters(codec="ascii", exclude_characters="\0\r"), max_size=8), min_size=1, max_size=3))
def test_a_shell_reads_every_word_as_it_was(words: list[str]) -> None:
    line = enrootfiles.files({"config": {"Entrypoint": words}})["etc/rc"].rpartition("exec ")[2].removesuffix("\nfi\n")
    assert shlex.split(line) == words


def test_a_working_directory_cannot_run_anything() -> None:
    rc = enrootfiles.files({"config": {"WorkingDir": '/a"; touch /x; "$(id)`id`\\'}})["etc/rc"]
    assert subprocess.run(["sh", "-c", rc.splitlines()[1].replace("exit 1", "echo no")], capture_output=True, check=True
        ).stdout == b"no\n"  # fmt: skip
    assert enrootfiles.work_directory({"config": {"WorkingDir": "/a/../b//c/"}}) == "b/c"
    assert enrootfiles.work_directory({}) == ""


# --- the tools ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "fault"),
    [
        ("4.5.1", ""),
        ("4.6.1", ""),
        ("4.7.5", ""),
        ("4.7", "damages images with sparse files"),
        ("4.7.4", "damages images with sparse files"),
        ("4.4", "has a race"),
        ("4.3", "cannot read a tar stream"),
    ],
)
def test_a_mksquashfs_that_damages_images_is_refused(version: str, fault: str) -> None:
    said = "; ".join(tool_faults(version))
    assert fault in said
    assert bool(said) == bool(fault)
