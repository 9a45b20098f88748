"""The model gateway: OpenAI's API for remote stacks, on the model port and the exchange's tape."""

from router.gateway.endpoint import Gateway, add_gateway
from router.gateway.peers import WorkerPeers

__all__ = ["Gateway", "WorkerPeers", "add_gateway"]
