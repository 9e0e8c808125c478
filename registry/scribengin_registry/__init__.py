"""The ZooKeeper registry: contract, kazoo client, leader election, an embedded server, and the Java that it runs on.

Import from the module that has it: `contract` costs nothing, `opening` connects, `embedded` starts a JVM.
"""
