"""`scribengin proxy`: writes the logs of a namespace for clients on any machine, until Ctrl-C."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scribengin.base.names import DEFAULT_NAMESPACE
from scribengin_tools.cli.options import NamespaceOption, RegistryOption, connected, quiet_handshakes, said_in
from scribengin_tools.rendering.text import note

CertificateOption = Annotated[
    str | None,
    typer.Option(
        "--tls-certificate",
        metavar="FILE",
        help="Its certificate, as PEM: what clients send is encrypted. Takes --tls-key.",
        show_default=False,
    ),
]
KeyOption = Annotated[
    str | None,
    typer.Option("--tls-key", metavar="FILE", help="The key of its certificate, as PEM.", show_default=False),
]
AccessOption = Annotated[
    Path | None,
    typer.Option(
        "--access",
        metavar="FILE",
        help="Who may ask it for what, as YAML: callers, their tokens, and their rights to logs.",
        show_default=False,
    ),
]
InsecureOption = Annotated[
    bool,
    typer.Option("--insecure", help="Listen to other machines without TLS or without asking who they are."),
]


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
    tls_certificate: CertificateOption = None,
    tls_key: KeyOption = None,
    access: AccessOption = None,
    insecure: InsecureOption = False,
    registry: RegistryOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
) -> None:
    """Write the logs of a namespace for clients on any machine, until Ctrl-C.

    Prints its address once clients find it. Several may serve one namespace: each log is one's at a time. At its end it
    hands its logs over to the others. What is said here goes over what the file says. Other addresses than the
    loopback one take a certificate, and --access, or --insecure.
    """
    from scribengin.proxy import ProxyConfig, ProxyServer
    from scribengin_tools.cli.options import ended_by_signals

    tls = _given(certificate_file=tls_certificate, key_file=tls_key)
    said = _given(
        host=host,
        port=port,
        advertised_host=advertise,
        tls=tls or None,
        access=None if access is None else said_in(access, "of who may ask, as in callers: {NAME: {...}}"),
        insecure=insecure or None,
    )
    source = " and ".join(str(file) for file in (config, access) if file is not None) or "scribengin proxy"
    parsed = ProxyConfig.parse({**said_in(config, "of a proxy, as in port: 8490"), **said}, source=source)
    quiet_handshakes()
    hosts = _hosts_of(namespace) or registry
    with connected(hosts) as session, ProxyServer(namespace, session, parsed) as server:
        ended = ended_by_signals()
        print(server.address, flush=True)
        note(f"it writes logs of {namespace}; Ctrl-C hands them over")
        ended.wait()


def _given(**options: object) -> dict[str, object]:
    """What was said of these."""
    return {key: value for key, value in options.items() if value is not None}


def _hosts_of(namespace: str) -> str | None:
    """The registry that a namespace's URI names, if it names one."""
    from scribengin.log import NamespaceUri

    return NamespaceUri.parse(namespace).hosts or None
