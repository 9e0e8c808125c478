"""From a config to a dataflow that runs: what is checked, shipped and written."""
