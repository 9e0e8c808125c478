"""Logs that are not on this machine's disk, or not only: through proxies, on bookies, on HDFS."""
