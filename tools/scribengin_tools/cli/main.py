"""`scribengin`: the command line. What each command does stands beside this; here is how they end.

Exit codes: 0 it worked; 1 the work failed; 2 bad input, or nothing there; 130 ended by Ctrl-C.
"""

from __future__ import annotations

import errno
import os
import platform
import sys
import tempfile
import traceback
from collections.abc import Sequence
from types import TracebackType
from typing import Annotated, Any, cast

import typer
from typer.core import TyperGroup

from scribengin.errors import is_full
from scribengin_registry.errors import ScribenginError
from scribengin_tools.cli import monitor, sandbox, web, yarn
from scribengin_tools.cli.catalogue import arrange, named_in
from scribengin_tools.cli.dafka import keys as dafka_keys
from scribengin_tools.cli.dafka import perf as dafka_perf
from scribengin_tools.cli.dafka import records as dafka
from scribengin_tools.cli.dafka import servers as dafka_servers
from scribengin_tools.cli.dataflow import config, output, schema, state, verify
from scribengin_tools.cli.dataflow import end as ending
from scribengin_tools.cli.dataflow import operate as operating
from scribengin_tools.cli.dataflow import status as dataflows
from scribengin_tools.cli.dataflow import submit as flows
from scribengin_tools.cli.log import administration as log_admin
from scribengin_tools.cli.log import bench as log_bench
from scribengin_tools.cli.log import dump as log_dump
from scribengin_tools.cli.log import inspect as log_look
from scribengin_tools.cli.log import proxy
from scribengin_tools.cli.log import records as log
from scribengin_tools.cli.registry import check as registry_check
from scribengin_tools.cli.registry import nodes as registry
from scribengin_tools.rendering.stdout import OutputFull, own_stdout
from scribengin_tools.rendering.text import print_error, report, set_verbose

EXIT_CODES = "Exit codes: 0 it worked; 1 the work failed; 2 bad input, or nothing there; 130 ended by Ctrl-C."
EXIT_CODE_MEANINGS = {
    0: "it worked",
    1: "the work failed: a dataflow failed (also one that `status` shows), a disk is full, the outcome of a change is "
    "unknown",
    2: "bad input, or nothing there: a mistake in the descriptor or on the command line, no such dataflow, "
    "no registry; nothing was changed. Also: a dataflow that was asked for something has lost all its masters since",
    130: "ended by Ctrl-C",
}
_INTERRUPTED = 130
_WORK_FAILED = 1
_NOT_ALLOWED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP})
_VERBOSE = ("-v", "--verbose")
# The class of every mistake on a command line. Depending on its version, typer has it from click or carries its own.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]


class _ReaderGone(Exception):
    """Whoever read our output has had enough (`| head`)."""


class _Commands(TyperGroup):
    """Takes a broken pipe for what it is, before typer takes it for a failure."""

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError as error:
            raise _ReaderGone from error
        return result


app = typer.Typer(
    name="scribengin",
    cls=_Commands,
    help="Dataflows from logs and files to logs and files, exactly once: run them, watch them, stop them.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for module in (sandbox, flows, dataflows, state, monitor, web, proxy, operating, ending, output, verify, schema):
    module.add_to(app)
for module in (log_dump, log_look, log_admin, log_bench):
    module.add_to(log.app)
for module in (dafka_servers, dafka_keys, dafka_perf):
    module.add_to(dafka.app)
registry_check.add_to(registry.app)
app.add_typer(config.app, name="config")
app.add_typer(dafka.app, name="dafka")
app.add_typer(log.app, name="log")
app.add_typer(registry.app, name="registry")
app.add_typer(yarn.app, name="yarn")
arrange(app)


def _show_version(wanted: bool) -> None:
    if not wanted:
        return
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as version_of

    try:
        number = version_of("scribengin")
    except PackageNotFoundError:  # run from a tree that was not installed
        number = "not installed"
    print(f"scribengin {number} (Python {platform.python_version()})")
    raise typer.Exit


@app.callback()
def _options(
    verbose: Annotated[
        bool, typer.Option(*_VERBOSE, help="Show the whole traceback of an error. May stand anywhere.")
    ] = False,
    registry: Annotated[
        str | None,
        typer.Option(
            "--registry",
            metavar="HOSTS",
            help="The registry, for every command that asks one. May stand behind the command as well.",
            show_default=False,
        ),
    ] = None,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show which Scribengin this is, and end."
        ),
    ] = False,
) -> None:
    """`run` takes `--verbose` out of any command line before it is parsed, and `RegistryOption` asks for the registry;
    here they are only described."""


