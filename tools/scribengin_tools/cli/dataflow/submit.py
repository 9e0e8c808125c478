"""`scribengin explain`, `submit` and `start`: dataflows on their way to running."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from scribengin.base.text.counting import many, which
from scribengin.base.text.masking import masked_text
from scribengin_tools.cli.options import (
    InsecureOption,
    JsonOption,
    NameArgument,
    RegistryOption,
    SetOption,
    connected,
    overrides,
)
from scribengin_tools.rendering.text import console, note, print_json, report, working

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from scribengin.dataflow.config import DataflowConfig
    from scribengin.dataflow.registry.descriptors import DataflowStatus
    from scribengin.dataflow.registry.view import DataflowView
    from scribengin.errors import ScribenginError
    from scribengin_registry.contract import ProtectedRegistry

_BAD_INPUT = 2
_CHECKING = "checking"
FlowArgument = Annotated[
    str,
    typer.Argument(
        metavar="FLOW", help="A descriptor (YAML or JSON), or the directory of one of its name.", show_default=False
    ),
]
WaitOption = Annotated[
    bool,
    typer.Option(
        "--wait", help="Return when every task has committed a round or has nothing to read (exit code 1 if it fails)."
    ),
]


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command("explain")(explain)
    app.command("submit")(submit)
    app.command("start")(start)
    app.command("revive")(revive)


def explain(
    flow: FlowArgument, settings: SetOption = None, as_json: JsonOption = False, registry: RegistryOption = None
) -> None:
    """Check a dataflow, or a chain of them, without running it.

    Shows its sources, streams, tasks and columns, and what is wrong with it: then the exit code is 2. What its file or
    its code shows to be wrong comes first, and alone. Of a chain it draws who feeds whom. Changes nothing.
    """
    from scribengin.dataflow.config import load_config
    from scribengin.operations.chain.config import is_chain
    from scribengin.operations.submit.explain import problems_of_files

    if is_chain(flow):
        _explain_chain(flow, settings, registry, as_json=as_json)
        return
    with _refusing("dataflow", as_json=as_json):
        config = load_config(flow, overrides(settings))
    _refuse_files("dataflow", config.name, problems_of_files(config), as_json=as_json)
    with connected(registry) as session, working(_CHECKING) as progress:
        from scribengin.operations.submit.check import check
        from scribengin_tools.rendering.checking import shown

        found, errors = check(session, config, saying=progress)
    if as_json:
        print_json(found.model_dump(mode="json"))
    else:
        console().print(shown(found, config))
    refuse(errors)
    note(f"no problems; `scribengin submit {flow}` starts it")


def submit(
    flow: FlowArgument,
    settings: SetOption = None,
    wait: WaitOption = False,
    check_cluster: Annotated[
        bool, typer.Option("--preflight/--no-preflight", help="On YARN: check in a container first.")
    ] = True,
    check_first: Annotated[
        bool, typer.Option("--check/--no-check", help="Check the transformation first; that takes Spark some seconds.")
    ] = True,
    insecure: InsecureOption = False,
    registry: RegistryOption = None,
) -> None:
    """Check a dataflow, or a chain of them, as `explain` does, and start it.

    What `explain` finds wrong is refused, with exit code 2; then nothing was created. One with `launcher: yarn` has its
    Python environment packed and uploaded, unless that was done before or it names one, and the cluster is checked.

    A chain's dataflows are started in order. If that was cut short, the same command does the rest.
    """
    from scribengin.dataflow.config import load_config
    from scribengin.dataflow.registry.view import DataflowView
    from scribengin.launcher.local.launcher import scribengin_home
    from scribengin.operations.chain.config import is_chain
    from scribengin.operations.names import refuse_name_of_chain
    from scribengin.operations.submit.explain import problems_of_files

    if is_chain(flow):
        connecting = partial(connected, registry, user_wanted=not insecure)
        _submit_chain(flow, settings, connecting, wait=wait, check_cluster=check_cluster, check_first=check_first)
        return
    config = load_config(flow, overrides(settings))
    if config.launcher != "local":
        _refuse_without_cluster()
    refuse(problems_of_files(config, code=check_first))
    with connected(registry, user_wanted=not insecure) as session:
        with working(_CHECKING) as progress:
            from scribengin.operations.lifecycle import author
            from scribengin.operations.submit.check import check
            from scribengin.operations.submit.submit import submit as start_dataflow

            found, errors = check(session, config, transformation=check_first, saying=progress)
        refuse(errors)
        tell_secrets(config)
        refuse_name_of_chain(session, config.name)
        if config.launcher != "local":
            config = _made_ready(session.hosts, config, check_cluster=check_cluster)
        start_dataflow(session, config, scribengin_home(), author=author())
        print(f"submitted dataflow '{config.name}' ({many(len(found.tasks), 'task')})", flush=True)
        follow(DataflowView(session, config.name), wait=wait)


def _refuse_files(kind: str, name: str | None, wrong: Sequence[ScribenginError], *, as_json: bool) -> None:
    """What files show is told at once: who waits for a registry and for Spark waits long."""
    if wrong and as_json:
        print_json({kind: name, "problems": [masked_text(str(error)) for error in wrong]})
    refuse(wrong)


@contextmanager
def _refusing(kind: str, *, as_json: bool) -> Iterator[None]:
    """A descriptor that cannot be understood has no name that is sure."""
    from scribengin.errors import ConfigInvalid

    try:
        yield
    except ConfigInvalid as error:
        _refuse_files(kind, None, [error], as_json=as_json)


def _explain_chain(flow: str, settings: list[str] | None, registry: str | None, *, as_json: bool) -> None:
    from scribengin.operations.chain.check import check_chain, problems_of_chain_files
    from scribengin.operations.chain.config import load_chain
    from scribengin_tools.rendering.chain_checking import shown

    with _refusing("chain", as_json=as_json):
        chain = load_chain(flow, overrides(settings))
    _refuse_files("chain", chain.name, problems_of_chain_files(chain), as_json=as_json)
    with connected(registry) as session, working(_CHECKING) as progress:
        found = check_chain(session, chain, saying=progress)
    if as_json:
        print_json(found.to_json())
    else:
        console().print(shown(found))
    refuse(found.errors)
    note(f"no problems; `scribengin submit {flow}` starts it")


def _submit_chain(
    flow: str,
    settings: list[str] | None,
    connecting: Callable[[], AbstractContextManager[ProtectedRegistry]],
    *,
    wait: bool,
    check_cluster: bool,
    check_first: bool,
) -> None:
    from scribengin.dataflow.registry.view import DataflowView
    from scribengin.launcher.local.launcher import scribengin_home
    from scribengin.operations.chain.check import check_chain, problems_of_chain_files
    from scribengin.operations.chain.config import load_chain
    from scribengin.operations.chain.submit import submit_chain
    from scribengin.operations.lifecycle import author

    chain = load_chain(flow, overrides(settings))
    refuse(problems_of_chain_files(chain, code=check_first))
    with connecting() as session:
        with working(_CHECKING) as progress:
            found = check_chain(session, chain, transformations=check_first, saying=progress)
        refuse(found.errors)
        for config in chain.dataflows.values():
            tell_secrets(config)
        flows = {
            key: _made_ready(session.hosts, config, check_cluster=check_cluster)
            if config.launcher != "local"
            else config
            for key, config in chain.dataflows.items()
        }
        home = scribengin_home()
        done = submit_chain(
            session, chain, home, author=author(), starting=lambda name: note(f"starting '{name}'"), ready=flows
        )
        print(f"submitted chain '{chain.name}' ({', '.join(member.key for member in done.members)})", flush=True)
        if not wait:
            note(f"`scribengin status {chain.name}` shows what becomes of it")
            return
        for member in done.members:
            follow(DataflowView(session, member.dataflow), wait=True)


def start(name: NameArgument, wait: WaitOption = False, registry: RegistryOption = None) -> None:
    """Start a dataflow or a chain again that was stopped, was killed or has failed. It goes on where it was."""
    from scribengin.dataflow.registry.view import DataflowView
    from scribengin.launcher.local.launcher import scribengin_home
    from scribengin.operations.chain.lifecycle import start_chain
    from scribengin.operations.lifecycle import start_again
    from scribengin.operations.names import chain_of, view_of

    with connected(registry) as session:
        if chain := chain_of(session, name):
            done = start_chain(session, chain, scribengin_home())
            for key, state in done.others.items():
                print(f"dataflow '{name}/{key}' was {state} already")
            print(f"started chain '{name}' ({', '.join(done.started)})", flush=True)
            for member in chain.members if wait else ():
                follow(DataflowView(session, member.dataflow), wait=True)
            return
        view = view_of(session, name)
        start_again(view, scribengin_home())
        print(f"started dataflow '{name}'", flush=True)
        follow(view, wait=wait)


def revive(registry: RegistryOption = None) -> None:
    """Launch a master for each dataflow of this machine that is to run and has lost all its masters.

    As after a reboot. What was stopped or killed, or has ended, stays so. Nothing is done where a master is there, so
    it can be run again and again: deploy/systemd has a timer that does.
    """
    from scribengin.launcher.local.launcher import scribengin_home
    from scribengin.operations.lifecycle import revive as launch_masters

    with connected(registry) as session:
        revived = launch_masters(session, scribengin_home())
    for name in revived:
        print(f"launched a master for dataflow '{name}', which had none")
    if not revived:
        note("every dataflow of this machine that is to run has a master")


def _refuse_without_cluster() -> None:
    """Raises ConfigInvalid: nothing says which cluster it is."""
    from scribengin.base.jvm import configuration_directory

    configuration_directory()


def _made_ready(hosts: str, config: DataflowConfig, *, check_cluster: bool) -> DataflowConfig:
    """The dataflow as it can be submitted to YARN. Raises ClusterNotReady, and what uploading raises."""
    from scribengin.launcher.local.launcher import scribengin_home
    from scribengin.operations.submit.preflight import preflight, refuse_unless_ready
    from scribengin.operations.submit.shipping import with_environment
    from scribengin_tools.rendering.yarn import shown

    home = scribengin_home()
    config = with_environment(config, home, note)
    if check_cluster:
        report = preflight(hosts, config, home, note)
        console(stderr=True).print(shown(report))
        refuse_unless_ready(report)
    return config


def tell_secrets(config: DataflowConfig) -> None:
    """Say what others will be able to read that looks like a secret."""
    from scribengin.operations.submit.shipping import secrets_in_the_clear

    for key in secrets_in_the_clear(config):
        where = "the registry and YARN" if key.startswith("yarn.environment.") else "the registry"
        note(f"{config.name}: {key} stands in the clear in {where}, where others read it: write ${{file:PATH}} instead")


def refuse(errors: Sequence[ScribenginError]) -> None:
    """End with all that is wrong, if anything is."""
    for error in errors:
        report(error)
    if errors:
        raise typer.Exit(_BAD_INPUT)


def follow(view: DataflowView, *, wait: bool) -> None:
    """Say how to see what becomes of a dataflow that was started, or wait until it runs."""
    from scribengin.dataflow.registry.descriptors import FINAL_STATES
    from scribengin.operations.lifecycle import ended_badly, has_begun, wait_for_state

    name = view.dataflow
    for sink, config in view.config_in_force().value.sinks.items():
        if late := config.seen_late():
            note(f"{sink}: {late}; `scribengin stop {name}` has all of them appear")
    if not wait:
        note(f"`scribengin status {name}` shows what becomes of it")
        return
    told: set[str] = set()
    left = f"'{name}' goes on without you; `scribengin status {name}` shows what becomes of it"
    with working(f"waiting until '{name}' runs", left=left) as progress:

        def seen(status: DataflowStatus) -> None:
            for trouble in (status.error, status.config_error):
                if trouble is not None and trouble not in told:
                    told.add(trouble)
                    note(f"{name}: {trouble}")  # it may never run for that, and whoever waits would never know
            progress(f"waiting until '{name}' runs: {progress_of(status)}")

        status = wait_for_state(view, lambda s: has_begun(s) or s.state in FINAL_STATES, seen, asked="running")
    if status.state in ("failed", "killed"):
        raise ended_badly(status)
    print(f"dataflow '{name}' is {status.state}")


def progress_of(status: DataflowStatus) -> str:
    """The state, how many workers there are, and how many tasks have none, in a few words. A worker is there before
    its Spark is, and gets no task until then. Who waits after that waits for the first rounds."""
    workers, waiting = len(status.workers), len(status.tasks_unassigned)
    parts: list[str] = [status.state]
    if workers:
        starting = waiting and status.state == "starting"  # once it runs, some of them may have it
        parts.append(many(workers, "worker") + (f" {which(workers, 'starts', 'start')} Spark" if starting else ""))
    if waiting:
        parts.append(f"{many(waiting, 'task')} {which(waiting, 'waits', 'wait')} for a worker")
    if status.state == "running" and workers and not waiting:
        parts.append("first rounds are under way")
    return ", ".join(parts)
