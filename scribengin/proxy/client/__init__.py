"""The client's side of a proxy: a namespace whose logs are written and read through proxies."""