def main() -> None:
    """The console command."""
    arguments = sys.argv[1:]
    if not without_verbose(arguments)[1]:
        sys.excepthook = _report_bug
    sys.exit(run(arguments))


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code. A bug is no business of this function: it is raised."""
    rest, verbose = without_verbose(arguments)
    set_verbose(verbose)
    try:
        with own_stdout():
            command = typer.main.get_command(named_in(app, rest))
            code = command.main(rest, prog_name="scribengin", standalone_mode=False)
            sys.stdout.flush()
    except _UsageError as error:
        return _usage_error(cast(typer.BadParameter, error), rest)
    except ScribenginError as error:
        report(error)
        return error.exit_code
    except _ReaderGone:
        _forget_stdout()
        return 0
    except OutputFull as error:
        report(error, f"the output cannot be written: {error}; make room, or send it elsewhere")
        _forget_stdout()
        return _WORK_FAILED
    except OSError as error:
        return _refused_by_system(error)
    except (KeyboardInterrupt, typer.Abort):
        return _INTERRUPTED
    return code if isinstance(code, int) else 0


def _refused_by_system(error: OSError) -> int:
    """The exit code of what this machine does not allow: it says so itself. Anything else is a bug, and raised."""
    if is_full(error):
        report(error, f"{error.filename or 'a file'} cannot be written: {error.strerror}; make room")
    elif error.filename is not None and error.errno in _NOT_ALLOWED:
        report(error, f"{error.filename} cannot be used: {error.strerror}; make that possible, or name another place")
    else:
        raise error
    return _WORK_FAILED


def without_verbose(arguments: Sequence[str]) -> tuple[list[str], bool]:
    """The command line without `-v`, and whether it was there. What follows `--` is nobody's option."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    kept = [argument for argument in arguments[:end] if argument not in _VERBOSE]
    return [*kept, *arguments[end:]], len(kept) < end


def _usage_error(error: typer.BadParameter, arguments: Sequence[str]) -> int:
    command = error.ctx.command_path if error.ctx is not None else _command_of(arguments)
    message = error.format_message()
    if message:  # without one, the help was what there was to say
        stop = "" if message.endswith((".", "?")) else "."
        print_error(f"{message}{stop} See `{command} --help`")
    return error.exit_code


def _command_of(arguments: Sequence[str]) -> str:
    """The command that a line begins with. What has gone wrong with an option does not know whose it is."""
    command: Any = typer.main.get_command(app)
    path = ["scribengin"]
    for word in arguments:
        command = getattr(command, "commands", {}).get(word)
        if command is None:
            break
        path.append(word)
    return " ".join(path)


def _forget_stdout() -> None:
    """Python would complain about the broken pipe once more at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _report_bug(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """An exception that nobody expected: its traceback goes to a file, and the user gets a line."""
    with tempfile.NamedTemporaryFile("w", prefix="scribengin-", suffix=".txt", delete=False) as report:
        report.write("".join(traceback.format_exception(kind, error, trace)))
    last = traceback.format_exception_only(kind, error)[-1].strip()
    print_error(f"this is a bug in Scribengin: {last} (its traceback is in {report.name}; -v shows it)")
