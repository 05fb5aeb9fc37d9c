"""Border models: pydantic's verdict on a document, as faults with lines, without losing what is right.

A file with one wrong value still has its other faults to tell. So what is wrong is reported, taken out, and
the rest is read on; `lost` says what was taken out, for rules that must not conclude from its absence.
"""

import copy
import difflib
import types
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from bedplate.model.faults import Fault
from bedplate.model.text import Document, Path

_WANTED = {
    "string_type": "text", "int_type": "a whole number", "bool_type": "true or false", "list_type": "a list",
    "dict_type": "a mapping", "model_type": "a mapping", "model_attributes_type": "a mapping",
}  # fmt: skip


MOST_NAMED = 15  # known words in one remedy: the twelve layers, but not 165 racks
MAX_ROUNDS = 8  # each takes out one level more; no file of a site has more than 5


class Strict(BaseModel):
    """A border model: no coercion, no unknown keys, no change afterwards."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


@dataclass(frozen=True)
class Checked[M: BaseModel]:
    """What could be read, what is wrong with the rest, and where that was."""

    value: M | None
    faults: tuple[Fault, ...]
    lost: frozenset[Path]

    def whole(self, *path: str | int) -> bool:
        """Whether nothing at or below a place was taken out."""
        return self.value is not None and not any(
            place[: len(path)] == path or path[: len(place)] == place for place in self.lost
        )


def wrong(found: str, remedy: str = "") -> PydanticCustomError:
    """The error a validator raises: what was found, what to do."""
    return PydanticCustomError("site", "{found}", {"found": found, "remedy": remedy})


def meant(word: str, known: Iterable[str]) -> str | None:
    """The known word that a misspelt one was meant to be."""
    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)), None)


def nearest(word: str, known: Iterable[str]) -> str:
    """The remedy for a word that nobody knows: the known word it was meant to be, or all of them."""
    known = list(known)
    if close := meant(word, known):
        return f'did you mean "{close}"?'
    if not known:
        return "none is known here"
    more = f" and {len(known) - MOST_NAMED} more" if len(known) > MOST_NAMED else ""
    return f"known: {', '.join(known[:MOST_NAMED])}{more}"


def checked[M: BaseModel](model: type[M], document: Document) -> Checked[M]:
    """Check a document against a border model; `faults` do not repeat those of the document itself."""
    data = copy.deepcopy(document.data)
    faults: list[Fault] = []
    lost: set[Path] = set(document.doubted)
    for _ in range(MAX_ROUNDS):
        try:
            return Checked(model.model_validate(data), tuple(faults), frozenset(lost))
        except ValidationError as error:
            targets: set[Path] = set()
            lost |= _misspelt(model, error)
            for detail in error.errors():
                path = tuple(part for part in detail["loc"] if part != "[key]")
                absent = detail["type"] == "missing"
                if path not in lost:
                    faults.append(_fault(model, document, path, detail))
                targets.add(path[:-1] if absent else path)
            lost |= {target for target in targets if target}
            if () in targets:
                return Checked(None, tuple(faults), frozenset({*lost, ()}))
            for target in sorted(targets, key=len, reverse=True):
                lost.add(_remove(data, target))
    return Checked(None, tuple(faults), frozenset({*lost, ()}))


def _misspelt(model: type[BaseModel], error: ValidationError) -> set[Path]:
    """The places of known keys that stand there misspelt: one mistake is one fault, not two."""
    places: set[Path] = set()
    for detail in error.errors():
        if detail["type"] == "extra_forbidden":
            parent, word = detail["loc"][:-1], str(detail["loc"][-1])
            around = _model_at(model, parent)
            if around and (key := meant(word, around.model_fields)):
                places.add((*parent, key))
    return places


def _remove(data: object, path: Path) -> Path:
    """Take a value out; a list goes as a whole, since taking out one item would move the others' places."""
    parents: list[Any] = [data]
    for index, part in enumerate(path[:-1]):
        if isinstance(parents[-1], list):
            return _remove(data, path[:index])
        if not isinstance(parents[-1], dict) or part not in parents[-1]:
            return path  # went with something around it
        parents.append(parents[-1][part])
    if isinstance(parents[-1], list):
        return _remove(data, path[:-1])
    if isinstance(parents[-1], dict):
        parents[-1].pop(path[-1], None)
    return path


def _fault(model: type[BaseModel], document: Document, path: Path, detail: ErrorDetails) -> Fault:  # noqa: PLR0911  a table of kinds
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        parent = _model_at(model, path[:-1])
        known = list(parent.model_fields) if parent else []
        line = document.line(*path)
        place = document.fault(path[:-1], f'unknown key "{path[-1]}"', nearest(str(path[-1]), known))
        return Fault(place.file, line, place.found, place.remedy)
    if kind == "missing":
        return document.fault(path[:-1], f'"{path[-1]}" is missing', "add it")
    if kind == "site":
        return document.fault(path, str(context["found"]), str(context["remedy"]))
    if kind in _WANTED:
        found = detail["input"]
        remedy = f'put it in quotes: "{said(found)}"' if _WANTED[kind] == "text" and _plain(found) else ""
        return document.fault(path, f"found {what(found)}, wanted {_WANTED[kind]}", remedy)
    if kind == "literal_error":
        return document.fault(path, f"found {what(detail['input'])}", f"one of: {context['expected']}")
    if kind in ("greater_than_equal", "less_than_equal"):
        bound = f"at least {context['ge']}" if "ge" in context else f"at most {context['le']}"
        return document.fault(path, f"found {what(detail['input'])}, wanted {bound}")
    return document.fault(path, f"found {what(detail['input'])}: {detail['msg']}")


def said(value: object) -> str:
    """A plain value the way YAML writes it."""
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)


def _plain(value: object) -> bool:
    return isinstance(value, bool | int)


def what(value: object, *, most: int | None = None) -> str:
    """A value as a message calls it; most: characters of a text that are shown."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return said(value)
    if isinstance(value, int):
        return f"the number {value}"
    if isinstance(value, str):
        return f'"{value[:most]}"'
    return "a mapping" if isinstance(value, Mapping) else "a list"


def _model_at(model: type[BaseModel], path: Path) -> type[BaseModel] | None:
    """The border model that stands at a place below another one."""
    here: Any = model
    for part in path:
        if isinstance(here, type) and issubclass(here, BaseModel):
            field = here.model_fields.get(str(part))
            here = _bare(field.annotation) if field else None
        elif get_origin(here) in (dict, list, Mapping, Sequence, Collection):
            here = _bare(get_args(here)[-1])
        else:
            return None
    return here if isinstance(here, type) and issubclass(here, BaseModel) else None


def _bare(annotation: Any) -> Any:
    """An annotation without Annotated and `| None`."""
    while get_origin(annotation) in (Annotated, Union, types.UnionType):
        arguments = [argument for argument in get_args(annotation) if argument is not type(None)]
        annotation = arguments[0]
    return annotation
