"""What may break a rule, and why. An entry that excuses nothing any more fails the tests, so that this stays short."""

from __future__ import annotations

BLANKET_HANDLERS: dict[str, str] = {
    "scribengin.base.threads:call_with_limit.run": "its thread's outermost loop: whoever waits for it raises it",
    "scribengin.base.process.lifetime:run_process": "its process's outermost frame: it ends, and says why",
    "scribengin.log.clients.producer:LogProducer._run": "its thread's outermost loop: fails what waits and comes",
    "scribengin.log.write.group_commit:GroupCommit._begin_commit": "its thread's outermost loop: fails every future",
    "scribengin.log.write.group_commit:GroupCommit._end_commit": "its thread's outermost loop: fails every future",
    "scribengin.log.write.group_commit:GroupCommit.submit_bulk": "the future raises what ends a batch in its middle",
    "scribengin.proxy.client.sending:LogSender._run": "its thread's outermost loop: fails every future",
    "scribengin.log.metadata.listener:Listener._run": "its thread's outermost loop: `error` tells of it",
    "scribengin.base.threads:BackgroundWork._run": "its thread's outermost loop: `maintenance_failure` tells of it",
    "scribengin.dafka.role:Role._run": "its thread's outermost loop: every later call raises it",
    "scribengin.dafka.tower:DafkaTower._run": "its thread's outermost loop: `failure` tells of it",
    "scribengin.launcher.yarn.application_master.fleet:Fleet._run": "its thread's outermost loop: the master ends",
    "scribengin.launcher.yarn.security:TokenRenewal._run": "its thread's outermost loop: it is told, and tried again",
    "scribengin.launcher.skein.fleet:SkeinFleet._run": "its thread's outermost loop: the master ends, and says why",
    "scribengin.master.jobs:Job._attempt": "its thread's outermost loop: the dataflow's status tells of it",
    "scribengin.spark.transform.watched:_OfValues.__call__": "whatever their code raises is what it looks for",
    "scribengin.spark.transform.watched:_Watched._pieces": "the same, in halves down to the row that it is",
    "scribengin.testing.simulation.scheduler:Scheduler._run": "a thread's outermost loop: its process is told of it",
    "scribengin.worker.executor:Executor._do": "whatever a connector raises is the task's, in its report",
    "scribengin.worker.executor:Executor._run": "its thread's outermost loop: the worker ends, and says why",
    "scribengin_dev.harness.commits:CommitWatch._run": "its thread's outermost loop: `check` raises it in the main one",
    "scribengin_dev.harness.producer:Producer._run": "its thread's outermost loop: `check` raises it in the main one",
    "scribengin.testing.memory.registry:MemoryRegistry._run": "its thread's outermost loop: logs it, as kazoo does",
    "scribengin_tools.web.model.watcher:Watcher._run": "its thread's outermost loop: the page shows it",
    "scribengin_registry.election:Election._run": "its thread's outermost loop: standing FAILED and `error` tell of it",
}
"""`module:function` -> why it may catch everything and go on: a thread's outermost loop, where it is recorded, seen."""

TIME_READERS: dict[str, str] = {
    "scribengin/base/clock.py": "the one place that reads time",
    "registry/scribengin_registry/client/deadline.py": "the registry stands below scribengin.base.clock",
    "scribengin/testing/simulation/takeover.py": "hands threads that are not simulated the machine's time",
}
"""Files that read time themselves, and why."""

