"""What the memory finds by: from settings to an embedder, and in words for the doctor."""

from __future__ import annotations

import asyncio
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contract.errors import CutoverError, EffectFailed
from cutover.wiring.models import KeyMissing
from effects.memory.embeddings import EndpointEmbedder, maker_named
from effects.memory.store import made_in_file
from effects.model import Limits, ModelEntry, Provider, Secret
from router.config import resolve_address

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AsyncExitStack

    from effects.memory.embeddings import Embedder
    from effects.memory.store import VectorCounts
    from router.config import EmbeddingSettings, Settings

_NAME = "embeddings"
_FULL_TEXT = "full text"


async def open_embedder(
    section: EmbeddingSettings, environ: Mapping[str, str], stack: AsyncExitStack
) -> Embedder | None:
    """Open what makes vectors, closed with `stack`; None where nothing is configured.

    Raises `MissingExtra` and `KeyMissing`.
    """
    if section.local:
        local: Embedder = await stack.enter_async_context(_local().open())
        return local
    if not section.base_url:
        return None
    embedder = EndpointEmbedder(
        embedding_entry(section, environ), section.dimensions, shortened=section.shortened
    )
    stack.push_async_callback(embedder.aclose)
    return embedder


def embedding_entry(section: EmbeddingSettings, environ: Mapping[str, str]) -> ModelEntry:
    """Build the entry of an endpoint; raises `KeyMissing`."""
    key = environ.get(section.key_env, "") if section.key_env else ""
    if section.key_env and not key:
        raise KeyMissing(_NAME, section.key_env)
    limits = Limits(connect=section.total_seconds, total=section.total_seconds)
    return ModelEntry(_NAME, Provider(_NAME, section.base_url, Secret(key), limits), section.model)


async def recall_told(settings: Settings, environ: Mapping[str, str]) -> tuple[bool, str]:
    """Say by what the memory finds, and whether that is what is configured."""
    section = settings.embeddings
    if not (section.local or section.base_url):
        return True, f"{_FULL_TEXT}: [embeddings] names no model"
    try:
        made_by = _maker(section, environ)
        where = resolve_address(settings.stores.memory, environ)
        why = await _lack(where)
    except EffectFailed:
        return False, "[stores] memory cannot be asked whether it keeps vectors"
    except CutoverError as error:
        return False, str(error)
    if why:
        return False, f"{_FULL_TEXT}: {why}"
    made = await _made(where)
    lacking = made.lacking(_named(section)) if made else ""
    return True, f"vectors by {made_by}" + (f"; {lacking}" if lacking else "")


def _maker(section: EmbeddingSettings, environ: Mapping[str, str]) -> str:
    if section.local:
        return f"{_local().name}, in this process"
    entry = embedding_entry(section, environ)
    return f"{entry.model}, {section.dimensions} dimensions, {section.base_url}"


async def _lack(where: str) -> str:
    """Say why a store cannot search vectors; "" where it can."""
    scheme = where.partition("://")[0]
    if scheme == "memory":
        return "[stores] memory = 'memory://' keeps no vectors"
    if scheme != "postgresql":
        return ""
    tables: Any = import_module("effects.memory.postgres")
    why: str = await tables.why_no_vectors(where)
    return why


async def _made(where: str) -> VectorCounts | None:
    scheme, _, rest = where.partition("://")
    path = Path(rest.removeprefix("/"))
    if scheme == "postgresql":
        tables: Any = import_module("effects.memory.postgres")
        found: VectorCounts | None = await tables.made_in_database(where)
        return found
    return await asyncio.to_thread(made_in_file, path) if scheme == "sqlite" else None


def _named(section: EmbeddingSettings) -> str:
    """Name who makes the vectors, as the memory does."""
    if section.local:
        return maker_named(_local().name, _local().size)
    return maker_named(section.model, section.dimensions)


def _local() -> Any:
    return import_module("effects.memory.local_embeddings").LocalEmbedder
