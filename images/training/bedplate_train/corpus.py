"""The data of a run: Megatron's indexed datasets, and the manifest that says which bytes they are.

`manifest.json` lies beside the datasets, on a mount that the run only reads:

    {"schema": 1,
     "tokenizer": {"name": "toy", "version": "1", "vocabulary": 128, "end": 0, "padding": 1},
     "sets": {"counting": {"prefix": "counting", "documents": 400, "tokens": 13012,
                           "files": {"counting.bin": {"size": 26024, "sha256": "…"}, "counting.idx": …}}}}
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bedplate_train.configuration import Configuration, Data, Name, Tokenizer
from bedplate_train.faults import Fault, Refused
from bedplate_train.text import file_sha256, identity, read_json, write_json

MANIFEST = "manifest.json"


class _Section(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


class File(_Section):
    size: Annotated[int, Field(ge=0)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Set(_Section):
    prefix: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$")]
    documents: Annotated[int, Field(ge=1)]
    tokens: Annotated[int, Field(ge=1)]
    files: Mapping[str, File]


class Manifest(_Section):
    schema_: Literal[1] = Field(alias="schema")
    tokenizer: Tokenizer
    sets: Mapping[Name, Set]

    @property
    def identity(self) -> str:
        return identity(self.model_dump(mode="json", by_alias=True))


def manifest(directory: Path) -> Manifest:
    """Read the manifest.

    Raises:
        Refused: it cannot be read or is none.
    """
    path = directory / MANIFEST
    read_json(path)
    try:
        return Manifest.model_validate_json(path.read_bytes())
    except ValidationError as fault:
        faults = [Fault(f"{path}: {'.'.join(map(str, e['loc']))}", e["msg"]) for e in fault.errors()]
        raise Refused(faults) from fault


def faults(data: Data, given: Manifest, directory: Path) -> Iterator[Fault]:
    """What of the data is not as configuration and manifest say."""
    for name, wanted in data.tokenizer.model_dump().items():
        found = getattr(given.tokenizer, name)
        if found != wanted:
            said = f"tokenizer.{name} is {found!r}, the configuration has {wanted!r}"
            yield Fault(str(directory / MANIFEST), said, "the data was made with another tokenizer")
    for name in data.sets:
        if name not in given.sets:
            yield Fault(str(directory / MANIFEST), f"no dataset {name}", f"it has {', '.join(sorted(given.sets))}")
            continue
        chosen = given.sets[name]
        if not {f"{chosen.prefix}.bin", f"{chosen.prefix}.idx"} <= chosen.files.keys():
            yield Fault(str(directory / MANIFEST), f"sets.{name} does not list {chosen.prefix}.bin and .idx")
        for file, wanted in chosen.files.items():
            yield from file_faults(directory / file, wanted, hashed=data.verify == "checksums")


def file_faults(path: Path, wanted: File, *, hashed: bool) -> Iterator[Fault]:
    try:
        size = path.stat().st_size
        if size != wanted.size:
            yield Fault(str(path), f"{size} bytes, the manifest has {wanted.size}", "copy it again")
        elif hashed and (found := file_sha256(path)) != wanted.sha256:
            yield Fault(str(path), f"sha256 {found[:16]}…, the manifest has {wanted.sha256[:16]}…", "copy it again")
    except OSError as fault:
        yield Fault(str(path), f"cannot be read: {fault.strerror}", "is the data mounted?")


def verified(configuration: Configuration) -> Manifest:
    """The manifest of the run's data, every file as it says.

    Raises:
        Refused: every fault that was found.
    """
    directory = Path(configuration.paths.data)
    given = manifest(directory)
    found = list(faults(configuration.data, given, directory))
    if found:
        raise Refused(found)
    return given


class MarkedTokenizer:
    """What Megatron's dataset asks of a tokenizer: the data is tokens already."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.vocab_size = tokenizer.vocabulary
        self.eod = tokenizer.end
        self.pad = tokenizer.padding
        self.unique_identifiers = {"name": tokenizer.name, "version": tokenizer.version}


def toy_document(kind: str, number: int, vocabulary: int) -> list[int]:
    """A document that can be learned: counting in threes from somewhere, or a motif that repeats."""
    import random

    chance = random.Random(f"{kind} {number}")  # noqa: S311 - not for secrets
    length, low = chance.randrange(5, 60), 3
    span = vocabulary - low
    if kind == "counting":
        start = chance.randrange(span)
        return [(start + 3 * i) % span + low for i in range(length)]
    motif = [chance.randrange(span) + low for _ in range(chance.randrange(2, 6))]
    return [motif[i % len(motif)] for i in range(length)]


def write_toy(directory: Path, tokenizer: Tokenizer, *, documents: int = 400) -> Manifest:
    """Small datasets and their manifest, the same bytes every time: for tests, and for the acceptance of a machine."""
    import numpy as np
    import torch
    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder, get_bin_path, get_idx_path

    directory.mkdir(parents=True, exist_ok=True)
    sets: dict[str, Any] = {}
    for kind in ("counting", "repeating"):
        prefix = str(directory / kind)
        dtype: Any = np.uint16 if tokenizer.vocabulary <= 2**16 else np.int32
        builder = IndexedDatasetBuilder(get_bin_path(prefix), dtype=dtype)
        tokens = 0
        for number in range(documents):
            document = [*toy_document(kind, number, tokenizer.vocabulary), tokenizer.end]
            builder.add_document(torch.tensor(document), [len(document)])
            tokens += len(document)
        builder.finalize(get_idx_path(prefix))
        files = {f"{kind}.{end}": directory / f"{kind}.{end}" for end in ("bin", "idx")}
        sets[kind] = {
            "prefix": kind,
            "documents": documents,
            "tokens": tokens,
            "files": {n: {"size": p.stat().st_size, "sha256": file_sha256(p)} for n, p in files.items()},
        }
    write_json(directory / MANIFEST, {"schema": 1, "tokenizer": tokenizer.model_dump(), "sets": sets})
    return manifest(directory)
