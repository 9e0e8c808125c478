"""What demo, soak and benchmarks run dataflows with."""
