"""Chains: several dataflows, and the logs and topics between them, as one thing that is submitted and operated."""
