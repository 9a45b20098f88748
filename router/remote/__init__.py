"""Remote stacks: called over HTTP, their frames passed on as they arrive."""

from router.remote.run import RemoteRefused
from router.remote.stack import RemoteStack, endpoint_url

__all__ = ["RemoteRefused", "RemoteStack", "endpoint_url"]
