"""Action `bedplate_accounts`: Slurm's accounting as accounts.yml says; shows what it lacks, then adds it."""

import time
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase

from bedplate.decide import accounts
from bedplate.doors import site as site_door
from bedplate.model.faults import BedplateError

PATIENCE_S = 60  # slurmdbd makes its tables when it starts for the first time
ABSENT = 127


class ActionModule(ActionBase):
    _VALID_ARGS: frozenset[str] = frozenset({"cluster"})
    _supports_check_mode = True

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        self._task_vars = task_vars
        cluster = str(self._task.args["cluster"])
        try:
            found = self._found(cluster)
            wanted = accounts.commands(found, cluster, site_door.current().accounts)
        except (BedplateError, ValueError) as fault:
            raise AnsibleError(str(fault)) from None
        lines = "".join(" ".join(words) + "\n" for words in wanted)
        result |= {"changed": bool(wanted), "commands": wanted, "diff": {"before": "", "after": lines}}
        if self._task.check_mode:
            return result
        for words in wanted:
            done = self._ask(words)
            if done.get("rc"):
                said = done.get("stderr") or done.get("stdout") or done.get("msg")
                return result | {"failed": True, "msg": f"{' '.join(words)}: {said}"}
        return result

    def _found(self, cluster: str) -> accounts.Found:
        asked = (
            accounts.SHOW_CLUSTERS,
            accounts.SHOW_QOS,
            accounts.SHOW_ACCOUNTS,
            accounts.show_associations(cluster),
        )
        deadline = time.monotonic() + PATIENCE_S
        texts: list[str] = []
        for words in asked:
            while True:
                done = self._ask(words)
                if not done.get("rc") and not done.get("failed"):
                    break
                if self._task.check_mode:  # nothing is installed yet: all of it would be made
                    return accounts.Found("", "", "", "")
                if time.monotonic() > deadline:
                    said = done.get("stderr") or done.get("stdout") or done.get("msg")
                    raise ValueError(f"{' '.join(words)}: {said} (is slurmdbd running? journalctl -u slurmdbd)")
                time.sleep(1)
            texts.append(str(done.get("stdout", "")))
        return accounts.Found(*texts)

    def _ask(self, words: Any) -> dict[str, Any]:
        done: dict[str, Any] = self._execute_module(
            module_name="ansible.legacy.command",
            module_args={"argv": list(words), "_uses_shell": False},
            task_vars=self._task_vars,
        )
        return done
