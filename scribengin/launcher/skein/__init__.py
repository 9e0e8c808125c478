"""Skein: a dataflow as a skein application, for clusters that are run that way."""
