"""Services behind addresses: the flows they serve, and how one of them is a stack."""

from router.services.flow import ServiceFlow, ServiceRequest
from router.services.stack import Address, Service, open_session

__all__ = ["Address", "Service", "ServiceFlow", "ServiceRequest", "open_session"]
