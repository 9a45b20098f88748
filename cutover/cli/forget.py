"""`cutover forget`: what is known of a user, a chat or a message is removed."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from contract.errors import CutoverError
from cutover.erasure import (
    SubjectMatcher,
    declared_fields,
    forget_captures,
    forget_rows,
    forget_threads,
)
from cutover.flows import DEFAULT_CONFIG, SPECS, flows_of
from effects.stores.values import DataSubject, Kind
from router.config import load_settings, parse_settings

if TYPE_CHECKING:
    from collections.abc import Collection

    from cutover.erasure import ForgottenCaptures, ForgottenRows, ForgottenThreads
    from router.config import Settings


class NoKey(CutoverError):
    """Redacted ids cannot be recognised."""

    def __init__(self, named: str) -> None:
        why = f"{named!r} is not set" if named else "[captures] pseudonym_key_env names none"
        super().__init__(
            f"without the key of the pseudonyms what was redacted is not found: {why}; "
            "--plain removes what holds the plain id alone"
        )


class NobodyNamed(CutoverError):
    """Nobody is named, or too many are."""

    def __init__(self) -> None:
        kinds = ", ".join(f"--{kind}" for kind in get_args(Kind))
        super().__init__(f"one of {kinds} is due, with an id that is not empty")


def forget(
    config: Annotated[Path, typer.Option(help="The configuration.")] = DEFAULT_CONFIG,
    user: Annotated[str, typer.Option(help="All of a user, by user_id.")] = "",
    chat: Annotated[str, typer.Option(help="All of a chat, by chat_id or session_id.")] = "",
    message: Annotated[str, typer.Option(help="A message and its replies, by message_id.")] = "",
    plain: Annotated[bool, typer.Option(help="Go on without the key of the pseudonyms.")] = False,  # noqa: FBT002 - a flag
) -> None:
    """Remove somebody from captures and from all stores, and say what was removed.

    Exit 0: all is removed that there was, 1: something could not be, 2: refused, nothing removed.
    """
    try:
        settings = _settings(config)
        whose = _whose({"user": user, "chat": chat, "message": message})
        key = _key(settings, plain=plain)
    except CutoverError as error:
        typer.echo(f"cutover forget: {error}", err=True)
        raise typer.Exit(2) from error
    captures: ForgottenCaptures | None = None
    left: list[str] = []
    try:
        fields = declared_fields(whose.kind, flows_of(settings).values())
        captures = forget_captures(settings.captures.path, SubjectMatcher(whose, key, fields))
    except (OSError, ValueError, ImportError) as error:
        left.append(f"captures: {error}")
    exchanges = captures.exchanges if captures is not None else frozenset()
    rows, threads = asyncio.run(_kept(settings, whose, exchanges))
    left += (*rows.left, *threads.left)
    _tell(captures, rows, threads)
    for sentence in left:
        typer.echo(f"not removed: {sentence}", err=True)
    raise typer.Exit(1 if left else 0)


async def _kept(
    settings: Settings, whose: DataSubject, exchanges: Collection[str]
) -> tuple[ForgottenRows, ForgottenThreads]:
    rows = await forget_rows(settings.stores, os.environ, whose, exchanges)
    threads = forget_threads(settings, os.environ, rows.chats, all_known=rows.all_chats)
    return rows, await threads


def _settings(config: Path) -> Settings:
    if config == DEFAULT_CONFIG and not config.exists():
        return parse_settings("", str(config), SPECS)
    return load_settings(config, SPECS)


def _whose(named: dict[Kind, str]) -> DataSubject:
    given = [DataSubject(kind, value) for kind, value in named.items() if value]
    if len(given) != 1:
        raise NobodyNamed
    return given[0]


def _key(settings: Settings, *, plain: bool) -> bytes:
    named = settings.captures.pseudonym_key_env
    key = os.environ.get(named, "").encode() if named else b""
    if not key and not plain:
        raise NoKey(named)
    return key


def _tell(
    captures: ForgottenCaptures | None, rows: ForgottenRows, threads: ForgottenThreads
) -> None:
    if captures is not None:
        typer.echo(
            f"captures: {len(captures.exchanges)} exchanges, {captures.feedbacks} with feedback, "
            f"{captures.blobs} long texts"
        )
    for removed, line in (
        (rows.turns, "conversations: {} turns"),
        (rows.memories, "memory: {} entries"),
        (rows.pauses, "pauses: {}"),
        (threads.sessions, "threads: of {} sessions"),
    ):
        if removed is not None:  # what could not be asked has not removed nothing
            typer.echo(line.format(removed))
