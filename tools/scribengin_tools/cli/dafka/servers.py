"""`scribengin dafka tower` and `store`: roles that run until Ctrl-C."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from scribengin.base.names import DEFAULT_NAMESPACE
from scribengin.base.text.counting import many, which
from scribengin_tools.cli.dafka.options import ConfigOption, PubOption, SubOption, configured, towers
from scribengin_tools.cli.options import NamespaceOption, RegistryOption, ended_by_signals, opened_namespace
from scribengin_tools.rendering.text import note

if TYPE_CHECKING:
    from scribengin.dafka import DafkaPartition

_LOOK_S = 0.5
_TOLD_MAX = 5


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command("tower")(tower)
    app.command("store")(store)


def tower(
    sub: Annotated[
        str | None,
        typer.Option(
            "--sub",
            metavar="ADDRESS",
            help="Take beacons here; port *: any that is free. Default: tcp://127.0.0.1:5556.",
            show_default=False,
        ),
    ] = None,
    pub: Annotated[
        str | None,
        typer.Option(
            "--pub", metavar="ADDRESS", help="Tell of others here. Default: tcp://127.0.0.1:5557.", show_default=False
        ),
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Tell producers, consumers and stores where the others are, until Ctrl-C.

    Prints its two addresses, which others are told with --sub and --pub. Several towers may stand side by side. To
    listen at other addresses than the loopback one, name keys in the file (`curve`), or say `insecure: true`.
    """
    parsed = configured(config, tower={"sub_address": sub, "pub_address": pub})
    from scribengin.dafka import DafkaTower

    with DafkaTower(parsed) as running:
        _until_ended(f"{running.sub_address} {running.pub_address}", "it is a tower; Ctrl-C ends it", running.check)


def store(
    prefix: Annotated[
        str, typer.Option("--prefix", metavar="TEXT", help="Its logs are PREFIX/TOPIC/PRODUCER.")
    ] = "dafka",
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Fence whoever writes its logs, as a store that was killed.")
    ] = False,
    config: ConfigOption = None,
    sub: SubOption = None,
    pub: PubOption = None,
    registry: RegistryOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
) -> None:
    """Keep all topics as logs of a namespace, until Ctrl-C.

    Prints the address that it acknowledges from. A record is acknowledged once it is durable. Several stores have a
    prefix each, or a namespace. A log that fails is told of, and tried again; all others go on.
    """
    parsed = configured(config, beacon=towers(sub, pub))
    from scribengin.dafka import DafkaStore
    from scribengin.log import LOGS_AT_ONCE, CommitThread

    with (
        CommitThread(threads_max=LOGS_AT_ONCE) as together,  # one a producer would be too many
        opened_namespace(registry, namespace, commit_thread=together) as logs,
        DafkaStore(logs, parsed, prefix=prefix, take_over=take_over) as running,
    ):
        failing_told: set[DafkaPartition] = set()
        stuck_told: set[DafkaPartition] = set()

        def check() -> None:
            running.check()
            tell_failing(running.failing, failing_told)
            tell_stuck(running.stuck, stuck_told)

        _until_ended(running.address, f"it keeps all topics in {namespace}; Ctrl-C ends it", check)


def tell_failing(failing: Mapping[DafkaPartition, Exception], told: set[DafkaPartition]) -> None:
    """Say what fails of a store that is not `told` yet, which keeps what is. A few of them by name."""
    left = _tell_new({one: f"is refused for now: {error}" for one, error in failing.items()}, told)
    if left:
        note(f"{many(left, 'more log')} failed, too")


def tell_stuck(stuck: Mapping[DafkaPartition, int], told: set[DafkaPartition]) -> None:
    """The same of what stands still, as nobody sends the record that comes next."""
    what = (
        "stands still: nobody sends record {}, and nothing behind it is stored or acknowledged; start the store that "
        "has it, or, if that is lost, the producer anew"
    )
    left = _tell_new({one: what.format(sequence) for one, sequence in stuck.items()}, told)
    if left:
        note(f"{many(left, 'more producer')} {which(left, 'stands', 'stand')} still, too")


def _tell_new(said: Mapping[DafkaPartition, str], told: set[DafkaPartition]) -> int:
    """Say what is not told yet, and how many are left that were not named."""
    told.intersection_update(said)
    new = [partition for partition in said if partition not in told]
    for partition in new[:_TOLD_MAX]:
        note(f"topic {partition.subject}, producer {partition.address} {said[partition]}")
    told.update(new)
    return max(0, len(new) - _TOLD_MAX)


def _until_ended(line: str, said: str, check: Callable[[], None]) -> None:
    """Raises what `check` does."""
    ended = ended_by_signals()
    print(line, flush=True)
    note(said)
    while not ended.wait(_LOOK_S):
        check()
