"""Every plug-in that a package brings for Slurm is built for the Slurm that loads it, as Pyxis is (PYXIS-ABI).

Since 26.05 the interface of libslurm is another one, so each has to be built again (spank-plugins#199).
"""

from collections.abc import Iterator

from bedplate.decide.packages import SPANK_ABI
from bedplate.decide.rule import Finding, Rule, fault
from bedplate.decide.rules.slurm_skew import shown
from bedplate.decide.subject import Subject
from bedplate.model.layers import Layer
from bedplate.model.versions import numbers


def _check(subject: Subject) -> Iterator[Finding]:
    slurm = sorted(subject.slurm(), key=lambda item: (not item.name.endswith("slurmd"), item.name))
    release = numbers(slurm[0].version, 2) if slurm else None
    for key, built in sorted(subject.facts.items()):
        fact, _, name = key.partition(" ")
        plugin = subject.packages.get(name)
        if fact != SPANK_ABI or plugin is None:
            continue
        if release is None:
            yield fault(plugin, f"{plugin} has plug-ins for Slurm {built}, and no Slurm is in the environment",
                        "they are upgraded together: ask for both")  # fmt: skip
        elif built != shown(release):
            yield fault(
                plugin, f"{plugin} has plug-ins for Slurm {built}, and {slurm[0]}: Slurm refuses to load them",
                f"build {name} against Slurm {shown(release)}, and put that package into the archive",
            )  # fmt: skip


RULE = Rule(
    id="SPANK-ABI",
    title="Every plug-in for Slurm is built for the Slurm that loads it",
    layers=(Layer.SCHEDULER,),
    source="slurm src/common/plugin.c (mask 0xffff00); qiskit-community/spank-plugins#199 (26.05)",
    check=_check,
    installed=False,
)
