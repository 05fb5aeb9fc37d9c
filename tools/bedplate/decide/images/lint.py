"""The lint of an image's recipe: every input that is not pinned, every label that disagrees with what it is on.

Invariants
- It never fails: whatever stands in a Dockerfile, a lock or a version file, there are findings or there are none.
- It sees what is written, not what a script that is copied in does; what nobody could look at is a finding.

Example: `RUN curl https://x.example/install.sh | sh` is DOWNLOAD-UNCHECKED, at the line of the curl.
"""

from collections.abc import Collection, Iterable

from bedplate.decide.images.recipe import Recipe
from bedplate.decide.images.rule import Finding, judged
from bedplate.decide.images.rules import all_rules


def lint(recipes: Iterable[Recipe]) -> list[Finding]:
    """Everything that is found, in the order of the places."""
    found = {finding for recipe in recipes for finding in judged(all_rules(), recipe)}
    return sorted(found, key=lambda f: (f.fault.file, f.fault.line or 0, f.rule, f.fault.found))


def accepted(findings: Iterable[Finding], rules: Collection[str]) -> list[Finding]:
    """The findings without those of rules that a person accepts."""
    return [finding for finding in findings if finding.rule not in rules]
