"""NCCL keeps to the compute adapters where NVSwitches of the fourth generation show adapters of their own.

Their bridges are four more mlx5 devices, InfiniBand and active. NCCL takes every adapter where NCCL_IB_HCA says
nothing, and every one whose name begins with a word of it, unless the list begins with `=`: mlx5_1 is mlx5_10 too.
"""

import re
from collections.abc import Iterator

from bedplate.decide.rule import Finding, Rule, fault, unknown
from bedplate.decide.rules.nvidia_nvlsm import GENERATION
from bedplate.decide.subject import Subject
from bedplate.model.layers import Layer

VALUE = "nccl_ib_hca"  # roles/base writes it to /etc/nccl.conf
_REMEDY = f'list the compute adapters: {VALUE}: "=mlx5_4,mlx5_7,…"'
_ONE_ADAPTER = re.compile(r"[a-z0-9]+_(?!1$)[0-9]+")  # as a beginning: no machine has a mlx5_40, many a mlx5_10


def _check(subject: Subject) -> Iterator[Finding]:
    model = subject.model
    if model is None or (model.nvswitch_generation or 0) < GENERATION:
        return
    if not (subject.managed(Layer.FABRIC) and subject.managed(Layer.CONFIG)):
        return
    bridges = f"hardware {model.model} shows 4 bridges of its NVSwitches as mlx5_* adapters"
    text, place = subject.values.get(VALUE, ("", subject.at(Layer.CONFIG)))
    listed = text.removeprefix("^").removeprefix("=")
    names = [word.partition(":")[0].strip() for word in listed.split(",") if word.strip()]
    if not names:
        yield unknown(place, f"config: NCCL_IB_HCA is not set, and {bridges}", _REMEDY)
    elif text.startswith("^"):
        yield unknown(
            place, f'config {VALUE} "{text}" leaves adapters out, and {bridges}: whether it is these is not known',
            _REMEDY,
        )  # fmt: skip
    elif not text.startswith("=") and (vague := [name for name in names if not _ONE_ADAPTER.fullmatch(name)]):
        yield fault(
            place, f'config {VALUE} "{text}" takes every adapter whose name begins with {vague[0]}, and {bridges}',
            _REMEDY,
        )  # fmt: skip
    elif len(set(names)) > model.nics:
        yield fault(
            place, f"config {VALUE} lists {len(set(names))} adapters, hardware {model.model} has {model.nics} of the"
            " compute fabric: bridges of its NVSwitches, or other networks, are among them",
            _REMEDY,
        )  # fmt: skip


RULE = Rule(
    id="NCCL-ADAPTERS",
    title="NCCL uses the compute adapters, not the bridges of NVSwitches",
    layers=(Layer.FABRIC, Layer.HARDWARE, Layer.CONFIG),
    source="siderolabs/extensions#893, leptonai/gpud#1164, node_exporter#3434 (four more mlx5 devices); NCCL user"
    " guide, NCCL_IB_HCA",
    check=_check,
    installed=False,
)
