"""The model gateway: OpenAI's wire for stacks elsewhere, on our port and the exchange's tape."""

from router.gateway.document import add_gateway
from router.gateway.endpoint import Gateway
from router.gateway.neighbours import Neighbours

__all__ = ["Gateway", "Neighbours", "add_gateway"]
