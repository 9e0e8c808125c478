"""Proxies: writers and readers of logs for many clients on many machines. See docs/internals/proxies.md."""

from scribengin.proxy.client.namespace import ProxiedNamespace
from scribengin.proxy.client.writer import ProxiedWriter
from scribengin.proxy.config import ProxyClientConfig, ProxyConfig, RateConfig
from scribengin.proxy.server import ProxyServer

__all__ = ["ProxiedNamespace", "ProxiedWriter", "ProxyClientConfig", "ProxyConfig", "ProxyServer", "RateConfig"]
