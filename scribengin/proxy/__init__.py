"""Proxies: writers and readers of logs for many clients on many machines. See docs/internals/proxies.md."""

from scribengin.proxy.client.elsewhere import NamespaceElsewhere
from scribengin.proxy.client.namespace import ProxiedNamespace
from scribengin.proxy.client.writer import ProxiedWriter
from scribengin.proxy.config import AccessConfig, CallerConfig, ProxyClientConfig, ProxyConfig, RateConfig, TlsConfig
from scribengin.proxy.server import ProxyServer

__all__ = [
    "AccessConfig",
    "CallerConfig",
    "NamespaceElsewhere",
    "ProxiedNamespace",
    "ProxiedWriter",
    "ProxyClientConfig",
    "ProxyConfig",
    "ProxyServer",
    "RateConfig",
    "TlsConfig",
]
