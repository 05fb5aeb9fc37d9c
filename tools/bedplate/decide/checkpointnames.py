"""What the pickles of a checkpoint name: which of it known writers name, and which nobody should ever load."""

import re
from collections.abc import Iterable

# Names that torch, Megatron and numpy put into checkpoints. All else is told, and never loaded by a program of ours:
# to load a pickle is to run what it names.
_KNOWN = re.compile(
    r"""(?x)
    collections\.(OrderedDict|defaultdict) | argparse\.Namespace | types\.SimpleNamespace | _codecs\.encode
    | (builtins|__builtin__)\.(set|frozenset|list|dict|tuple|int|float|complex|bool|str|bytes|bytearray|slice|range)
    | pathlib\.(Pure)?(Posix)?Path | pathlib\._local\.(Pure)?(Posix)?Path | io\.BytesIO | _io\.BytesIO
    | signal\.Signals
    | torch\.(Size|device|dtype|layout|Generator|Tensor|strided|[A-Za-z0-9]+Storage|[a-z]+[0-9]+[a-z0-9_]*|bool)
    | torch\._C\.Generator
    | torch\._utils\._rebuild_[a-z0-9_]+ | torch\._tensor\._rebuild_from_type_v2
    | torch\.nn\.parameter\.Parameter | torch\.serialization\._get_layout | torch\.storage\.UntypedStorage
    | torch\.distributed\.checkpoint\.(metadata|filesystem|planner|default_planner|_nested_dict)\.[A-Z_][A-Za-z_]*
    | numpy\.(ndarray|dtype|dtypes\.[A-Za-z0-9]+) | numpy\.(_?core)\.multiarray\.(_reconstruct|scalar)
    | numpy\._core\.numeric\._frombuffer
    | megatron\.(core|training|legacy|rl)(\.[a-z_0-9]+)*\.[A-Z][A-Za-z0-9_]*
    | transformer_engine(\.[a-z_0-9]+)*\.[A-Z][A-Za-z0-9_]*
    """
)
# Megatron Core 0.19 and later load with weights_only=True and let these classes through besides torch's own.
# Origin: megatron/core/safe_globals.py of the 0.19.2 wheel.
_LOADED_BY_0_19 = re.compile(
    r"""(?x)
    types\.SimpleNamespace | argparse\.Namespace | pathlib\.PosixPath | _?io\.BytesIO | signal\.Signals
    | collections\.OrderedDict | _codecs\.encode | builtins\.(set|bytearray) | torch\..*
    | numpy\.(ndarray|dtype|dtypes\.UInt32DType) | numpy\.(_?core)\.multiarray\._reconstruct
    | megatron\.core\.transformer\.enums\.(AttnBackend|CudaGraphModule|CudaGraphScope|InferenceCudaGraphScope)
    | megatron\.core\.enums\.ModelType | megatron\.core\.optimizer\.optimizer_config\.OptimizerConfig
    | megatron\.core\.rerun_state_machine\.Rerun(Diagnostic|Mode|State)
    """
)

# Of an object, Megatron puts the shard's number behind the key: …_extra_state/shard_0_1.
_EXTRA_STATE = re.compile(r".*\._extra_state(/.*)?")


def foreign(names: Iterable[str]) -> tuple[str, ...]:
    """The names that no known writer puts into a checkpoint, sorted."""
    return tuple(sorted(name for name in names if not _KNOWN.fullmatch(name)))


def beyond_weights_only(names: Iterable[str]) -> tuple[str, ...]:
    """The names that Megatron Core 0.19 does not let through when it loads, sorted."""
    return tuple(sorted(name for name in names if not _LOADED_BY_0_19.fullmatch(name)))


def transformer_engine(keys: Iterable[str]) -> str | None:
    """What keys say of the layers that were saved; None where they say nothing.

    A model with layers of the other kind meets `Unexpected key(s) … _extra_state`, or misses them (Megatron-LM#900).
    """
    count = sum(bool(_EXTRA_STATE.fullmatch(key)) for key in keys)
    return f"of Transformer Engine: {count} key{'s' if count != 1 else ''} _extra_state" if count else None
