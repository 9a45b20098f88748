"""The operations API of a deployment: whether it answers here, and to whom."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from router.admin.audit import AuditLog
from router.admin.operations import Operations
from router.admin.routes import add_admin
from router.admin.tokens import read_tokens
from router.config import on_loopback

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fastapi import FastAPI

    from cutover.wiring.composition import House
    from cutover.wiring.history import Keeper
    from router.admin.tokens import Tokens
    from router.config import Settings, SettingsWatcher

log = logging.getLogger(__name__)


def admin_tokens(settings: Settings, environ: Mapping[str, str], host: str) -> Tokens | None:
    """Give who may use the API on a listening address; None where it does not answer.

    Raises `TokensUnusable` where tokens are named that cannot be used.
    """
    section = settings.admin
    if not section.token_env:
        return None
    tokens = read_tokens(environ.get(section.token_env, ""), section.token_env)
    if not section.anywhere and not on_loopback(host):
        why = "/admin does not answer: %s is not loopback, and [admin] anywhere is not set"
        log.warning(why, host)
        return None
    return tokens


def add_operations(
    app: FastAPI, house: House, watched: SettingsWatcher, tokens: Tokens, keeper: Keeper | None
) -> None:
    """Add the operations API of a house to its application; changes go into a kept history."""
    audit = AuditLog(Path(watched.current.admin.audit_path))
    operations = Operations(
        house.router,
        house.models,
        house.model,
        house.recent,
        watched,
        audit,
        None if keeper is None else keeper.tool_changed,
    )
    add_admin(app, operations, tokens)
