"""Models: which provider serves a model id, one HTTP client per provider, and token counts."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final, Self

import httpx2
import msgspec
import openai
import tiktoken

from cutover import TapeTransport
from cutover.errors import StackFailed
from rules.models import estimate

OPENAI: Final = "https://api.openai.com/v1"
"""Where models are asked if nothing names another provider."""
CONNECT_SECONDS: Final = 5.0
SILENCE_SECONDS: Final = 60.0
"""How long a provider may send nothing within a response."""
RETRIES: Final = 2
_FROM_ENVIRONMENT: Final = "env:"
_UNUSED: Final = "unused"  # SDKs refuse an empty key; servers without authentication ignore it


class ModelEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A model as configured: where it is served, under which name, within which limits.

    `id` is what requests name; "*" stands for every id without an entry of its own. `base_url` ""
    is `OPENAI_BASE_URL`, or else OpenAI's. `key` is a literal or "env:NAME" and never printed; ""
    is for servers without authentication. `name` "" is the id.
    """

    id: str
    base_url: str = ""
    key: str = "env:OPENAI_API_KEY"
    name: str = ""
    tools: bool = True

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"ModelEntry({fields})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [(name, getattr(self, name)) for name in self.__struct_fields__ if name != "key"]

    def resolved(self, model_id: str) -> ModelEntry:
        """Return the entry for one request, with address, key and name filled in.

        Raises `StackFailed` `model_auth` where the key's environment variable is not set.
        """
        url = self.base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI
        return msgspec.structs.replace(
            self,
            id=model_id,
            base_url=url.rstrip("/"),
            key=_key(self.key) or _UNUSED,
            name=self.name or model_id,
        )


DEFAULTS: Final = (ModelEntry("*"),)
"""Every id is served under its own name by `OPENAI_BASE_URL` with `OPENAI_API_KEY`."""


class Models:
    """The registry of models, with the clients of their providers.

    Open it with `async with`; the clients close with it. They are cached by base URL and key, so
    entries that `swap` leaves unchanged keep their connections, and requests under way keep theirs.
    """

    def __init__(self, entries: Sequence[ModelEntry] = DEFAULTS) -> None:
        self._entries: dict[str, ModelEntry] = {}
        self._http: dict[tuple[str, str], httpx2.AsyncClient] = {}
        self._openai: dict[tuple[str, str], openai.AsyncOpenAI] = {}
        self.swap(entries)

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(load_encodings)
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self._http.values():
            await client.aclose()

    def swap(self, entries: Sequence[ModelEntry]) -> None:
        """Replace the whole registry; the next request sees it."""
        self._entries = {entry.id: entry for entry in entries}

    def find(self, model_id: str) -> ModelEntry:
        """Return the resolved entry of a model id.

        Raises `StackFailed` `unknown_model`, or `model_auth` where its key is not set.
        """
        entry = self._entries.get(model_id) or self._entries.get("*")
        if entry is None:
            known = ", ".join(map(repr, self._entries))
            raise StackFailed(
                code="unknown_model",
                blame="configuration",
                detail=f"no entry for {model_id!r}; there are {known}",
            )
        return entry.resolved(model_id)

    def http_client(self, entry: ModelEntry) -> httpx2.AsyncClient:
        """Return the HTTP client of a resolved entry's provider; its requests go on the tape."""
        provider = (entry.base_url, entry.key)
        if provider not in self._http:
            self._http[provider] = httpx2.AsyncClient(
                transport=TapeTransport(),
                timeout=httpx2.Timeout(SILENCE_SECONDS, connect=CONNECT_SECONDS),
            )
        return self._http[provider]

    def openai(self, entry: ModelEntry) -> openai.AsyncOpenAI:
        """Return the OpenAI client of a resolved entry's provider."""
        provider = (entry.base_url, entry.key)
        if provider not in self._openai:
            self._openai[provider] = openai.AsyncOpenAI(
                base_url=entry.base_url,
                api_key=entry.key,
                max_retries=RETRIES,
                http_client=self.http_client(entry),
            )
        return self._openai[provider]


def _key(key: str) -> str:
    if not key.startswith(_FROM_ENVIRONMENT):
        return key
    name = key.removeprefix(_FROM_ENVIRONMENT)
    found = os.environ.get(name, "")
    # A local server needs no key: only an address of OpenAI's own makes its absence an error.
    if not found and not (name == "OPENAI_API_KEY" and os.environ.get("OPENAI_BASE_URL")):
        raise StackFailed(
            code="model_auth", blame="configuration", detail=f"the variable {name!r} is not set"
        )
    return found


# Token counts. tiktoken downloads an encoding that its cache lacks, so it is asked only where the
# cache holds the whole file.

_ENCODINGS: Final = {
    "o200k_base": "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    "cl100k_base": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
}
"""SHA-256 of the files, as tiktoken checks them."""
_SOURCE: Final = "https://openaipublic.blob.core.windows.net/encodings/{}.tiktoken"
_MOST_EXACT: Final = 200_000  # characters; counting more takes over a tenth of a second


def tokens(text: str, model: str) -> tuple[int, bool]:
    """Return how many tokens a text has for a model, and whether that is exact.

    Exact where tiktoken knows the model and `TIKTOKEN_CACHE_DIR` holds its encoding. Otherwise the
    estimate of `rules.models`.
    """
    encoding = _encoding(model) if len(text) <= _MOST_EXACT else None
    if encoding is not None:
        return len(encoding.encode_ordinary(text)), True
    return estimate(text), False


def load_encodings() -> None:
    """Load the encodings that are at hand, a matter of a second, before they are needed."""
    for model in ("gpt-4.1", "gpt-4"):
        _encoding(model)


@lru_cache
def _encoding(model: str) -> tiktoken.Encoding | None:
    try:
        name = tiktoken.encoding_name_for_model(model.rpartition("/")[2])
        file = hashlib.sha1(_SOURCE.format(name).encode(), usedforsecurity=False).hexdigest()
        content = Path(os.environ["TIKTOKEN_CACHE_DIR"], file).read_bytes()
    except (KeyError, OSError):
        return None
    whole = hashlib.sha256(content).hexdigest() == _ENCODINGS.get(name)
    return tiktoken.get_encoding(name) if whole else None