NO_EFFECT: dict[str, str] = {
    "scribengin.dafka.curve.keys.make_key_file": "writes a key for a person, before anything of the network starts",
    "scribengin.dafka.curve.keys._read": "opens to read, with the flags that `open` gives for that",
    "scribengin.dataflow.registry.view.DataflowView": "submits, places, reports: nothing of a round",
    "scribengin.dataflow.registry.view.new_master_name": "takes the next number, before there is a master of it",
    "scribengin.dataflow.registry.numbers": "raises counters, before anything of a dataflow that has ended is deleted",
    "scribengin.dataflow.round.commit_logs.TaskCommitLogs._send": "called inside the failpoints of what is sent only",
    "scribengin.filesystems.local.LocalFileSystem": "called inside DurableFileSystem's failpoints only",
    "scribengin.filesystems.local._LocalFile": "the same for NewFile",
    "scribengin.filesystems.fsspec.FsspecDurableFileSystem": "the same as LocalFileSystem",
    "scribengin.log.store.bookkeeper.nodes.SegmentNodes": "called inside the failpoints of its store only",
    "scribengin.log.store.file._write_all": "called inside of the failpoints log.*_write, and nowhere else",
    "scribengin.log.store.file._BesideFile._open": "the same",
}
"""A module, class or function (`scribengin.dataflow.registry.view.DataflowView`) in the rooms of the round whose
changes of the outside world are no part of a round or its recovery, and why: what administers, before or after any
round."""

INSIDE_LOG: dict[str, str] = {
    "scribengin.proxy": "sends entries as they stand on disk, and is a log's writer and store on another machine",
    "scribengin.testing": "forges entries and segments byte by byte, and keeps them in a store of its own",
    "scribengin_dev.harness.machine_place": "tells containers of its machines where the client of its bookies is",
    "scribengin_dev.bench.remote.places": "tells the processes of a benchmark where the client of its bookies is",
    "scribengin_tools.logs.benchmark": "takes the mark of its own namespace away, and measures the checksum",
}
"""A module or room outside of the log store that sees more of it than its face, and why."""

INSIDE_REGISTRY: dict[str, str] = {
    "scribengin.testing.memory": "the registry in memory is a client like the one on ZooKeeper, of the same parts",
}
"""A room outside of the registry that sees more of it than its top modules and `java`, and why."""

PROCESSES_SEEN: dict[str, str] = {
    "scribengin_dev.harness.idle_workers": "many real masters in one process, and workers that do as real ones say",
}
"""A module outside of `testing` and the tests that imports `master` or `worker`, and why. Nothing that ships does."""

UPWARD: dict[str, tuple[str, str]] = {}
"""A module, the room above it that it imports all the same, and why."""

# Loops of their own around VersionConflict -> why `win_race` is not for them.
OWN_RACES: dict[str, str] = {
    "scribengin.log.metadata.segments:LogMetadata.change": "failures count only as long as the head stands still",
    "scribengin.log.metadata.lifecycle:finish_deletion": "every pass deletes a part, however many there are",
    "scribengin.connectors.files.sink.merge:StreamMerge.run": "every pass is a merge of its own, however many are due",
}

# Modules of libraries that print -> why.
PRINTERS: dict[str, str] = {
    "scribengin.base.diagnostics": "the one place where log lines become output",
    "scribengin.launcher.yarn.application_master.container": "an entry point: what YARN starts in a container",
    "scribengin.launcher.yarn.application_master.preflight": "what YARN starts: the report goes where its logs go",
    "scribengin.operations.submit.preflight_checks": "an entry point: what a preflight starts in a container",
}

# Folders of more than twelve modules and folders -> why.
FULL_FOLDERS: dict[str, str] = {
    "scribengin": "the rooms of the house themselves",
}

# Tests in the folder of a room that they have nothing of -> why.
TESTS_ELSEWHERE: dict[str, str] = {
    "tests/contract/connectors/test_kafka_seam.py": "what connectors.kafka expects of its client, as testing has it",
    "tests/unit/base/test_process_imports.py": "what processes of several rooms import when they start",
    "tests/unit/dev/test_servers_browser.py": "the browser of the tests' own servers, which nothing ships",
}

# Helpers that stand elsewhere than with the tests of the one folder that uses them -> why.
HELPERS_ELSEWHERE: dict[str, str] = {
    "tests/scenario/dafka_splits.py": "a part of dafka_world, beside which it stands; that is for both folders",
}
