"""Real servers for tests and benchmarks, as processes from jars: `kafka`, `bookkeeper`, `hdfs`, `yarn`, and several
ZooKeepers in `zookeeper` (one alone is `scribengin_registry.embedded`). Some can run in `containers` instead.

Import from the module that has it. A new system is a lock file in `locks` and a module that says how it is started,
is known to answer, and is stopped: `java_server` has what all of them share.
"""
