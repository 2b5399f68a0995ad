"""``tbloom completion``: a script with which a shell completes commands, options, files and filters' names."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from tbloom.cli.kit import output
from tbloom.cli.kit.command import Command


@click.command(cls=Command, example="tbloom completion bash > tbloom.bash")
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Prints a script that completes commands in a shell.

    In bash: eval "$(tbloom completion bash)".
    """
    script = get_completion_class(shell)
    assert script is not None  # noqa: S101 - click knows these three
    output.line(script(context.find_root().command, {}, "tbloom", "_TBLOOM_COMPLETE").source())
