"""DCGM's JSON: health, and diagnostics in version 3 and 4 (another root, other names of entities, a summary)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from bedplate_agent.parse.text import NotUnderstood, document, integer, member, shown

ROOTS = {"DCGM GPU Diagnostic": 3, "DCGM Diagnostic": 4}
STATUSES = ("Pass", "Fail", "Warn", "Skip", "Not Run", "Error")


class Result(NamedTuple):
    """gpu: None where the result is of the whole node (software tests of version 3 are)."""

    test: str
    gpu: int | None
    status: str
    text: str


class Diag(NamedTuple):
    version: str
    results: list[Result]


def parse_diag(text: str) -> Diag:
    # dcgmi writes lines of its own before the document when an argument is deprecated.
    said = document(text[text.find("{") :] if "{" in text else text, "dcgmi diag")
    root = next((name for name in ROOTS if isinstance(said, dict) and name in said), None)
    if root is None:
        raise NotUnderstood(
            f"neither of {', '.join(ROOTS)}: {shown(', '.join(said) if isinstance(said, dict) else '')}"
        )
    body = said[root]
    results: list[Result] = []
    for category in member(body, "test_categories", list, root):
        for test in member(category, "tests", list, "a category"):
            results += _three(test) if ROOTS[root] == 3 else _four(test)  # noqa: PLR2004
    version = ""
    for place in (body, body.get("metadata") or {}, said.get("metadata") or {}):
        for key in ("DCGM Version", "version", "DCGM Version:"):
            version = version or str(place.get(key, "")) if isinstance(place, dict) else version
    if not results:
        raise NotUnderstood("it has no result")
    return Diag(version, results)


def _three(test: Any) -> Iterator[Result]:
    name = member(test, "name", str, "a test")
    for result in member(test, "results", list, name):
        gpu = result.get("gpu_id", result.get("gpu_ids")) if isinstance(result, dict) else None
        text = " ".join(_texts(result))
        status = _status(member(result, "status", str, name), name)
        if isinstance(gpu, str) and "," in gpu:
            for one in gpu.split(","):
                yield Result(name, integer(one.strip(), "gpu_ids"), status, text)
        else:
            yield Result(name, None if gpu is None else integer(str(gpu), "gpu_id"), status, text)


def _four(test: Any) -> Iterator[Result]:
    name = member(test, "name", str, "a test")
    summary = member(test, "test_summary", dict, name)
    yield Result(name, None, _status(member(summary, "status", str, name), name), " ".join(_texts(summary)))
    for result in member(test, "results", list, name):
        group = result.get("entity_group", "GPU") if isinstance(result, dict) else ""
        gpu = member(result, "entity_id", int, name) if group == "GPU" else None
        yield Result(name, gpu, _status(member(result, "status", str, name), name), " ".join(_texts(result)))


def _texts(result: Any) -> Iterator[str]:
    """Warnings and information, however a version nests them."""
    for key in ("warnings", "warning", "info"):
        said = result.get(key, []) if isinstance(result, dict) else []
        for one in said if isinstance(said, list) else [said]:
            yield str(one.get("warning", one.get("message", one)) if isinstance(one, dict) else one)


def _status(text: str, test: str) -> str:
    wanted = text.strip().capitalize() if text.strip().lower() != "not run" else "Not Run"
    if wanted not in STATUSES:
        raise NotUnderstood(f"{test}: status {shown(text)}")
    return wanted


class Health(NamedTuple):
    overall: str
    systems: list[tuple[str, str, str]]
    """Entity, system, what it says, of those that are not healthy."""


def parse_health(text: str) -> Health:
    """`dcgmi health -c -j`."""
    body = member(document(text, "dcgmi health"), "body", dict, "dcgmi health")
    overall = member(member(body, "Overall Health", dict, "body"), "value", str, "Overall Health")
    if overall not in ("Healthy", "Warning", "Failure"):
        raise NotUnderstood(f"Overall Health is {shown(overall)}")
    systems = []
    for entity, said in body.items():
        if entity != "Overall Health" and isinstance(said, dict):
            for system, about in (said.get("children") or {}).items():
                value = str(about.get("value", "")) if isinstance(about, dict) else str(about)
                if value != "Healthy":
                    systems.append((entity, str(system), value))
    return Health(overall, systems)
