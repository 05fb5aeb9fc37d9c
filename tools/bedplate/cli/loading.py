"""Groups of commands that are loaded when they are asked for: help and errors stay fast."""

import importlib
import keyword
from collections.abc import Mapping
from typing import Any

import click


class PipeBroken(Exception):
    """A pipe that nobody reads any more; click itself would end without a word, as if it were stdout."""


class Loading(click.Group):
    """Takes a command out of its module when it is asked for.

    modules: name of the command -> module in this folder that has it under that name, with _ where Python has the name.
    """

    def __init__(self, *args: Any, modules: Mapping[str, str], **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.modules = modules

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as fault:
            raise PipeBroken from fault

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as fault:  # click knows only commands that are loaded already
            raise click.NoSuchCommand(fault.command_name, possibilities=self.modules, ctx=ctx) from None

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(self.modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in self.modules:
            return None
        module = importlib.import_module(f"bedplate.cli.{self.modules[cmd_name]}")
        command = getattr(module, f"{cmd_name}_" if keyword.iskeyword(cmd_name) else cmd_name)
        assert isinstance(command, click.Command)  # noqa: S101
        return command
