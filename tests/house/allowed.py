"""What may break a rule, and why. An entry that excuses nothing any more fails the tests, so that this stays short."""

from __future__ import annotations

BLANKET_HANDLERS: dict[str, str] = {
    "scribengin.answering:answered.run": "its thread's outermost loop: whoever waits for it raises it",
    "scribengin.lifetime:run_process": "its process's outermost frame: it ends, and says why",
    "scribengin.log.clients.producer:LogProducer._run": "its thread's outermost loop: fails what waits and later calls",
    "scribengin.log.group:GroupCommit._run": "its thread's outermost loop: fails every waiting future and later call",
    "scribengin.log.listener:Listener._run": "its thread's outermost loop: `error` tells of it",
    "scribengin.log.upkeep:Upkeep._run": "its thread's outermost loop: `upkeep_failure` and a counter tell of it",
    "scribengin.launcher.yarn.fleet:Fleet._run": "its thread's outermost loop: the master ends, and says why",
    "scribengin.launcher.skein.fleet:SkeinFleet._run": "its thread's outermost loop: the master ends, and says why",
    "scribengin.master.chores:Chore._attempt": "its thread's outermost loop: the dataflow's status tells of it",
    "scribengin.worker.executor:Executor._do": "whatever a connector raises is the task's, in its report",
    "scribengin.worker.executor:Executor._run": "its thread's outermost loop: the worker ends, and says why",
    "scribengin_tools.demo.commits:CommitWatch._run": "its thread's outermost loop: `check` raises it in the main one",
    "scribengin_tools.demo.producer:Producer._run": "its thread's outermost loop: `check` raises it in the main one",
    "scribengin_tools.web.watcher:Watcher._run": "its thread's outermost loop: the page shows it, and looks go on",
    "scribengin_registry.election:Election._run": "its thread's outermost loop: standing FAILED and `error` tell of it",
}
"""`module:function` -> why it may catch everything and go on: a thread's outermost loop, where it is recorded, seen."""

TIME_READERS: dict[str, str] = {
    "scribengin/clock.py": "the one place that reads time",
    "registry/scribengin_registry/deadline.py": "the registry stands below scribengin.clock and cannot import it",
}
"""Files that read time themselves, and why."""

NO_EFFECT: dict[str, str] = {
    "scribengin.dataflow.view.DataflowView": "submits, places, reports: one atomic change each, none of it in a round",
    "scribengin.dataflow.numbers": "raises counters, before anything of a dataflow that has ended is deleted",
    "scribengin.connectors.files.local.LocalFileSystem": "called inside DurableFileSystem's effects only",
    "scribengin.connectors.files.local._LocalFile": "the same for NewFile",
    "scribengin.connectors.files.remote.FsspecDurableFileSystem": "the same as LocalFileSystem",
    "scribengin.log.filestore._write_all": "called inside of the effects log.*_write, and nowhere else",
}
"""A module, class or function (`scribengin.dataflow.view.DataflowView`) in the rooms of the round whose changes of the
outside world are no part of a round or its recovery, and why: what administers, before or after any round."""
