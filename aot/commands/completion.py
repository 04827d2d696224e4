"""`aot completion`: completion of commands, options and their values by a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_AOT_COMPLETE"
"""Where a shell's script asks click for completions."""

EXAMPLES = """
\b
Examples:
  aot completion bash      add the output to ~/.bashrc, or: eval "$(aot completion bash)"
  aot completion zsh
  aot completion fish      keep it in ~/.config/fish/completions/aot.fish
"""


@click.command(epilog=EXAMPLES)
@click.argument("shell", metavar="|".join(_SHELLS), type=click.Choice(_SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that lets a shell complete commands, options, CPUs and passes."""
    script = get_completion_class(shell)
    assert script is not None
    click.echo(script(ctx.find_root().command, {}, "aot", VARIABLE).source())
