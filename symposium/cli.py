"""The commands, by name.  None of the other packages is imported before one of them is asked for.

Most commands are programs of `flows` under a shorter name, with the options and the help that those define.
Exit status: 0, success; 1, it failed, and the message says why; 2, a setting or an argument is wrong; 130, it was
interrupted, and the same command continues.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import sys
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from symposium.neighbours import ALL, check_neighbours

#: Command, the module of `flows` that is its program, and what it does.
PROGRAMS = {
    "init": ("flows.init", "Create a project in a folder: settings, presets, the chain, .gitignore."),
    "run": ("flows.experiment", "Run all stages that are not up to date: from data to a verdict and a report."),
    "ui": ("flows.serve", "Start Prefect, MLflow and a page for playing on 127.0.0.1, with a form for the experiment."),
    "worker": ("flows.worker", "Run what `symposium run --on POOL` asks for, on this machine."),
    "cluster": ("flows.cluster", "Run the servers that a team shares, back them up, restore them."),
    "plan": (
        "flows.plan",
        "Compute the data that is needed to detect a difference, or the memory of every stage.",
    ),
    "study": ("flows.study", "Compare ways of training: every level of a factor, with several seeds each."),
    "verdict": ("flows.outcomes", "Judge the outcomes of any systems: tables, or the logs of other programs."),
    "audit": ("flows.reward_function", "Audit a reward function, of TRL or verifiers, before training on it."),
    "runs": ("flows.runs", "List the recorded runs with their verdicts."),
    "compare": ("flows.compare", "Compare runs with a verdict on one page."),
    "identity": ("flows.identity", "Show what a result depends on, and why a stage is stale."),
    "looks": ("flows.looks", "List all recorded looks at the test split."),
    "play": ("flows.play", "Watch a team play one problem, optionally beside another team."),
    "page": ("flows.page", "Watch a team play in a browser, on a page on 127.0.0.1."),
    "serve": ("flows.endpoint", "Serve a team on 127.0.0.1 with an OpenAI-compatible API."),
    "export": ("flows.export", "Write a trained team as folders that transformers and peft can load."),
    "models": ("flows.models", "List the pretrained models that are at hand, or fetch one."),
    "doctor": ("flows.doctor", "Check what works on this machine, and what to install for the rest."),
}


class Program(click.Command):
    """A program of `flows` as a command: its own parser reads the arguments and prints the help."""

    def __init__(self, name: str) -> None:
        self.module, text = PROGRAMS[name]
        super().__init__(
            name,
            help=text,
            short_help=text,
            add_help_option=False,
            context_settings={
                "ignore_unknown_options": True,
                "allow_extra_args": True,
                "allow_interspersed_args": False,
            },
        )

    def invoke(self, ctx: click.Context) -> None:
        """Run the program, which ends this process if it fails."""
        try:
            check_neighbours(*ALL, here=Path.cwd())  # where the stages will be run, by python -m
        except ImportError as error:
            raise click.ClickException(str(error)) from None
        sys.path.insert(0, str(Path.cwd()))  # as for the stages, so that settings can name the project's own classes
        sys.argv = [f"symposium {self.name}", *ctx.args]
        try:
            importlib.import_module(self.module).main()
        except KeyboardInterrupt:  # while the program was loaded; after that it ends itself
            click.echo("interrupted; run the same command again to continue", err=True)
            sys.exit(130)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Offer the options of the program, and the values of arguments that have a few."""
        parser: argparse.ArgumentParser = importlib.import_module(self.module).parser()
        words = [option for action in parser._actions for option in action.option_strings if option.startswith("--")]
        words += [
            str(value) for action in parser._actions if not action.option_strings for value in action.choices or ()
        ]
        return [CompletionItem(word) for word in words if word.startswith(incomplete)]


class Programs(click.Group):
    """The group of all commands; each is made when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        return list(PROGRAMS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, or None if there is none of that name."""
        return Program(cmd_name) if cmd_name in PROGRAMS else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first word names; another word ends with the command that it resembles."""
        if args[0] not in PROGRAMS:
            close = difflib.get_close_matches(args[0], PROGRAMS)
            ctx.fail(f"there is no command {args[0]!r}" + (f"; did you mean {' or '.join(close)}?" if close else ""))
        return super().resolve_command(ctx, args)


@click.group(cls=Programs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="symposium")
def main() -> None:
    """Train teams of language models to work together, and prove whether they learned to.

    Example: symposium run, then symposium ui.  Every command has --help.

    \b
    Shell completion, for bash (zsh and fish alike):
      eval "$(_SYMPOSIUM_COMPLETE=bash_source symposium)"

    \b
    Exit status: 0 done, 1 failed, 2 a wrong setting or argument,
    130 interrupted (the same command continues).
    """
