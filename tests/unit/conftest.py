"""What several modules of unit tests share."""

from collections.abc import Iterator

import pytest

from unit.apt_archive import Key


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Key]:
    """A key that signs archives; its agent ends with the module."""
    made = Key(tmp_path_factory.mktemp("key") / "home")
    yield made
    made.close()
