"""`scribengin web`: the same as the monitor, and the config, in a browser."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from scribengin_tools.cli.options import RegistryOption, connected
from scribengin_tools.rendering.text import note


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("web")(web)


def web(
    host: Annotated[str, typer.Option(help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0: any that is free.")] = 8480,
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Holds the token that lets people in. Default: $SCRIBENGIN_WEB_TOKEN, else a new one is printed.",
            show_default=False,
        ),
    ] = None,
    write: Annotated[bool, typer.Option("--write", help="Let the page edit configs, pause, resume, scale.")] = False,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A further name that browsers call this server by. Repeatable."),
    ] = None,
    registry: RegistryOption = None,
) -> None:
    """Serve a web page of all dataflows: their graph, time lines, workers and tasks, configs and history.

    It is read-only unless you say --write, and it ends with Ctrl-C. It speaks plain HTTP: on other addresses than the
    loopback one, put a proxy with TLS before it.
    """
    from scribengin.errors import ConfigInvalid

    try:
        from scribengin_tools.web.server import WebConfig, WebServer, token_from
    except ModuleNotFoundError as error:
        raise ConfigInvalid(f"`scribengin web` needs {error.name}: pip install 'scribengin[web]'") from None
    from scribengin_tools.cli.options import ended_by_signals

    token, warning = token_from(token_file, os.environ)
    if warning:
        note(warning)
    config = WebConfig(host=host, port=port, token=token, allow_hosts=tuple(allow_host or ()), write=write)
    with connected(registry) as session, WebServer(session, config) as server:
        ended = ended_by_signals()
        print(server.link if token is None else server.url, flush=True)
        note("people can edit and scale through it" if write else "it is read-only; --write lets people edit")
        ended.wait()
