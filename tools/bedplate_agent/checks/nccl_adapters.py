"""NCCL keeps to adapters of the fabric: /etc/nccl.conf selects none that manages an NVSwitch, and none that is absent.

NCCL_IB_HCA is a list; each word selects every adapter whose name begins with it, after `=` just that one, and after
`^` all others (NCCL user guide). Without it NCCL takes every active adapter, the bridges of NVSwitches too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bedplate_agent.check import Check, all_or, bad
from bedplate_agent.facts import Facts
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import CONFIG, WARN, Finding

SETTING = "NCCL_IB_HCA"


def words_of(setting: str) -> list[str]:
    """The adapters that a value names, without its signs and ports."""
    listed = setting.removeprefix("^").removeprefix("=")
    return [word.partition(":")[0].strip() for word in listed.split(",") if word.strip()]


def selected(setting: str, names: Iterable[str]) -> list[str]:
    """Those of the adapters that NCCL uses."""
    exact = setting.removeprefix("^").startswith("=")
    words = words_of(setting)

    def named(name: str) -> bool:
        return any(name == word if exact else name.startswith(word) for word in words)

    return [name for name in names if not words or named(name) != setting.startswith("^")]


def judge(facts: Facts, _: Profile) -> Iterator[Finding]:
    devices, setting = facts["infiniband"], facts["nccl_conf"].get(SETTING, "")
    bridges = [device.name for device in devices.bridges]
    names = [device.name for part in devices for device in part]
    words = words_of(setting)

    def problems() -> Iterator[Finding]:
        if bridges and not words:
            yield bad(
                SETTING, f"it is not set, and {', '.join(bridges)} manage NVSwitches: NCCL may take them for adapters",
                verdict=WARN, value="none",
            )  # fmt: skip
        for name in selected(setting, bridges) if words else []:
            yield bad(name, f"{SETTING}={setting} selects {name}, which manages an NVSwitch", value=setting)
        for word in [] if setting.startswith("^") else words:
            if not selected(f"={word}" if setting.startswith("=") else word, names):
                yield bad(word, f"{SETTING}={setting} names {word}, and there is no such adapter", value=setting)

    yield from all_or(problems(), f"{SETTING}={setting}" if words else "no bridges of NVSwitches to keep NCCL from")


CHECK = Check(
    "nccl.adapters", judge, ("infiniband", "nccl_conf"), (), "NCCL user guide (NCCL_IB_HCA); siderolabs/extensions#893",
    CONFIG, 'list the compute adapters in the environment: nccl_ib_hca: "=mlx5_4,mlx5_7,…"',
)  # fmt: skip
