"""docs/commands.md, generated from the commands themselves: python tests/docs/reference.py > docs/commands.md"""

import click

from bedplate.cli.main import bedplate

HEAD = """# Commands

Generated from the commands by `tests/docs/reference.py`; a test fails when it differs.

`bedplate --site DIR COMMAND`: the site is chosen by `--site` or `BEDPLATE_SITE`; ENV is the name of an environment,
NODESET a host list like `gpu[001-640]`.

Completion: `eval "$(_BEDPLATE_COMPLETE=bash_source bedplate)"`, or `zsh_source`.

| exit code | meaning |
|---|---|
| 0 | good |
| 1 | internal fault: please report it |
| 2 | bad input: correct it |
| 3 | refused for safety, or stopped by policy |
| 4 | a node failed, was unreachable, or is unknown |
| 5 | differences found |
| 6 | busy: somebody else is at it |
"""


HELP = bedplate.context_settings["help_option_names"]


def commands(command: click.Command, path: str) -> list[tuple[str, click.Command]]:
    own = not isinstance(command, click.Group) or command.invoke_without_command
    found = [(path, command)] if own else []
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            found += commands(child, f"{path} {name}")
    return found


def page() -> str:
    parts = [HEAD]
    for path, command in commands(bedplate, "bedplate"):
        # As when a command runs, the help option is named by the group: click keeps the names that it sees first.
        context = click.Context(
            command, info_name=path, terminal_width=100, max_content_width=100, help_option_names=HELP
        )
        parts.append(f"\n## {path}\n\n```\n{command.get_help(context).strip()}\n```\n")
    return "".join(parts)


if __name__ == "__main__":
    print(page(), end="")
