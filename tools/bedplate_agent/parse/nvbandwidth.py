"""`nvbandwidth -j`: bandwidth of every test, a matrix each."""

from __future__ import annotations

from typing import NamedTuple

from bedplate_agent.parse.text import NotUnderstood, document, member, number


class Test(NamedTuple):
    """cells: GB/s, those that the test measured."""

    name: str
    status: str
    cells: list[float]


def parse(text: str) -> list[Test]:
    said = document(text[text.find("{") :] if "{" in text else text, "nvbandwidth")
    tests = []
    for case in member(member(said, "nvbandwidth", dict, "nvbandwidth"), "testcases", list, "nvbandwidth"):
        name = member(case, "name", str, "a test")
        status = member(case, "status", str, name)
        cells = [
            number(cell, name)
            for row in (member(case, "bandwidth_matrix", list, name) if status == "Passed" else [])
            for cell in (row if isinstance(row, list) else [])
            if isinstance(cell, str) and cell != "N/A"
        ]
        tests.append(Test(name, status, cells))
    if not tests:
        raise NotUnderstood("it has no test")
    return tests
