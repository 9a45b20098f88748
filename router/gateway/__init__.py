"""The model gateway: OpenAI's API for remote stacks, on the model port and the exchange's tape."""

from router.gateway.correlation import WorkerPeers
from router.gateway.endpoint import Gateway, add_gateway

__all__ = ["Gateway", "WorkerPeers", "add_gateway"]
