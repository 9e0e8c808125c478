"""Whether everything that was written came out, once and in order."""
