"""What operators run: the `scribengin` command, the demo, the benchmarks."""
