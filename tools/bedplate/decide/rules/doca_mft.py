"""NVIDIA's mft from the CUDA repository, or DOCA's: they have the same files."""

from collections.abc import Iterator

from bedplate.decide.rule import Finding, Rule, fault
from bedplate.decide.subject import Subject
from bedplate.model.layers import Layer


def _check(subject: Subject) -> Iterator[Finding]:
    nvlink = next((item for item, said in subject.nvidia() if said.stem == "nvlink5"), None)
    doca = next((item for item in subject.packages.values() if item.name.startswith(("doca-", "mlnx-ofed"))), None)
    if nvlink is not None and doca is not None:
        yield fault(
            nvlink, f"{nvlink} brings mft of the CUDA repository, {doca} brings its own",
            "ask for what nvlink5 brings by name: nvidia-fabricmanager, libnvidia-nscq, libnvsdm, nvlsm",
        )  # fmt: skip


RULE = Rule(
    id="DOCA-MFT",
    title="the metapackage nvlink5 does not meet DOCA",
    layers=(Layer.FABRIC, Layer.DRIVER),
    source="azhpc-images: mft of the CUDA repository collides with DOCA's; nvlink5-580 depends on mft,"
    " mft-oem, mft-autocomplete",
    check=_check,
)
