"""What a node answers about its host layers, and what cannot be understood of it."""

import subprocess
from pathlib import Path

import pytest

from bedplate.observe.hostlayers import QUERY, emptied, lacking, parse_layers
from bedplate.observe.observed import NotUnderstood

# QUERY on n1 of a lab under environment B.
ANSWER = """\
== kernel
6.18.44
== command_line
root=/dev/vda quiet

== units
Id=chrony.service
LoadState=loaded
ActiveState=active
UnitFileState=enabled

Id=nvidia-dcgm.service
LoadState=not-found
ActiveState=inactive
UnitFileState=
== modules
ib_umad
nvidia 580.126.20
== manager
Fabric Manager version is : 580.126.20
(LAB STAND-IN)
== libraries
/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.126.20
== empty
libcuda.so.580.126.20 libnvidia-compute
== fabric
Completed, Success
Completed, Success
== daemon
{"features": {"cdi": true}, "log-opts": {"max-size": "10m"}}
== ours
{"features": {"cdi": true}}
== settings
net.ipv4.tcp_keepalive_time=600=7200
== mounts
/material ro,nosuid,nodev
== upgrade
Inst linux-image-generic [6.8.0-50] (6.8.0-60 u [amd64])
== end
"""


def test_an_answer_is_read_part_by_part() -> None:
    layers = parse_layers(ANSWER)
    assert layers.kernel == "6.18.44"
    assert layers.command_line == ("root=/dev/vda", "quiet")
    assert layers.units == {"chrony.service": ("active", "enabled"), "nvidia-dcgm.service": ("inactive", "")}
    assert layers.modules == {"ib_umad": "", "nvidia": "580.126.20"}
    assert (layers.manager, layers.libraries) == ("580.126.20", ("580.126.20",))
    assert layers.empty == {"libcuda.so.580.126.20": "libnvidia-compute"}
    assert layers.fabric == ("Completed, Success",) * 2
    assert layers.settings == {"net.ipv4.tcp_keepalive_time": ("600", "7200")}
    assert layers.mounts == {"/material": {"ro", "nosuid", "nodev"}}
    assert layers.upgrade == ("Inst linux-image-generic [6.8.0-50] (6.8.0-60 u [amd64])",)
    assert lacking(layers.ours, layers.daemon) == []


@pytest.mark.parametrize(
    "answer",
    [
        "",
        ANSWER.partition("== upgrade")[0],
        ANSWER.replace('{"features": {"cdi": true}}', "{"),
        ANSWER.replace("== kernel\n", ""),
        ANSWER.replace("=600=7200", ""),
    ],
    ids=["nothing", "cut", "no JSON", "a part is absent", "a setting without values"],
)
def test_an_answer_that_is_not_whole_is_not_understood(answer: str) -> None:
    with pytest.raises(NotUnderstood):
        parse_layers(answer)


@pytest.mark.parametrize(
    ("wanted", "there", "said"),
    [
        ({"features": {"cdi": True}}, {"features": {"cdi": True, "x": 1}, "y": 2}, []),
        ({"features": {"cdi": True}}, {"features": {"cdi": False}}, ["features.cdi is False, ours is True"]),
        ({"features": {"cdi": True}}, {}, ["features is None, ours is {'cdi': True}"]),
        ({"a": 1}, None, ["all of it is None, ours is {'a': 1}"]),
    ],
    ids=["all there", "another value", "absent", "no file"],
)
def test_keys_that_are_absent_or_other_are_named(wanted: object, there: object, said: list[str]) -> None:
    assert lacking(wanted, there) == said


CALLED = "dpkg calls libnvidia-compute-570 installed (run: apt-get install --reinstall"


@pytest.mark.parametrize(
    ("package", "said"),
    [
        ("libnvidia-compute-570", f"{CALLED} libnvidia-compute-570=570.133.20-0ubuntu1)"),
        (
            "libnvidia-gl-570",
            "dpkg calls libnvidia-gl-570 installed (run: apt-get install --reinstall libnvidia-gl-570)",
        ),
        ("", "and of no package that dpkg knows (remove it)"),
    ],
    ids=["a package of the lock", "another package", "no package"],
)
def test_an_empty_library_of_the_driver_is_told_with_the_way_to_repair_it(package: str, said: str) -> None:
    found = emptied({"libnvidia-ml.so.570.133.20": package}, {"libnvidia-compute-570": "570.133.20-0ubuntu1"})
    assert found == [f"libnvidia-ml.so.570.133.20 is empty, {said}"]


def test_only_what_is_of_the_driver_and_has_no_byte_is_asked_for(tmp_path: Path) -> None:
    folder = tmp_path / "x86_64-linux-gnu"
    folder.mkdir()
    for name in ("libnvidia-ml.so.570.133.20", "libnvidia-container.so.1.20.0", "libm.so.6.1"):
        (folder / name).touch()
    (folder / "libcuda.so.570.133.20").write_text("ELF")
    (folder / "libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.570.133.20")
    asked = QUERY.replace("/usr/lib", str(tmp_path)).replace("{fabric}", "true").replace("{{", "{").replace("}}", "}")
    part = asked.partition("echo == empty\n")[2].partition("echo == fabric")[0]
    done = subprocess.run(["sh", "-c", part], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout == "libnvidia-ml.so.570.133.20 \n"
