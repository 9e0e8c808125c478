"""The registry on ZooKeeper, through kazoo."""
