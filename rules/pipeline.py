"""The pipeline flow: texts, token shares, model calls and turns of both stacks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from contract.errors import EffectFailed
from contract.flow import Request
from contract.flows.chat import PromptValue
from contract.flows.pipeline import (
    Action,
    NodeFailure,
    PipelineFailed,
    PipelineMessage,
    PipelineOptions,
    PipelineRequest,
    TokenInfo,
)
from contract.model import Message, ModelCall, UserMessage
from contract.ports import Effects
from contract.stores import MemoryEntry, Recall, Turn
from rules.conversation import (
    check_model,
    end_session_turn,
    estimate,
    lock_session,
    prompt_messages,
    read_text,
    user_turn,
)
from rules.memories import as_paragraph
from rules.prompts import Render, with_history

PipelineTurn = Request[PipelineRequest, PipelineOptions]
"""The request of one turn."""

NEEDED: Final = "需要检索"
"""What the model answers where memories are to be retrieved; where not, `NOT_NEEDED`."""
NOT_NEEDED: Final = "不需要检索"
NO_RESPONSE: Final = "empty_response"
"""Code of a model's answer without text."""

PROMPTS: Mapping[str, str] = {
    "system": "{system_prompt}{speakers}{memories}",
    "memory_check": (
        "回答用户的消息之前，是否要先查看长期记忆？问到从前的事、人物的情况时回答“{needed}”；"
        "问候、当下的心情和闲聊回答“{not_needed}”。只回答这两者之一。"
    ),
}
"""Stand in for missing prompt files; in `str.format` syntax."""

TEXTS: Mapping[str, str] = {
    "warn": "\n\n（这段对话已经比较长了。）",
    "compress": "\n\n（这段对话很长，最早的内容已不再参考。）",
    "end": "\n\n（这段对话已到长度上限，我们先聊到这里，期待下次再见。）",
}
"""Appended to a reply, by the action; no part of what is stored."""

_GENERATOR: Final = "response_generator"
CHECK_TEMPERATURE: Final = 0.1
_CHECK_TOKENS: Final = 10

_END_OF_TEXT: Final = 64
"""Characters at the end of a message that are read for a goodbye."""

_PUNCTUATION = re.compile(r"[\W_]+")
# An emoji, with what joins and varies it, ends a clause as a full stop does.
_CLAUSE_END = re.compile(
    "[\n,.;:!?~，。；：！？、…～\u200d\u2600-\u27bf\ufe0f\U0001f000-\U0001faff]+"
)
_GOODBYE = re.compile(
    r"(?:好的?|那|行|嗯|我们?|就|先|今天)*"
    r"(?:再见|再会|拜拜|拜|晚安|(?:回头|明天|下次|改天|一会儿?)(?:见|再?聊)|不聊|到(?:这里?|此为止)"
    r"|这样|(?:得|要|该)?(?:走|睡觉?|下线)|结束(?:对话|聊天|会话)?)(?:[了啦吧哦呀喽咯]|为止)*"
)
_ENGLISH_GOODBYE = re.compile(
    r"(?:(?:ok|okay|well|so|then|and|but|now|thanks|thank you|i|i've|i have|we|let's)\s+)*"
    r"(?:good[ -]?bye|bye(?:[ -]bye)?|good ?night|see (?:you|ya)(?: later| soon| tomorrow)?"
    r"|(?:got to|gotta|have to) go|(?:talk|speak) (?:to you )?(?:later|soon|tomorrow)"
    r"|that's all(?: for (?:now|today))?|end (?:the|this) (?:chat|conversation))"
    r"(?: (?:now|then|for now))?",
    re.IGNORECASE,
)


def wishes_to_end(text: str) -> bool:
    """Whether the last clause of a message is a goodbye and nothing more."""
    end = text[-_END_OF_TEXT:].replace("’", "'")
    if len(text) > len(end):
        end = f"x{end}"  # so that a clause which is cut off is no goodbye
    clauses = [clause.strip() for clause in _CLAUSE_END.split(end)]
    last = next((clause for clause in reversed(clauses) if clause), "")
    chinese = last.rpartition(" ")[2]
    return bool(_GOODBYE.fullmatch(chinese) or _ENGLISH_GOODBYE.fullmatch(last))


async def admit(request: PipelineTurn, effects: Effects) -> Turn:
    """Check the model and lock the session; returns the user's turn, raises `Refused`."""
    body, options = request.body, request.options
    await check_model(effects, options.model_id, options.max_tokens)
    await lock_session(effects, body.session_id, options.lock_ttl)
    return await user_turn(effects, body.session_id, body.message, body.user_id)


def trim(turn: Turn) -> Turn:
    """Return a turn without white space around its text."""
    return replace(turn, content=turn.content.strip())


class Monitored(msgspec.Struct, frozen=True):
    """Tokens of a turn and those before it, the earlier turns the model reads, and what failed."""

    info: TokenInfo
    shown: tuple[Turn, ...]
    failures: tuple[NodeFailure, ...]


