"""The programs of `tests/foreign/programs`, imported afresh for each test."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from anthropic import AsyncAnthropic
from openai import AsyncOpenAI, OpenAI

PROGRAMS = Path(__file__).parent.parent / "foreign" / "programs"


@asynccontextmanager
async def opened(folder: str, name: str) -> AsyncIterator[Any]:
    """Import a program afresh, so that its clients find the test's provider; close them behind."""
    spec = spec_from_file_location(f"{folder}_{name}", PROGRAMS / folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    try:
        yield module
    finally:
        for value in vars(module).values():
            model = getattr(value, "bound", value)  # of LangChain, behind its tools
            for client in (
                value,
                *(getattr(model, f"root_{kind}client", None) for kind in ("", "async_")),
            ):
                if isinstance(client, AsyncOpenAI | AsyncAnthropic):
                    await client.close()
                elif isinstance(client, OpenAI):
                    client.close()
