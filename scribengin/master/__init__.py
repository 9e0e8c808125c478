"""The master of a dataflow: `state` decides, the process around it acts."""
