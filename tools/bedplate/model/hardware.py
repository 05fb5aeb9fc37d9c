"""A hardware model: what every machine of that model has, and which software its vendor supports on it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from bedplate.model.faults import BadInput, Fault
from bedplate.model.layers import Layer
from bedplate.model.schema import Checked, Strict, checked, nearest, wrong
from bedplate.model.text import Document, read_yaml
from bedplate.model.versions import Range, parse_range

Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]


@dataclass(frozen=True)
class Cpu:
    sockets: int
    cores_per_socket: int
    threads_per_core: int


@dataclass(frozen=True)
class Support:
    """One entry of the vendor's support list.

    what: the pattern of the packages that it speaks of, or the distribution, for the layer os. Either `versions`
    or `names` (releases of a distribution). unverified: stated somewhere, and not read in the vendor's own list.
    """

    what: str
    source: str
    versions: Range | None = None
    names: tuple[str, ...] = ()
    unverified: bool = False


@dataclass(frozen=True)
class KnownIssue:
    """Versions with a known fault; `avoided` says how Bedplate keeps it from happening, if it does."""

    id: str
    layer: Layer
    what: str
    versions: Range
    found: str
    source: str
    remedy: str
    avoided: str | None = None


@dataclass(frozen=True)
class HardwareModel:
    """None of an optional property: nobody has written it down, so nothing may be concluded from it."""

    model: str
    vendor: str
    description: str
    stand_in: bool
    gpus: int
    gpu_product: str | None
    nics: int
    gpu_type: str | None = None
    """The type of the GPUs for the scheduler: b200."""
    nvswitch_generation: int | None = None
    cpu: Cpu | None = None
    memory_mib: int | None = None
    secure_boot: bool | None = None
    firmware: str | None = None
    """uefi or bios."""
    boot_disks: int | None = None
    data_disks: int | None = None
    bios_versions: tuple[str, ...] = ()
    """Firmware that machines of this model may have when they are installed; empty: any."""
    bmc_versions: tuple[str, ...] = ()
    """The same of their BMC, as `ipmitool mc info` says it."""
    says_serial: bool = True
    """Whether a machine itself tells the serial number that nodes.csv has: a virtual one may not."""
    supported: Mapping[Layer, tuple[Support, ...]] = field(default_factory=dict)
    known_issues: tuple[KnownIssue, ...] = ()


def _range(value: str) -> str:
    if parse_range(value) is None:
        raise wrong(f'"{value}" is no range of versions', 'like ">=570.133.20,<600": bounds with >= > <= < =, all hold')
    return value


def _text(value: str) -> str:
    if not value.strip():
        raise wrong("found no text", "write it")
    return value


RangeText = Annotated[str, AfterValidator(_range)]
Text = Annotated[str, AfterValidator(_text)]


class _Cpu(Strict):
    sockets: Positive
    cores_per_socket: Positive
    threads_per_core: Positive


class _Support(Strict):
    what: Text
    versions: RangeText | None = None
    names: list[Text] | None = None
    source: Text
    unverified: bool = False


class _Issue(Strict):
    id: Text
    layer: Text
    what: Text
    versions: RangeText
    found: Text
    source: Text
    remedy: Text
    avoided: Text | None = None


class _Model(Strict):
    model: str
    vendor: str
    description: str = ""
    stand_in: bool = False
    gpus: Count
    gpu_product: str | None = None
    gpu_type: Text | None = None
    nvswitch_generation: Positive | None = None
    nics: Count
    cpu: _Cpu | None = None
    memory_mib: Positive | None = None
    secure_boot: bool | None = None
    firmware: Literal["uefi", "bios"] | None = None
    boot_disks: Positive | None = None
    data_disks: Count | None = None
    bios_versions: list[Text] | None = None
    bmc_versions: list[Text] | None = None
    says_serial: bool = True
    supported: dict[str, list[_Support]] | None = None
    known_issues: list[_Issue] | None = None


def parse_model(text: str, file: str, *, name: str | None = None) -> HardwareModel:
    """Read models/NAME.yml.

    Raises:
        BadInput: every fault of the file.
    """
    document = read_yaml(text, file)
    result = checked(_Model, document)
    faults = [*document.faults, *result.faults]
    if (model := result.value) is not None:
        if name is not None and model.model != name:
            faults.append(
                document.fault(("model",), f'"{model.model}" in a file named {name}.yml', "rename one of the two")
            )
        faults += _gpus(model, result, document)
        faults += _lists(model, document)
    if faults or model is None:
        raise BadInput(faults)
    return _model(model)


def _gpus(model: _Model, result: Checked[_Model], document: Document) -> Iterator[Fault]:
    if model.gpus and not model.gpu_product and result.whole("gpu_product"):
        yield document.fault(("gpus",), f"{model.gpus} GPUs without a gpu_product", "add gpu_product")
    if model.gpus or not result.whole("gpus"):
        return
    for key in ("gpu_product", "gpu_type", "nvswitch_generation"):
        if (value := getattr(model, key)) is not None:
            found = f"{value}" if isinstance(value, int) else f'"{value}"'
            yield document.fault((key,), f"{found} with no GPUs", "correct gpus, or remove it")


def _lists(model: _Model, document: Document) -> Iterator[Fault]:
    known = [layer.value for layer in Layer]
    for layer, entries in (model.supported or {}).items():
        if layer not in known:
            yield document.fault(("supported", layer), "unknown layer", nearest(layer, known))
        for at, entry in enumerate(entries):
            if (entry.versions is None) == (entry.names is None):
                found = "says both versions and names" if entry.names else "says neither versions nor names"
                yield document.fault(("supported", layer, at), found, "write one of the two")
    seen: set[str] = set()
    for at, issue in enumerate(model.known_issues or ()):
        place = ("known_issues", at)
        if issue.layer not in known:
            yield document.fault((*place, "layer"), f'unknown layer "{issue.layer}"', nearest(issue.layer, known))
        if issue.id in seen:
            yield document.fault((*place, "id"), f'"{issue.id}" stands there twice', "keep one")
        seen.add(issue.id)


def _model(model: _Model) -> HardwareModel:
    return HardwareModel(
        model.model, model.vendor, model.description, model.stand_in, model.gpus, model.gpu_product, model.nics,
        gpu_type=model.gpu_type, nvswitch_generation=model.nvswitch_generation,
        cpu=Cpu(**model.cpu.model_dump()) if model.cpu else None,
        memory_mib=model.memory_mib, secure_boot=model.secure_boot,
        firmware=model.firmware, boot_disks=model.boot_disks, data_disks=model.data_disks,
        bios_versions=tuple(model.bios_versions or ()), bmc_versions=tuple(model.bmc_versions or ()),
        says_serial=model.says_serial,
        supported={
            Layer(layer): tuple(
                Support(
                    entry.what, entry.source, parse_range(entry.versions) if entry.versions else None,
                    tuple(entry.names or ()), entry.unverified,
                )
                for entry in entries
            )
            for layer, entries in (model.supported or {}).items()
        },
        known_issues=tuple(
            KnownIssue(
                issue.id, Layer(issue.layer), issue.what, _parsed(issue.versions), issue.found, issue.source,
                issue.remedy, issue.avoided,
            )
            for issue in model.known_issues or ()
        ),
    )  # fmt: skip


def _parsed(text: str) -> Range:
    found = parse_range(text)
    assert found is not None  # noqa: S101  the border checked it
    return found
