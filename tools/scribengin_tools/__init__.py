"""What operators run: the `scribengin` command, the monitor, the page."""
