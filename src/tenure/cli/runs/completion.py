"""`completion`: what to source so that a shell completes commands, options and names."""

from __future__ import annotations

import click

from tenure.cli.shells import SCRIPTS, script
from tenure.cli.terminal import hint


@click.command("completion", short_help="Print what a shell needs to complete commands and names.")
@click.argument("shell", type=click.Choice(list(SCRIPTS)))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print what a shell needs to complete commands and names: a script to source.

    Commands and options are those of the program itself; runs, budgets, envelopes, owners, nodes, namespaces and
    contexts are those of the fleet or cluster that the line, or the environment, chooses. `kubectl runs` is completed
    by kubectl's own completion, which asks the program kubectl_complete-runs, installed beside this one.

    \b
    source <(kubectl-runs completion bash)
    source <(tenure completion zsh)
    kubectl-runs completion fish > ~/.config/fish/completions/kubectl-runs.fish
    """
    root = ctx.find_root()
    program = root.command.name or "kubectl-runs"
    print(script(shell, program, call=program), end="")
    hint(f"source <({program} completion {shell})" if shell != "fish" else f"{program} completion fish | source")
