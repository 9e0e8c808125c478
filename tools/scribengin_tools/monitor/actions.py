"""What the monitor does with the registry: look, scale, pause, fetch a log. Each may take a while, or raise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.base.text.masking import masked_text
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.registry.view import DataflowView, dataflow_names
from scribengin.monitoring.overview import DataflowOverview, overviews, unreadable_overview
from scribengin.operations.chain.registry import memberships
from scribengin.operations.editing import edit_config, refuse_unless_led
from scribengin.operations.lifecycle import set_desired_state
from scribengin.operations.names import chain_of, view_of
from scribengin_registry.contract import Registry
from scribengin_tools.output.local import LINES_SHOWN, outputs_of, text_of


@dataclass(frozen=True, slots=True)
class MonitorActions:
    """The dataflows of these names (a chain's name means all of its dataflows), or all of a registry."""

    registry: Registry
    names: Sequence[str] = ()
    clock: Clock = SYSTEM_CLOCK

    def look(self) -> tuple[DataflowOverview, ...]:
        """How they are; those of a chain in its order. What is damaged is there as that.

        Raises DataflowNotFound, RegistryUnreachable.
        """
        damaged: dict[str, str] = {}
        chains = memberships(self.registry, damaged)
        places = {flow: f"{chain}/{member.key}" for flow, (chain, member) in chains.items()}
        names = [name for given in self.names for name in self._meant(given)]
        wanted = bool(names or not self.names)  # of a chain whose submission was cut short, there may be none: not all
        found = {one.dataflow: one for one in overviews(self.registry, self.clock.now_ms(), names)} if wanted else {}
        chained = [found[flow].model_copy(update={"chain": place}) for flow, place in places.items() if flow in found]
        alone = [one for flow, one in found.items() if flow not in places]
        unreadable = [unreadable_overview(f"chain {chain}", why) for chain, why in damaged.items() if not self.names]
        return (*chained, *alone, *unreadable)

    def scale(self, name: str, by: int) -> str:
        """So many more workers, or fewer, but never less than none; says what was done. Raises DataflowBusy."""
        counts: list[int] = []

        def scaled(config: DataflowConfig) -> DataflowConfig:
            counts[:] = [config.workers, max(0, config.workers + by)]
            return config.model_copy(update={"workers": counts[1]})

        view = DataflowView(self.registry, name)
        refuse_unless_led(view)
        edit_config(view, scaled)
        before, after = counts
        return f"{name}: workers {before} -> {after}" if before != after else f"{name} has no workers already"

    def pause_or_resume(self, name: str) -> str:
        """The one that is possible; says which. Raises DataflowBusy."""
        view = DataflowView(self.registry, name)
        refuse_unless_led(view)
        wanted = view.config_to_edit().value.desired_state
        set_desired_state(view, "running" if wanted == "paused" else "paused")
        return f"{name} goes on" if wanted == "paused" else f"{name} pauses: its tasks commit, then wait"

    def _meant(self, name: str) -> list[str]:
        chain = chain_of(self.registry, name)
        if chain is not None:
            there = set(dataflow_names(self.registry))  # of one whose submission was cut short, not all are
            return [member.dataflow for member in chain.members if member.dataflow in there]
        return [view_of(self.registry, name).dataflow]

    def log(self, name: str, process: str | None) -> str:
        """The last lines that a worker or master wrote, or all of them; without secrets, as on the web page."""
        since_ms = DataflowView(self.registry, name).status().submitted_ms
        outputs = outputs_of(self.registry.hosts, name, since_ms)
        found = [output for output in outputs if process in (None, output.container.name)]
        if not found:
            return f"no output of {process or name} is on this machine: see `scribengin logs {name}`"
        return "\n".join(f"== {output.heading}\n{masked_text(text_of(output, LINES_SHOWN))}" for output in found)
