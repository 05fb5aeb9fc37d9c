"""The driver is new enough for the CUDA in the image; the verdict says by what.

native: at least the driver that came with that CUDA. Compatibility mode: older than that, of the same major version
(minor-version compatibility; features that need the newer driver are missing, PTX of the newer compiler does not
load). Older than the major's first driver: only with the forward-compatibility libraries, which nobody checks here.
"""

from collections.abc import Iterator

from bedplate.decide.rule import Finding, Rule, fault, note, unknown
from bedplate.decide.subject import Subject
from bedplate.model.layers import Layer
from bedplate.model.versions import at_least, numbers

# CUDA -> the Linux driver that its first release came with (release notes, "CUDA Toolkit and Corresponding Driver
# Versions").
NATIVE = {
    (12, 8): "570.26", (12, 9): "575.51.03", (13, 0): "580.65.06", (13, 1): "590.44.01", (13, 2): "595.45.04",
    (13, 3): "610.43.02",
}  # fmt: skip
# CUDA's major version -> the first driver of minor-version compatibility ("Minimum Required Driver Version").
COMPATIBLE = {12: "525", 13: "580"}
NOTES = "CUDA Toolkit 13.3 release notes, corresponding driver versions"
GUIDE = "CUDA Compatibility, minor version compatibility, table 1"


def _check(subject: Subject) -> Iterator[Finding]:
    driver, cuda = subject.driver(), subject.image.cuda
    if driver is None:
        return
    if cuda is None:
        if subject.managed(Layer.IMAGE) and subject.machine is None:
            yield unknown(
                driver, f"{driver}: nobody says which CUDA the image holds",
                'write it to config.values: image_cuda: "13.3.0"',
            )  # fmt: skip
        return
    version, image = numbers(cuda, 2), f"image CUDA {cuda} (from {subject.image.source})"
    if version is None or version[0] not in COMPATIBLE:
        place = subject.values.get("image_cuda", ("", driver.place))[1]
        yield unknown(place, f"{image}: no CUDA of which the drivers are known", "write it like 13.3.0")
        return
    major, first = version[0], COMPATIBLE[version[0]]
    native = NATIVE.get((version[0], version[1]))
    if not at_least(driver.version, first):
        yield fault(
            driver, f"{driver} is older than {first}, the first driver for {image} ({GUIDE})",
            f"ask for a driver of {first} or later, or for an image with an earlier CUDA",
        )  # fmt: skip
    elif native is None:
        what = f"{driver} runs {image} in compatibility mode at least: {major}.x needs {first} or later ({GUIDE})"
        yield note(driver, f"{what}; which driver is native to it is not known here")
    elif at_least(driver.version, native):
        yield note(driver, f"{driver} is native for {image}, which came with {native} ({NOTES})")
    else:
        what = f"{driver} runs {image} in compatibility mode: {major}.x needs {first} or later ({GUIDE})"
        yield note(driver, f"{what}; native from {native} on ({NOTES})")


RULE = Rule(
    id="CUDA-DRIVER",
    title="the driver is new enough for the image's CUDA: native, or in compatibility mode",
    layers=(Layer.DRIVER, Layer.IMAGE),
    source=f"{NOTES}; {GUIDE}",
    check=_check,
)
