"""The tape, served: what services and SDKs ask for comes here, and goes on the tape of its run."""

from router.gateway.app import Gateway, GatewaySettings
from router.gateway.providers import Provider, open_connections

__all__ = ["Gateway", "GatewaySettings", "Provider", "open_connections"]
