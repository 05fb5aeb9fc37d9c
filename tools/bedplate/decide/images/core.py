"""The packages that make an image what it is: the base image brings its own builds, which no index may replace."""

import re

# The indexes' names. NGC's base image brings these itself; its builds are not the ones that PyPI has.
_NAMES = frozenset(
    ["torch", "torchvision", "torchaudio", "triton", "pytorch-triton", "transformer-engine", "transformer-engine-torch",
     "megatron-core", "apex", "flash-attn", "cuda-toolkit", "cuda-bindings", "cuda-python", "cuda-pathfinder",
     "cupy-cuda13x"]
)  # fmt: skip
# nvidia-cublas-cu13, nvidia-nccl-cu13, nvidia-cuda-runtime, transformer-engine-cu12: libraries of CUDA as packages.
_LIBRARIES = re.compile(
    r"(nvidia-(cublas|cuda|cudnn|cufft|cufile|curand|cusolver|cusparse|cusparselt|nccl|nvjitlink|nvshmem|nvtx|nvvm)"
    r"|transformer-engine|cuda-core)(-.*)?"
)


def is_core(name: str) -> bool:
    """Whether a package, by its normalised name, is one that the image brings itself."""
    return name in _NAMES or _LIBRARIES.fullmatch(name) is not None
