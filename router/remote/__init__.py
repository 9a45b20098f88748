"""Remote stacks: called over HTTP, their frames passed on as they arrive."""

from router.remote.endpoint import endpoint_url
from router.remote.run import RemoteRefused
from router.remote.stack import RemoteStack

__all__ = ["RemoteRefused", "RemoteStack", "endpoint_url"]
