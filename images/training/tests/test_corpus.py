"""Data is what its manifest says, or the run does not begin."""

import json
import shutil
from pathlib import Path

import pytest

from bedplate_train import corpus
from bedplate_train.accept.profile import TOY
from bedplate_train.configuration import Data
from bedplate_train.faults import Refused

GIVEN = Data(tokenizer=TOY, sets={"counting": 1.0, "repeating": 2.0})


@pytest.fixture
def copy(data: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(data, tmp_path / "copy"))


def faults(folder: Path, given: Data = GIVEN) -> list[str]:
    return [str(fault) for fault in corpus.faults(given, corpus.manifest(folder), folder)]


def test_untouched_data_has_no_fault(copy: Path) -> None:
    assert not faults(copy)


def test_one_changed_byte_is_found_by_checksum_and_not_by_size(copy: Path) -> None:
    path = copy / "counting.bin"
    raw = bytearray(path.read_bytes())
    raw[100] ^= 1
    path.write_bytes(raw)
    assert "counting.bin: sha256" in faults(copy)[0]
    assert not faults(copy, GIVEN.model_copy(update={"verify": "sizes"}))


def test_every_missing_and_cut_file_is_told(copy: Path) -> None:
    (copy / "counting.bin").unlink()
    (copy / "repeating.idx").write_bytes(b"short")
    found = faults(copy)
    assert len(found) == 2
    assert "cannot be read" in found[0]
    assert "5 bytes, the manifest has" in found[1]


def test_data_of_another_tokenizer_is_refused(copy: Path) -> None:
    other = GIVEN.model_copy(update={"tokenizer": TOY.model_copy(update={"version": "2"})})
    assert "tokenizer.version is '1', the configuration has '2'" in faults(copy, other)[0]


def test_a_dataset_that_the_manifest_lacks_is_told_with_those_it_has(copy: Path) -> None:
    other = GIVEN.model_copy(update={"sets": {"web": 1.0}})
    assert "no dataset web (it has counting, repeating)" in faults(copy, other)[0]


def test_a_manifest_with_an_unknown_member_is_refused(copy: Path) -> None:
    path = copy / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "more": 1}))
    with pytest.raises(Refused, match="more"):
        corpus.manifest(copy)


def test_toy_documents_are_the_same_every_time() -> None:
    assert corpus.toy_document("counting", 3, 256) == corpus.toy_document("counting", 3, 256)
    assert corpus.toy_document("counting", 3, 256) != corpus.toy_document("counting", 4, 256)
    assert all(3 <= token < 256 for n in range(50) for token in corpus.toy_document("repeating", n, 256))
