"""The training image on the node's disk."""

import pytest

from bedplate.observe.expectation import Expectation
from bedplate.observe.observed import Observed


@pytest.mark.layer("image")
def test_image_of_the_lock_is_the_current_one(node: str, expected: Expectation, observed: Observed) -> None:
    if expected.image is None:
        pytest.skip(f"unmanaged: {expected.unmanaged.get('image', 'no image')}")
    assert observed.image is not None, "no image is current on this node"
    path, checksum = expected.image
    assert observed.image[0] == path, f"current image is {observed.image[0]}, lock says {path}"
    assert observed.image[1] == checksum, f"{path} has {observed.image[1]}: damaged (run: bedplate image place)"
