"""The models on offer."""

import msgspec

CHAT = ("sim-chat", "gpt-4.1", "gpt-4.1-mini", "gpt-4o", "gpt-4o-mini", "deepseek-reasoner")
EMBEDDING = ("sim-embed", "text-embedding-3-small", "text-embedding-3-large")
ANY = "sim-"
CREATED = 1_750_000_000


def known(name: str) -> bool:
    """Whether a model is on offer: those listed, and whatever begins with `sim-`."""
    return name.startswith(ANY) or name in CHAT or name in EMBEDDING


def catalogue() -> bytes:
    """List the models as OpenAI does."""
    data = [
        {"id": name, "object": "model", "created": CREATED, "owned_by": "simulator"}
        for name in CHAT + EMBEDDING
    ]
    return msgspec.json.encode({"object": "list", "data": data})