async def monitor(request: PipelineTurn, effects: Effects, turn: Turn) -> Monitored:
    """Read the history, count its tokens with the turn's, and choose what the model reads of it.

    Without a history the turn stands alone; without exact counts they are estimated.
    """
    options, session = request.options, request.body.session_id
    earlier: tuple[Turn, ...] = ()
    texts: tuple[str, ...] = (turn.content,)
    exact: tuple[int, ...] | None = None
    failures: tuple[NodeFailure, ...] = ()
    try:
        earlier = await effects.conversations.history(
            "history", session, before=turn.message_id, limit=options.history_limit
        )
        texts = (*(one.content for one in earlier), turn.content)
        exact = await effects.model.count("tokens", options.model_id, texts)
    except EffectFailed as failure:
        failures = (NodeFailure("token_monitor", failure.fault.code),)
    counts = tuple(map(estimate, texts)) if exact is None else exact
    used = sum(counts)
    info = TokenInfo(used, options.token_limit, action_of(used, options), estimated=exact is None)
    return Monitored(info, drop_oldest(earlier, counts, options), failures)


def action_of(used: int, options: PipelineOptions) -> Action:
    """Return what follows from a number of tokens; a share that is reached exactly counts."""
    shares: tuple[tuple[Action, int], ...] = (
        ("end", options.end_percent),
        ("compress", options.compress_percent),
        ("warn", options.warn_percent),
    )
    reached = (action for action, percent in shares if _reaches(used, percent, options))
    return next(reached, "continue")


def drop_oldest(
    earlier: Sequence[Turn], counts: Sequence[int], options: PipelineOptions
) -> tuple[Turn, ...]:
    """Return the newest turns that, with the message, use less than `compress_percent`.

    `counts` are the tokens of each turn, and of the message last.
    """
    used, dropped = sum(counts), 0
    while dropped < len(earlier) and _reaches(used, options.compress_percent, options):
        used -= counts[dropped]
        dropped += 1
    return tuple(earlier[dropped:])


def _reaches(used: int, percent: int, options: PipelineOptions) -> bool:
    """Whether so many tokens are that share of the limit, or more."""
    return 100 * used >= percent * options.token_limit


async def involves_memory(
    request: PipelineTurn, effects: Effects, turn: Turn, render: Render
) -> bool:
    """Ask the model whether memories are to be retrieved; an unclear answer is a no."""
    instruction = render({"needed": NEEDED, "not_needed": NOT_NEEDED})
    call = ModelCall(
        model_id=request.options.model_id,
        messages=(*with_history(instruction, ()), UserMessage(turn.content)),
        temperature=CHECK_TEMPERATURE,
        max_tokens=_CHECK_TOKENS,
    )
    answer = await read_text(effects, "memory_check", call)
    return _PUNCTUATION.sub("", answer) == NEEDED


def recall(request: PipelineTurn, turn: Turn) -> Recall:
    """Build the query for memories of the user, and of the relation where one is named."""
    speaker = request.body.interlocutor
    return Recall(
        user_id=request.body.user_id,
        query=turn.content,
        limit=request.options.recall_limit,
        relation=speaker.relation if speaker else None,
    )


def lay_out(
    request: PipelineTurn,
    memories: Iterable[MemoryEntry],
    shown: Iterable[Turn],
    turn: Turn,
    render: Render,
) -> tuple[Message, ...]:
    """Lay out the conversation: system prompt with memories, the turns shown, the message."""
    return prompt_messages(render(prompt(request, memories)), shown, turn)


def prompt(request: PipelineTurn, memories: Iterable[MemoryEntry]) -> dict[str, PromptValue]:
    """Return the parameters of the system prompt."""
    body = request.body
    speakers = []
    if body.interlocutor:
        speakers.append(f"你是{body.interlocutor.name}，用户的{body.interlocutor.relation}。")
    if body.user_name:
        speakers.append(f"用户名叫{body.user_name}。")
    return {
        "system_prompt": request.options.system_prompt,
        "speakers": "\n\n" + "".join(speakers) if speakers else "",
        "memories": as_paragraph(memories),
    }


def response_of(answer: str) -> str | None:
    """Return the response that a whole answer makes; None where it has no text."""
    return answer if answer.strip() else None


def notice(request: PipelineTurn, info: TokenInfo, response: str | None) -> str:
    """Return what is appended to a response; "" where there is none, or nothing to tell."""
    if response is None:
        return ""
    return request.options.texts.get(info.action, TEXTS.get(info.action, ""))


async def store(request: PipelineTurn, effects: Effects, turn: Turn, response: str | None) -> None:
    """Store a turn with its response and release the session; without a response do neither."""
    if response is not None:
        await effects.conversations.put("message", turn)
        await end_session_turn(effects, request.body.session_id, turn, response)


def ending(
    response: str | None,
    notice: str,
    info: TokenInfo,
    memories: Iterable[str],
    errors: Sequence[NodeFailure],
    *,
    end_intent: bool,
) -> PipelineMessage:
    """Build the terminal event; without a response the turn has failed, and `errors` say why."""
    kind = PipelineFailed if response is None else PipelineMessage
    if response is None and all(error.node != _GENERATOR for error in errors):
        errors = (*errors, NodeFailure(_GENERATOR, NO_RESPONSE))
    return kind(
        success=response is not None,
        message=(response or "") + notice,
        token_info=info,
        end_intent=end_intent,
        memories=tuple(memories),
        errors=tuple(errors),
    )
