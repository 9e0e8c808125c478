"""`scribengin proxy`: writes the logs of a namespace for clients on any machine, until Ctrl-C."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scribengin.base.names import DEFAULT_NAMESPACE
from scribengin_tools.cli.options import NamespaceOption, RegistryOption, connected
from scribengin_tools.rendering.text import note


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("proxy")(proxy)


def proxy(
    host: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="The address to listen at. Default: 127.0.0.1.", show_default=False),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="The port. Default: any that is free.", show_default=False),
    ] = None,
    advertise: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The host by which clients reach it. Default: the address it listens at.",
            show_default=False,
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="How it runs, as YAML: the keys of ProxyConfig.", show_default=False),
    ] = None,
    registry: RegistryOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
) -> None:
    """Write the logs of a namespace for clients on any machine, until Ctrl-C.

    Prints its address once clients find it. Several may serve one namespace: each log is one's at a time. At its end it
    hands its logs over to the others. What is said here goes over what the file says. Clients are not asked who they
    are: to listen at other addresses than the loopback one, say `insecure: true` in the file.
    """
    from scribengin.proxy import ProxyConfig, ProxyServer
    from scribengin_tools.cli.options import ended_by_signals

    given = {"host": host, "port": port, "advertised_host": advertise}
    said = {key: value for key, value in given.items() if value is not None}
    parsed = ProxyConfig.parse({**_said_in(config), **said}, source=str(config or "scribengin proxy"))
    hosts = _hosts_of(namespace) or registry
    with connected(hosts) as session, ProxyServer(namespace, session, parsed) as server:
        ended = ended_by_signals()
        print(server.address, flush=True)
        note(f"it writes logs of {namespace}; Ctrl-C hands them over")
        ended.wait()


def _hosts_of(namespace: str) -> str | None:
    """The registry that a namespace's URI names, if it names one."""
    from scribengin.log import NamespaceUri

    return NamespaceUri.parse(namespace).hosts or None


def _said_in(file: Path | None) -> dict[str, object]:
    from scribengin.base.text.yaml_text import parse_yaml
    from scribengin.errors import ConfigInvalid

    if file is None:
        return {}
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigInvalid(f"{file} cannot be read ({error}): name a file of YAML") from None
    value = parse_yaml(text, source=str(file))
    if not isinstance(value, dict):
        raise ConfigInvalid(f"{file} holds no mapping: write keys of a proxy, as in port: 8490")
    return value
