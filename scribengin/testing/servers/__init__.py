"""Real servers for tests and benchmarks, as processes from jars: `kafka`, `bookkeeper`. (ZooKeeper: `embedded`.)

Import from the module that has it. A new system is a lock file in `locks` and a module that says how it is started,
is known to answer, and is stopped: `java_server` has what all of them share.
"""
