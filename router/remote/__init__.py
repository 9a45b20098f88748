"""Stacks behind an address: asked over HTTP, their frames passed on as they come."""

from router.remote.endpoint import endpoint_url
from router.remote.refusal import RemoteRefused
from router.remote.stack import RemoteStack

__all__ = ["RemoteRefused", "RemoteStack", "endpoint_url"]
