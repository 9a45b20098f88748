"""Remote stacks: called over HTTP, their frames passed on as they arrive."""

from router.remote.endpoint import endpoint_url
from router.remote.stack import RemoteRefused, RemoteStack

__all__ = ["RemoteRefused", "RemoteStack", "endpoint_url"]
