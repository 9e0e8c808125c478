"""The side of a proxy that writers on other machines ask: its machine's store, call by call."""
