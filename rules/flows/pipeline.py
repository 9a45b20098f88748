"""The pipeline flow: eight nodes in order, token frames, and one message at the end."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from cutover.errors import Blame, Failed
from cutover.flow import Event
from cutover.flow_spec import FlowSpec, Grammar, Text, many, one
from rules.flows.fields import FlowOptions, Identifier, MessageText, Name, NamedEvent
from rules.flows.session import SYSTEM_PROMPT

TokenAction = Literal["continue", "warn", "compress", "end"]
"""What follows from the share of the token limit that is used."""

WHOLE_RUN: Final = "pipeline"
"""Stands for the node where a failure ended the whole run."""

SHARES: Final[Mapping[TokenAction, int]] = {"continue": 0, "warn": 70, "compress": 85, "end": 95}
"""Actions of the pipeline's token monitor, and the percentage of the limit each begins at."""


class Interlocutor(msgspec.Struct, frozen=True):
    """The person the model speaks as, and how they are related to the user."""

    name: Name
    relation: Name


class PipelineRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Body of `POST /api/chat`."""

    user_id: Identifier
    message: MessageText
    session_id: Identifier
    user_name: Name | None = None
    interlocutor: Interlocutor | None = None


class PipelineOptions(FlowOptions, frozen=True, kw_only=True):
    """Options of the pipeline flow; `token_limit` is for history and message."""

    flow = "pipeline"
    system_prompt: str = SYSTEM_PROMPT
    token_limit: Annotated[int, Meta(ge=1)] = 8_000


class TokenInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens of history and message, the limit, and what follows; `estimated` where not exact."""

    used: int
    limit: int
    action: TokenAction
    estimated: bool = False


class NodeFailure(msgspec.Struct, frozen=True):
    """A node that failed, and a stable code."""

    node: str
    code: str


class PipelineToken(NamedEvent, frozen=True, tag="token"):
    """The next piece of the reply."""

    content: str


class PipelineMessage(NamedEvent, frozen=True, kw_only=True, tag="message"):
    """The whole reply; nothing follows.

    Without a response `success` is false and `message` null, whatever tokens went out before.
    `memories` are the ids of those that were found.
    """

    success: bool
    message: str | None
    token_info: TokenInfo
    end_intent: bool = False
    memories: tuple[str, ...] = ()
    errors: tuple[NodeFailure, ...] = ()


PipelineEvent = PipelineToken | PipelineMessage


def _failing(options: PipelineOptions, code: str) -> tuple[Event, ...]:
    info, errors = TokenInfo(0, options.token_limit, "continue"), (NodeFailure(WHOLE_RUN, code),)
    return (PipelineMessage(success=False, message=None, token_info=info, errors=errors),)


_BLAMED: Final[Mapping[str, Blame]] = {
    "model_bad_request": "stack",
    "model_auth": "configuration",
    "unknown_model": "configuration",
}
"""Whose fault a node's failure is, by its code; that of others is the world's."""


def _reported(event: Event) -> Failed | None:
    if not isinstance(event, PipelineMessage) or event.success:
        return None
    failure = event.errors[-1]
    return Failed(failure.code, _BLAMED.get(failure.code, "world"), f"node {failure.node!r}")


def token_action(used: int, limit: int) -> TokenAction:
    """Return what follows from a number of tokens, by the last share of the limit it reaches."""
    return [action for action, percent in SHARES.items() if 100 * used >= percent * limit][-1]


def turns_to_drop(counts: Sequence[int], limit: int) -> int:
    """Return how many of the oldest turns to leave out, until no more than a warning is due.

    `counts` are the tokens of each turn, oldest first, and of the message last, which stays.
    """
    used, dropped = sum(counts), 0
    while dropped < len(counts) - 1 and token_action(used, limit) in {"compress", "end"}:
        used -= counts[dropped]
        dropped += 1
    return dropped


PIPELINE = FlowSpec(
    name="pipeline",
    requests={"/api/chat": PipelineRequest},
    options=PipelineOptions,
    events=PipelineEvent,
    grammar=Grammar((many("token"), one("message"))),
    texts={"token": {"content": Text()}, "message": {"message": Text(growth="total")}},
    pieces=frozenset({"token"}),
    failing=_failing,
    route_keys={"session_id": "session_id", "user_id": "user_id"},
    named=True,
    reported=_reported,
)
"""The flow as router and comparison see it."""
