"""What proxies and their clients decide, without I/O, threads or a clock."""
