"""The command line: `python -m skinny_gemm COMMAND`; a command imports inside what is heavy.

Bad input is one line on stderr and exit status 2; a check that fails is exit status 1.
"""

import os
import sys
import warnings

import click

from . import answering, checking, measuring


@click.group(context_settings={"show_default": True})
def cli() -> None:
    """Skinny GEMM kernels for LLM decode: look at them, check them, measure them."""


for command in (
    checking.doctor, checking.list_shapes, checking.list_tactics, checking.verify, checking.inspect,
    measuring.bench, measuring.compare, measuring.summary, measuring.decode, measuring.pruning, measuring.standing,
    answering.figure, answering.best, answering.review, measuring.defaults, measuring.fit,
):  # fmt: skip
    cli.add_command(command)


def run(arguments: list[str]) -> int:
    """Runs one command; returns the exit status. KeyboardInterrupt passes."""
    status = 2
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_: print(f"warning: {message}", file=sys.stderr)
        try:
            # Not `cli.main`: that makes 1 of the status where the reader has gone.
            with cli.make_context("python -m skinny_gemm", arguments) as context:
                cli.invoke(context)
            return 0
        except click.exceptions.Exit as done:
            return done.exit_code
        except BrokenPipeError:  # the reader, such as `head`, has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except click.exceptions.NoArgsIsHelpError as request:
            click.echo(request.format_message())
            return 2
        except click.ClickException as error:
            message = error.format_message()
            if message.startswith("No such command"):
                message += f" Known are {', '.join(cli.commands)}."
        except OSError as error:
            message = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        except (ValueError, MemoryError, OverflowError) as error:
            message = str(error)
        except RuntimeError as error:  # the CUDA driver's, such as a lost context
            message, status = str(error), 1
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    return status
