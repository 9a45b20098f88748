"""Remote stacks: called over HTTP, their frames passed on as they arrive."""

from router.remote.endpoint import Endpoint, endpoint_url
from router.remote.http1 import Client, ConnectTimedOut, Response, ResponseLost, Unreachable
from router.remote.stack import RemoteRefused, RemoteStack, may_stream, media_type

__all__ = [
    "Client",
    "ConnectTimedOut",
    "Endpoint",
    "RemoteRefused",
    "RemoteStack",
    "Response",
    "ResponseLost",
    "Unreachable",
    "endpoint_url",
    "may_stream",
    "media_type",
]
