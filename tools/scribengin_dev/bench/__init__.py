"""The benchmarks: what the log store and a dataflow do here, beside a peer or a limit measured in the same run."""
