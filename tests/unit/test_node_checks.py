"""Checks of tests/node over what a node would answer: those whose fault no lab has."""

from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest

KERNEL = "Inst linux-image-6.8.0-60-generic (6.8.0-60.63 bedplate [amd64])"
OF_THE_LOCK = "Inst nvlsm [2025.06.11-1] (2025.10.14-1 bedplate [amd64])"
SITE_TOOL = "Inst site-tool [1] (2 bedplate [all])"


@pytest.fixture(scope="module")
def checks(pytestconfig: pytest.Config) -> Any:
    pytestconfig.addinivalue_line("markers", "layer(name): see tests/node/pytest.ini")  # they have a file of their own
    return SimpleNamespace(
        pins=import_module("node.test_files").test_nothing_is_pinned_beside_the_lock,
        upgrade=import_module("node.test_layers").test_an_upgrade_would_change_nothing_of_the_lock,
    )


@pytest.mark.parametrize(
    ("unmanaged", "upgrade", "said"),
    [
        ({}, [KERNEL], KERNEL),
        ({}, [OF_THE_LOCK, SITE_TOOL], OF_THE_LOCK),
        ({}, [SITE_TOOL], ""),
        ({}, [KERNEL.replace("Inst", "Remv")], ""),
        ({"kernel": "the machine's"}, [KERNEL], ""),
    ],
    ids=[
        "a kernel that the lock has not",
        "one of the lock",
        "neither",
        "an old kernel goes",
        "the kernel is not ours",
    ],
)
def test_what_an_upgrade_would_do_to_lock_or_kernel_is_told(
    checks: Any, unmanaged: dict[str, str], upgrade: list[str], said: str
) -> None:
    expected: Any = SimpleNamespace(unmanaged=unmanaged, packages={"nvlsm": "2025.06.11-1"})
    layers: Any = SimpleNamespace(upgrade=upgrade)
    if not said:
        checks.upgrade("n1", expected, layers)
        return
    with pytest.raises(AssertionError, match="apt-get dist-upgrade would: ") as failed:
        checks.upgrade("n1", expected, layers)
    assert str(failed.value).splitlines()[0] == f"apt-get dist-upgrade would: {said}"


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ("preferences.d/bedplate.pref", ""),
        ("preferences.d/bedplate.pref preferences.d/pin.dpkg-old", ""),
        (
            "preferences preferences.d/bedplate.pref preferences.d/nvidia-driver-pin",
            "/etc/apt/preferences, /etc/apt/preferences.d/nvidia-driver-pin",
        ),
        ("preferences.d/90curtin.pref preferences.d/bedplate.pref", "/etc/apt/preferences.d/90curtin.pref"),
    ],
    ids=["ours alone", "one that apt does not read", "two more", "the installer's"],
)
def test_pins_beside_the_lock_are_named(checks: Any, files: str, said: str) -> None:
    host = SimpleNamespace(
        run=lambda _: SimpleNamespace(stdout="".join(f"/etc/apt/{f}\n" for f in files.split()) + "end\n")
    )
    if not said:
        checks.pins("n1", host)
        return
    with pytest.raises(AssertionError) as failed:
        checks.pins("n1", host)
    assert str(failed.value).splitlines()[0] == f"pins beside the lock: {said}"
