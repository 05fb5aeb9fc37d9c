"""What an image's base says that it has, held against what is in the image and on the nodes that run it.

A base says it in variables of its configuration (NCCL_VERSION, CUDA_VERSION), and every image that stands on it goes on
saying so, whatever its recipe replaced. What is there, files said when it was built: the lock has these versions.

Example: the base has NCCL_VERSION=2.28.3, the image nccl 2.29.2-1 -> Claim("nccl", "NCCL_VERSION", "2.28.3",
"2.29.2-1").
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

END = "_VERSION"
# what variables call it -> what versions of an image, or of a node, are called
ALSO = {"pytorch": "torch", "pytorch-build": "torch", "cuda-driver": "driver"}
NUMBERS = re.compile(r"v?(\d+(?:\.\d+)*)")


@dataclass(frozen=True, order=True)
class Claim:
    """One thing, what the base says of it, and what there is."""

    thing: str
    variable: str
    says: str
    has: str


def claims(variables: Iterable[str], has: Mapping[str, str]) -> tuple[list[Claim], list[Claim]]:
    """Of variables of an image (NAME=VALUE): those that are not so, and those that are; has: thing -> version.

    What nobody knows the version of is neither.
    """
    wrong, right = list[Claim](), list[Claim]()
    for variable in variables:
        name, _, says = variable.partition("=")
        thing = name.removesuffix(END).lower().replace("_", "-")
        thing = ALSO.get(thing, thing)
        if name.endswith(END) and thing in has:
            claim = Claim(thing, name, says, has[thing])
            (right if _agree(says, has[thing]) else wrong).append(claim)
    return sorted(wrong), sorted(right)


def _agree(one: str, other: str) -> bool:
    """Whether two versions are the same as far as both say numbers: 13.0.2.006 and 13.0.2, 2.27.7 and 2.27.7-1."""
    found = [NUMBERS.match(text) for text in (one, other)]
    if any(match is None for match in found):
        return one == other
    numbers = [[int(part) for part in match[1].split(".")] for match in found if match is not None]
    return all(left == right for left, right in zip(*numbers, strict=False))
