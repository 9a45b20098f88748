"""The gateway: OpenAI's API and the effects of remote stacks, on the exchange's tape."""

from router.gateway.correlation import OpenExchanges
from router.gateway.effects import EffectApi, add_effects
from router.gateway.endpoint import Gateway, add_gateway
from router.gateway.entrance import Entrance
from router.gateway.peers import WorkerPeers
from router.gateway.signposts import add_signposts

__all__ = [
    "EffectApi",
    "Entrance",
    "Gateway",
    "OpenExchanges",
    "WorkerPeers",
    "add_effects",
    "add_gateway",
    "add_signposts",
]
