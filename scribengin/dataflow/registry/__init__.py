"""A dataflow's nodes in the registry."""
