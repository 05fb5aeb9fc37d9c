"""Pyxis is built for the Slurm that loads it: the same major and minor release.

Slurm compares the plug-in's `plugin_version` with its own number under the mask 0xffff00 and refuses another one.
"""

import re
from collections.abc import Iterator

from bedplate.decide.packages import PYXIS, SPANK_ABI
from bedplate.decide.rule import Finding, Rule, fault, unknown
from bedplate.decide.rules.slurm_skew import shown
from bedplate.decide.subject import Subject
from bedplate.model.layers import Layer
from bedplate.model.versions import numbers

_ABI = re.compile(r"(\d+)\.(\d+)(\.\d+)?")


def _check(subject: Subject) -> Iterator[Finding]:
    pyxis, slurm = subject.packages.get(PYXIS), sorted(subject.slurm(), key=lambda item: item.name)
    if pyxis is None:
        return
    loads = next((item for item in slurm if item.name in ("slurm-smd-slurmd", "slurmd")), slurm[0] if slurm else None)
    if loads is None:
        if subject.managed(Layer.SCHEDULER):
            yield fault(
                pyxis, f"{pyxis} without a Slurm in the same environment", "they are upgraded together: ask for both"
            )
        return
    if SPANK_ABI not in subject.facts and subject.locked:
        what = f"{pyxis}: the lock does not say for which Slurm it was built, {loads} refuses any other"
        yield fault(
            pyxis, what, "lock an environment of another name: what was built for what is read when it is locked"
        )
        return
    if SPANK_ABI not in subject.facts:
        what = f"{pyxis}: for which Slurm it was built is read out of the package when it is locked"
        yield unknown(pyxis, what, "lock the environment")
        return
    abi, release = _ABI.fullmatch(subject.facts[SPANK_ABI]), numbers(loads.version, 2)
    built = (int(abi[1]), int(abi[2])) if abi else None
    if built is None or release is None:
        what = (
            f"{pyxis} was built for Slurm {subject.facts[SPANK_ABI]!r}, and {loads}: no releases that can be compared"
        )
        yield unknown(pyxis, what, "lock the environment again")
    elif built != release:
        yield fault(
            pyxis, f"{pyxis} was built for Slurm {shown(built)} (plugin_version in spank_pyxis.so), and {loads}:"
            " slurmd and srun refuse the plug-in",
            f"build Pyxis against Slurm {shown(release)}, and put that package into the archive",
        )  # fmt: skip


RULE = Rule(
    id="PYXIS-ABI",
    title="Pyxis is built for the Slurm that loads it",
    layers=(Layer.SCHEDULER,),
    source="slurm src/common/plugin.c (mask 0xffff00); pyxis#95, #25, #150: Incompatible Slurm plugin version",
    check=_check,
    installed=False,
)
