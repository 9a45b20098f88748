"""What the simulated model says to a request. The first row that fits decides.

| the request | the answer |
|---|---|
| a forbidden topic (`违禁话题`, `forbidden topic`) | some text, finish reason `content_filter` |
| offers tools and asks for what they do (`tasks.py`) | tool calls, at times with text before them |
| comes back with tool results | the results quoted, then prose |
| holds a picture | a description |
| wants JSON (`response_format`) | an object |
| wants something very long (`写一篇很长的`, `a very long story`) | a story that ends by `length` |
| anything else | prose in the language of the question, about its words |

An answer longer than the request's `max_tokens` ends by `length`.
"""

import re
from typing import Literal

import msgspec

from loadtests.simulator import picture, prose, quoting, tasks
from loadtests.simulator.draw import draw, name, pick
from loadtests.simulator.language import Language, language_of, topic_of
from loadtests.simulator.profile import Profile
from loadtests.simulator.request import ChatCompletionRequest, FunctionCall, ToolCall
from loadtests.simulator.tokens import count, pieces

Finish = Literal["stop", "length", "tool_calls", "content_filter"]
FORBIDDEN = re.compile(r"违禁话题|forbidden topic", re.IGNORECASE)
LONG = re.compile(
    r"很长很长|写一篇很长|超长|(?:a |an )?(?:very|extremely) long (?:story|essay|text|answer)",
    re.IGNORECASE,
)
WRITTEN = re.compile(r"“([^”\n]{4,80})”")  # what a picture says, and not what it shows
PREFACED_ONE_IN = 3
AFTER_RESULTS = 24


class Answer(msgspec.Struct, frozen=True):
    """What is said, cut into tokens, and why it ends."""

    content: tuple[str, ...]
    finish: Finish = "stop"
    calls: tuple[ToolCall, ...] = ()
    reasoning: tuple[str, ...] = ()

    @property
    def tokens(self) -> int:
        """Tokens of everything said, calls included."""
        called = sum(
            count(call.function.name) + count(call.function.arguments) for call in self.calls
        )
        return len(self.reasoning) + len(self.content) + called


def answer(request: ChatCompletionRequest, digest: bytes, profile: Profile) -> Answer:
    """Decide the answer; reasoning comes first and counts against the request's limit."""
    question = request.question
    language = language_of(question)
    topic = topic_of(question, language) if profile.reasoning else ""
    thought = prose.reasoning(digest, language, topic, profile.reasoning)
    said = _said(request, digest, profile, language)
    limit = request.max_completion_tokens or request.max_tokens
    return _limited(msgspec.structs.replace(said, reasoning=tuple(thought)), limit)


def _said(
    request: ChatCompletionRequest, digest: bytes, profile: Profile, language: Language
) -> Answer:
    phrases = prose.BANK[language]
    if FORBIDDEN.search(request.question):
        begun = pick(digest, "filtered", phrases.filtered)
        return Answer(tuple(pieces(begun)), "content_filter")
    if calls := _calls(request, digest, profile):
        return Answer(_preface(digest, language, calls), "tool_calls", calls)
    if results := quoting.quoted(request.turn, language):
        more = prose.sentences(digest, language, AFTER_RESULTS)
        return Answer(tuple(pieces(results + more)))
    return _written(request, digest, profile, language)


def _written(
    request: ChatCompletionRequest, digest: bytes, profile: Profile, language: Language
) -> Answer:
    question = request.question
    if pictures := _pictures(request):
        scenes = prose.BANK[language].scenes
        seen = [picture.describe(picture.read(url), language, scenes) for url in pictures]
        return Answer(tuple(pieces("\n".join(seen))))
    if request.response_format is not None and request.response_format.type != "text":
        return Answer(tuple(pieces(_object(digest, language, question))))
    if LONG.search(question):
        return Answer(tuple(prose.story(digest, language, profile.limit)), "length")
    topic = topic_of(question, language)
    return Answer(tuple(prose.plain(digest, language, topic, profile.tokens)))


def _calls(request: ChatCompletionRequest, digest: bytes, profile: Profile) -> tuple[ToolCall, ...]:
    """Decide the calls of this round; none when the rounds asked for are done."""
    done = sum(1 for message in request.turn if message.tool_calls)
    rounds = tasks.rounds(request.question, request.offered)
    if not rounds:
        rounds = [_required(request)]
    elif tasks.endless(request.question):
        rounds *= done + 1
    if done >= len(rounds):
        return ()
    previous = quoting.last_result(request.turn)
    called = [tasks.resolved(call, previous) for call in rounds[done]]
    return tuple(
        ToolCall(call, _call_id(digest, index, profile)) for index, call in enumerate(called)
    )


def _required(request: ChatCompletionRequest) -> list[FunctionCall]:
    """Obey a `tool_choice` that demands a call though nothing in the text asks for one."""
    choice = request.tool_choice
    if isinstance(choice, dict):
        function = choice.get("function")
        return [FunctionCall(str(function["name"]), "{}")] if isinstance(function, dict) else []
    return [FunctionCall(name_, "{}") for name_ in request.offered[:1] if choice == "required"]


def _call_id(digest: bytes, index: int, profile: Profile) -> str:
    if profile.call_ids == "missing":
        return ""
    label = "call" if profile.call_ids == "duplicate" else f"call {index}"
    return "call_" + name(digest, label, 24)


def _preface(digest: bytes, language: Language, calls: tuple[ToolCall, ...]) -> tuple[str, ...]:
    if draw(digest, "preface", PREFACED_ONE_IN):
        return ()
    bank = prose.BANK[language]
    asks = any(call.function.name == tasks.ASK for call in calls)
    return tuple(
        pieces(pick(digest, "which preface", bank.preface_question if asks else bank.preface))
    )


def _pictures(request: ChatCompletionRequest) -> tuple[str, ...]:
    return request.messages[request.last_user].pictures if request.last_user >= 0 else ()


def _object(digest: bytes, language: Language, question: str) -> str:
    topic = topic_of(question, language)
    written = WRITTEN.search(question)
    fact = written[1] if written else topic
    confidence = (50 + draw(digest, "confidence", 50)) / 100
    fields = {
        "answer": "".join(prose.plain(digest, language, topic, 0)),
        "language": language,
        "topics": topic.split(),
        "confidence": confidence,
        "memories": [{"content": fact, "confidence": confidence}] if fact else [],
    }
    return msgspec.json.encode(fields).decode()


def _limited(said: Answer, limit: int | None) -> Answer:
    """Cut an answer to a number of tokens; calls are kept whole or dropped."""
    if limit is None or said.tokens <= limit:
        return said
    thought = said.reasoning[:limit]
    content = said.content[: limit - len(thought)]
    return Answer(content, "length", (), thought)
