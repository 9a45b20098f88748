"""The sections of the configuration beside the flows: frozen values with their bounds."""

from router.sections.models import Embeddings, ModelEntry, Provider, Rescue
from router.sections.prompts import Prompts
from router.sections.records import Captures, Log, Metrics, Redact, Tracing
from router.sections.section import Section
from router.sections.stacks import Address, Gateway, Stacks
from router.sections.stores import Pauses, Stores
from router.sections.tools import McpServer, Tools
from router.sections.traffic import (
    Admin,
    BreakerRules,
    Flags,
    Limits,
    Rate,
    Rollout,
    Server,
    Shadow,
)

__all__ = [
    "Address",
    "Admin",
    "BreakerRules",
    "Captures",
    "Embeddings",
    "Flags",
    "Gateway",
    "Limits",
    "Log",
    "McpServer",
    "Metrics",
    "ModelEntry",
    "Pauses",
    "Prompts",
    "Provider",
    "Rate",
    "Redact",
    "Rescue",
    "Rollout",
    "Section",
    "Server",
    "Shadow",
    "Stacks",
    "Stores",
    "Tools",
    "Tracing",
]
