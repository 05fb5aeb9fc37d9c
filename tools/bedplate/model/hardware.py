"""A hardware model: what every machine of that model has."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from bedplate.model.faults import BadInput
from bedplate.model.schema import Strict, checked
from bedplate.model.text import read_yaml

Count = Annotated[int, Field(ge=0)]


@dataclass(frozen=True)
class HardwareModel:
    model: str
    vendor: str
    description: str
    stand_in: bool
    gpus: int
    gpu_product: str | None
    nics: int


class _Model(Strict):
    model: str
    vendor: str
    description: str = ""
    stand_in: bool = False
    gpus: Count
    gpu_product: str | None = None
    nics: Count


def parse_model(text: str, file: str, *, name: str | None = None) -> HardwareModel:
    """Read models/NAME.yml.

    Raises:
        BadInput: every fault of the file.
    """
    document = read_yaml(text, file)
    result = checked(_Model, document)
    faults = [*document.faults, *result.faults]
    if (model := result.value) is not None:
        if name is not None and model.model != name:
            faults.append(
                document.fault(("model",), f'"{model.model}" in a file named {name}.yml', "rename one of the two")
            )
        if model.gpus and not model.gpu_product and result.whole("gpu_product"):
            faults.append(document.fault(("gpus",), f"{model.gpus} GPUs without a gpu_product", "add gpu_product"))
        if not model.gpus and model.gpu_product:
            faults.append(
                document.fault(("gpu_product",), f'"{model.gpu_product}" with no GPUs', "correct gpus, or remove it")
            )
    if faults or model is None:
        raise BadInput(faults)
    return HardwareModel(**model.model_dump())
