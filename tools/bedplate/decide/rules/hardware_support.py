"""What the machine's vendor supports: versions outside the list need a named person's word."""

from collections.abc import Iterator
from fnmatch import fnmatchcase

from bedplate.decide.rule import Finding, Rule, fault
from bedplate.decide.subject import Item, Subject
from bedplate.model.hardware import HardwareModel, Support
from bedplate.model.layers import Layer

REMEDY = "ask for a version of the list, or write an exception with a name and a reason"


def _check(subject: Subject) -> Iterator[Finding]:
    model = subject.model
    for layer, entries in model.supported.items() if model is not None else ():
        assert model is not None  # noqa: S101
        if layer is Layer.OS:
            yield from _release(subject, model, entries)
        for entry in entries:
            for item in subject.packages.values():
                yield from _package(item, layer, model, entry)


def _package(item: Item, layer: Layer, model: HardwareModel, entry: Support) -> Iterator[Finding]:
    fits = fnmatchcase(item.name, entry.what)
    if fits and entry.versions is not None and not entry.versions.holds(item.version):
        yield fault(
            item, f"{item} is outside of what hardware {model.model} supports for {layer}:"
            f" {entry.what} {entry.versions.text} ({_source(entry)})", REMEDY,
        )  # fmt: skip


def _release(subject: Subject, model: HardwareModel, entries: tuple[Support, ...]) -> Iterator[Finding]:
    os = subject.layers.get(Layer.OS)
    releases = [entry for entry in entries if entry.names]
    if os is None or os.distribution is None or not releases:
        return
    if not any(entry.what == os.distribution and os.release in entry.names for entry in releases):
        listed = "; ".join(f"{entry.what} {', '.join(entry.names)} ({_source(entry)})" for entry in releases)
        yield fault(
            subject.at(Layer.OS), f"os {os.distribution} {os.release} is outside of what hardware {model.model}"
            f" supports: {listed}", REMEDY,
        )  # fmt: skip


def _source(entry: Support) -> str:
    return f"{entry.source}; unverified" if entry.unverified else entry.source


RULE = Rule(
    id="HARDWARE-SUPPORT",
    title="versions are on the support list of the machine's model",
    layers=(Layer.HARDWARE, Layer.OS, Layer.KERNEL, Layer.DRIVER, Layer.FABRIC, Layer.CONTAINER),
    source="models/MODEL.yml, supported: each entry names its source",
    check=_check,
)
