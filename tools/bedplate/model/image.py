"""The definition of a training image: what it is built from, and where it is published."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from bedplate.model.canonical import DIGEST
from bedplate.model.faults import BadInput
from bedplate.model.schema import Strict, checked
from bedplate.model.text import read_yaml
from bedplate.model.wording import exact_faults, inner_path, matching

_ARGUMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_name = matching(
    re.compile(r"[a-z0-9]+([._-][a-z0-9]+)*"),
    "image name",
    "lower-case letters, digits, and . _ - between them",
)
_repository = matching(
    re.compile(r"[a-z0-9.-]+(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+"),
    "repository",
    "HOST[:PORT]/PATH, without tag and digest",
)
_digest = matching(DIGEST, "digest", "sha256: and 64 hexadecimal digits")


class _Base(Strict):
    reference: Annotated[str, _repository]
    digest: Annotated[str, _digest]


class _Image(Strict):
    name: Annotated[str, _name]
    repository: Annotated[str, _repository]
    base: _Base
    dockerfile: Annotated[str, inner_path] = "Dockerfile"
    arguments: dict[str, str] = Field(default_factory=dict)


@dataclass(frozen=True)
class ImageDefinition:
    name: str
    repository: str
    base_reference: str
    base_digest: str
    dockerfile: str = "Dockerfile"
    arguments: Mapping[str, str] = field(default_factory=dict)


def parse_image(text: str, file: str) -> ImageDefinition:
    """Read images/DIR/image.yml.

    Raises:
        BadInput: every fault of the file.
    """
    document = read_yaml(text, file)
    result = checked(_Image, document)
    faults = [*document.faults, *result.faults, *exact_faults(document)]
    image = result.value
    for name in image.arguments if image else ():
        if name == "BASE":
            faults.append(
                document.fault(("arguments", name), "the builder sets BASE itself", "remove it: base says it")
            )
        elif not _ARGUMENT.fullmatch(name):
            faults.append(document.fault(("arguments", name), "no name of a build argument", "letters, digits and _"))
    if faults or image is None:
        raise BadInput(faults)
    return ImageDefinition(
        image.name,
        image.repository,
        image.base.reference,
        image.base.digest,
        image.dockerfile,
        image.arguments,
    )
