"""Options that commands share, and what they are turned into: a registry session, a namespace, overrides.
Commands that run until they are told to end hear of it here, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from scribengin.log import CommitThread, LogNamespace
    from scribengin_registry.contract import ProtectedRegistry
import os
import signal
import sys
import threading

REGISTRY_VARIABLE = "SCRIBENGIN_REGISTRY"
"""The registry, as `--registry` has it: `host:port,host:port/path`."""
_CONNECT_TIMEOUT_S = 5.0


def _chosen_registry(context: typer.Context, given: str | None) -> str | None:
    """What stands behind the command wins, then what stands before it, then the variable."""
    before: str | None = context.find_root().params.get("registry")
    source = context.get_parameter_source("registry")
    return given if before is None or (source is not None and source.name == "COMMANDLINE") else before


RegistryOption = Annotated[
    str | None,
    typer.Option(
        "--registry",
        metavar="HOSTS",
        envvar=REGISTRY_VARIABLE,
        help="The ZooKeeper registry, as in host:port,host:port/path.",
        callback=_chosen_registry,
        show_default=False,
    ),
]
NamespaceOption = Annotated[
    str,
    typer.Option(
        "--namespace",
        metavar="PATH",
        help="Where the logs are: a node of the registry, or distributedlog-file://HOSTS/PATH; through proxies, "
        "distributedlog-proxy://HOSTS/PATH.",
    ),
]
InsecureOption = Annotated[
    bool,
    typer.Option(
        "--insecure",
        envvar="SCRIBENGIN_REGISTRY_INSECURE",
        help="Use a registry on other machines without a user, which lets whoever reaches it run code.",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
ForceOption = Annotated[
    bool,
    typer.Option(
        "--force",
        help="Also where a reader might see records of a stream out of order, "
        "or more workers on one machine than its tasks can use.",
    ),
]
SecretsOption = Annotated[bool, typer.Option("--secrets", help="Show what looks like a secret, too.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a value: KEY is dotted as in sinks.out.path, VALUE is YAML. Repeatable.",
        show_default=False,
    ),
]
NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="A dataflow, CHAIN/NAME for one of a chain, or a chain where that makes sense.",
        show_default=False,
    ),
]
NamesArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="NAME...",
        help="Dataflows, CHAIN/NAME for one of a chain, or chains.",
        show_default=False,
    ),
]


@contextmanager
def connected(
    hosts: str | None,
    *,
    checked: bool = True,
    user_wanted: bool = False,
    screen: bool = False,
    half_restored: bool = False,
) -> Iterator[ProtectedRegistry]:
    """A session with the registry at `hosts`; it is `checked` whether others may change anything. With `user_wanted`
    a registry on other machines that is used without a user is refused. It is said when it stops answering, unless
    there is a `screen` that nobody else may write on. One that is `half_restored` is refused where nobody asks for it.
    Raises ConfigInvalid (none was given), RegistryUnreachable, RestoreUnfinished."""
    from scribengin.base.process.openness import refuse_nobodys
    from scribengin.errors import ConfigInvalid
    from scribengin_registry.errors import RegistryError
    from scribengin_registry.opening import connect
    from scribengin_tools.rendering.outages import outages_told
    from scribengin_tools.rendering.text import said_if_slow

    if not hosts or not hosts.strip():
        raise ConfigInvalid(
            f"no registry was given: set {REGISTRY_VARIABLE} or pass --registry, as in 127.0.0.1:2181 "
            "(`scribengin sandbox` starts one and prints its address)"
        )
    try:
        with said_if_slow(f"waiting for the registry at {hosts.strip()}"):
            registry = connect(hosts.strip(), connect_timeout_s=_CONNECT_TIMEOUT_S, half_restored=half_restored)
    except RegistryError as error:
        if type(error) is RegistryError:  # not a server's answer: the address makes no sense
            raise ConfigInvalid(str(error)) from error
        raise
    with registry, nullcontext() if screen else outages_told(registry):
        if user_wanted:
            refuse_nobodys(registry)
        if checked:
            _tell_of_open(registry)
        yield registry


def _tell_of_open(registry: ProtectedRegistry) -> None:
    """Whoever is a user relies on it that nobody else changes anything; what was made before there were users is open
    to all."""
    from scribengin.base.process.openness import openness
    from scribengin_tools.rendering.text import note

    if (found := openness(registry)) is not None:
        note(found)


@contextmanager
def opened_namespace(
    hosts: str | None,
    namespace: str,
    *,
    to_write: str | None = None,
    proxied: bool = False,
    patience_s: float | None = None,
    commit_thread: CommitThread | None = None,
) -> Iterator[LogNamespace]:
    """The log namespace, in the registry at `hosts` unless it names its own; `proxied`: what writes asks its proxies.
    By a URI of proxies, what reads asks them, too. `patience_s`: of a client of proxies. `commit_thread`: as of
    `LogNamespace.open`, where that is asked. Raises NamespaceNotBound and the like, and LogBusy if `to_write` is a log
    that a dataflow writes. Of a log that is not there it is said which one may have been meant."""
    from scribengin.base.names import PROXIED_SCHEME
    from scribengin.errors import LogNotFound
    from scribengin.log import LogNamespace
    from scribengin_tools.rendering.text import said_if_slow

    open_it: Callable[..., LogNamespace] = partial(LogNamespace.open, commit_thread=commit_thread)
    if proxied or namespace.startswith(PROXIED_SCHEME):
        from scribengin.proxy import ProxiedNamespace, ProxyClientConfig

        quiet_handshakes()
        said = {} if patience_s is None else {"patience_s": patience_s}
        reads = "proxy" if namespace.startswith(PROXIED_SCHEME) else "auto"
        client = ProxyClientConfig.parse({"reads": reads, **said}, source="the command line")
        open_it = partial(ProxiedNamespace.open, client=client)
    session = nullcontext(None) if "://" in namespace else connected(hosts)
    with ExitStack() as held:
        registry = held.enter_context(session)
        with said_if_slow(f"opening the namespace {namespace}"):
            opened = held.enter_context(open_it(namespace, registry=registry))
        if to_write is not None:
            from scribengin.operations.log_owners import refuse_log_of_dataflow

            refuse_log_of_dataflow(opened.registry, opened.path, to_write)
        try:
            yield opened
        except LogNotFound as error:
            if error.log is not None:
                from scribengin.base.text.refusals import did_you_mean

                error.args = (f"{error}{did_you_mean(error.log, opened.names())}",)
            raise


def quiet_handshakes() -> None:
    """gRPC writes a line to stderr for each TLS handshake that fails. We say what is wrong ourselves."""
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")


def overrides(pairs: Sequence[str] | None, option: str = "--set ") -> dict[str, str]:
    """`--set` options (or arguments, where `option` is empty) as a mapping. Raises ConfigInvalid for one that is not of
    the form KEY=VALUE."""
    from scribengin.errors import ConfigInvalid

    found: dict[str, str] = {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not (equals and key.strip()):
            raise ConfigInvalid(f"{option}{pair}: write {option}KEY=VALUE, as in {option}workers=2")
        found[key.strip()] = value
    return found


def agree(question: str, *, instead: str = "--yes") -> None:
    """Ask whoever is at the terminal, and go on after a yes. `instead`: the option that spares the question. Ends the
    command after a no, as Ctrl-C does. Raises ConfigInvalid where nobody can answer."""
    from scribengin.errors import ConfigInvalid
    from scribengin_tools.rendering.text import note

    try:
        agreed = typer.confirm(question, err=True)
    except typer.Abort as abort:
        if not isinstance(abort.__context__, EOFError):
            raise
        sys.stderr.write("\n")
        raise ConfigInvalid(f"nobody is here to answer, so nothing was done: say {instead} to be spared") from None
    if not agreed:
        note("nothing was done")
        raise typer.Abort


def given_values(pairs: Sequence[str] | None) -> dict[str, Any]:
    """`--set` options as a mapping, their values read as YAML. Raises ConfigInvalid."""
    from scribengin.base.text.yaml_text import parse_yaml

    return {key: parse_yaml(value, source=f"{key}: the value") for key, value in overrides(pairs).items()}


def said_in(file: Path | None, keys: str) -> dict[str, Any]:
    """The mapping that a file of YAML holds; nothing without a file. `keys`: of what, for whoever wrote something else.
    Raises ConfigInvalid."""
    from scribengin.base.text.yaml_text import parse_yaml
    from scribengin.errors import ConfigInvalid

    if file is None:
        return {}
    value = parse_yaml(file_text(file, "YAML"), source=str(file))
    if not isinstance(value, dict):
        raise ConfigInvalid(f"{file} holds no mapping: write keys {keys}")
    return value


def file_text(file: Path, kind: str) -> str:
    """What a file says. `kind`: of what it is to be, for whoever names another one. Raises ConfigInvalid."""
    from scribengin.errors import ConfigInvalid

    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigInvalid(f"{file} cannot be read ({error}): name a file of {kind}") from None


def ended_by_signals() -> threading.Event:
    """An event that Ctrl-C and SIGTERM set from now on, so that neither interrupts the cleaning up."""
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: ended.set())
    signal.signal(signal.SIGINT, lambda _number, _frame: ended.set())
    return ended
