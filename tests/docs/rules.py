"""docs/rules.md, generated from the rules themselves: python tests/docs/rules.py > docs/rules.md"""

import inspect
import sys

from bedplate.decide.rule import UNUSED
from bedplate.decide.rules import all_rules

HEAD = f"""# Rules

Generated from `tools/bedplate/decide/rules/` by `tests/docs/rules.py`; a test fails when it differs.

The layers of an environment must go together. A rule says what that means for two of them; each is a file, and
`bedplate check --rules` lists them. They judge

- what an environment asks for, and where it is locked, everything that it resolved to: `bedplate check`;
- a closure before it is written: `bedplate lock` writes nothing that breaks a rule;
- a lock before nodes are changed, with what the ledger says that these nodes, their controllers and the nodes of these
  controllers run: `bedplate plan`, `bedplate rollout`, `playbooks/rollout.yml`. A refusal touches no node;
- a machine as it arrives, before any lock: `bedplate check node NODE`.

A finding is one of

| | |
|---|---|
| fault | refuses; names both layers, both versions, and what to do |
| `unknown:` | a fact is missing, and which: no pass, but nothing that could be refused |
| `note:` | a verdict to know: native or compatibility mode, a known issue and how it is avoided |

Versions are compared as dpkg compares them, without epoch and Debian revision: what an environment asks for may be an
upstream version.

## Exceptions

What a rule refuses can be allowed in one environment, by a named person and with a reason:

```yaml
exceptions:
  - rule: HARDWARE-SUPPORT      # the id of a rule, or of a known issue of the model
    approved_by: Ann
    reason: the manufacturer supports 6.17 on this machine from firmware 1.4 on
```

It goes into the lock. What it lifts is shown by check, lock and plan, and recorded with every rollout. An exception
that lifts nothing is a fault itself (`{UNUSED}`): it would lift something else one day, unseen.

A lock is never edited. A rule that is younger than it, or that only a rollout can judge (Slurm taken back), is lifted
for one rollout by `--accept RULE --approved-by NAME --reason TEXT` (`-e accept=RULE`), which is recorded with it.

## Support lists

`models/MODEL.yml` says what its vendor supports, entry by entry with its source; `unverified: true` where that source
is not the vendor's own list. [site.md](site.md) has the keys. An entry of `known_issues` with `avoided` is a note for
environments, since roles keep it from happening, and a fault on a machine that arrives with software of its own.

## The rules
"""


def page() -> str:
    parts = [HEAD]
    for rule in all_rules():
        text = inspect.cleandoc(sys.modules[rule.check.__module__].__doc__ or "")
        judges = " and ".join(
            word
            for word, holds in (("environments and locks", rule.asked), ("machines as they are", rule.installed))
            if holds
        )
        when = "; fully in a rollout only, which knows what machines run" if rule.transition else ""
        parts.append(
            f"\n### {rule.id}\n\n{rule.title[0].upper()}{rule.title[1:]}.\n\n{text}\n\n"
            f"- Layers: {', '.join(rule.layers)}\n- Judges {judges}{when}\n- Source: {rule.source}\n"
        )
    return "".join(parts)


if __name__ == "__main__":
    print(page(), end="")
