"""`cutover forget`: erase a user, a chat or a message."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from contract.errors import CutoverError
from contract.stores import DataSubject, SubjectKind
from cutover.cli.terminal import refusals
from cutover.erasure import (
    SubjectMatcher,
    declared_fields,
    erase_captures,
    erase_rows,
    erase_set_aside,
    erase_threads,
)
from cutover.flows import DEFAULT_CONFIG, flows_of, settings_at

if TYPE_CHECKING:
    from collections.abc import Collection

    from cutover.erasure import ErasedCaptures, ErasedRows, ErasedThreads
    from router.config.schema import Settings


class NoKey(CutoverError):
    """Redacted ids cannot be recognised."""

    def __init__(self, named: str) -> None:
        why = f"{named!r} is not set" if named else "[captures] pseudonym_key_env names none"
        super().__init__(
            f"without the key of the pseudonyms what was redacted is not found: {why}; "
            "--plain removes what holds the plain id alone"
        )


class NoSubject(CutoverError):
    """No subject is named, or several are."""

    def __init__(self) -> None:
        kinds = ", ".join(f"--{kind}" for kind in get_args(SubjectKind))
        super().__init__(f"one of {kinds} is due, with an id that is not empty")


def forget(
    config: Annotated[Path, typer.Option(help="The configuration.")] = DEFAULT_CONFIG,
    user: Annotated[str, typer.Option(help="All of a user, by user_id.")] = "",
    chat: Annotated[str, typer.Option(help="All of a chat, by chat_id or session_id.")] = "",
    message: Annotated[str, typer.Option(help="A message and its replies, by message_id.")] = "",
    *,
    plain: Annotated[bool, typer.Option(help="Go on without the key of the pseudonyms.")] = False,
) -> None:
    """Remove a user, a chat or a message from captures and all stores, and report what was.

    Exit 0: all is removed that there was, 1: something could not be, 2: refused, nothing removed.
    """
    with refusals(2):
        settings = settings_at(config)
        subject = _subject({"user": user, "chat": chat, "message": message})
        key = _key(settings, plain=plain)
        fields = declared_fields(subject.kind, flows_of(settings).values())
    matcher = SubjectMatcher(subject, key, fields)
    captures: ErasedCaptures | None = None
    failures: list[str] = []
    try:
        captures = erase_captures(settings.captures.path, matcher)
    except (OSError, ValueError, ImportError) as error:
        failures.append(f"captures: {error}")
    exchanges = captures.exchanges if captures is not None else frozenset()
    rows, threads = asyncio.run(_erase(settings, subject, exchanges))
    aside, why = asyncio.run(erase_set_aside(settings, os.environ, matcher.matches))
    failures += (*rows.failures, *threads.failures, *why)
    _report(captures, rows, threads, aside if settings.shadow.broker else None)
    for sentence in failures:
        typer.echo(f"not removed: {sentence}", err=True)
    raise typer.Exit(1 if failures else 0)


async def _erase(
    settings: Settings, subject: DataSubject, exchanges: Collection[str]
) -> tuple[ErasedRows, ErasedThreads]:
    rows = await erase_rows(settings.stores, os.environ, subject, exchanges)
    # Threads are copies: those of another flow's session of the same id are made anew.
    sessions = {chat.chat_id for chat in rows.chats}
    threads = erase_threads(settings, os.environ, sessions, all_known=rows.all_chats)
    return rows, await threads


def _subject(named: dict[SubjectKind, str]) -> DataSubject:
    named_ones = [DataSubject(kind, value) for kind, value in named.items() if value]
    if len(named_ones) != 1:
        raise NoSubject
    return named_ones[0]


def _key(settings: Settings, *, plain: bool) -> bytes:
    named = settings.captures.pseudonym_key_env
    key = os.environ.get(named, "").encode() if named else b""
    if not key and not plain:
        raise NoKey(named)
    return key


def _report(
    captures: ErasedCaptures | None, rows: ErasedRows, threads: ErasedThreads, aside: int | None
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
        (rows.audit, "audit: {} names"),
        (threads.sessions, "threads: of {} sessions"),
        (aside, "set aside by shadow workers: {} exchanges"),
    ):
        if removed is not None:  # a store that failed has not removed nothing
            typer.echo(line.format(removed))
