"""The ZooKeeper registry: contract, kazoo client, leader election, an embedded server, and the Java that it runs on.

Import from the module that has it: `contract` costs nothing, `kazoo_registry` brings in kazoo, `embedded` starts a JVM.
"""
