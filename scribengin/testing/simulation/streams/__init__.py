"""What simulated dataflows read and write: streams in memory, logs on a disk in memory, a sink that somebody gives."""
