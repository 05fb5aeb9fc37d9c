"""What a site says of files that are not there."""

from pathlib import Path

import pytest

from bedplate.model.faults import BadInput
from bedplate.sources.site import open_site
from unit.site_sample import write_site


def test_of_an_environment_that_is_none_no_lock_is_asked_for(tmp_path: Path) -> None:
    site = open_site(write_site(tmp_path))
    for name in ("prod-driver-580", "test"):
        site.environment_path(name).write_text("")
    with pytest.raises(BadInput) as caught:
        site.lock("prod-driver-590")
    said = str(caught.value)
    assert 'environments: no environment "prod-driver-590" (there: prod-driver-580, ' in said, "nearest first"
    assert "bedplate lock" not in said
    with pytest.raises(BadInput, match="lock the environment: bedplate lock A"):
        site.lock("A")


def test_a_lock_outlives_the_file_of_its_environment(tmp_path: Path) -> None:
    site = open_site(write_site(tmp_path))
    site.lock_path("B").write_text("{}")
    with pytest.raises(BadInput) as caught:
        site.lock("B")
    assert "no environment" not in str(caught.value), "it is read, and its own faults are told"
