"""What the simulated model answers to a request. The first row that fits decides.

| the request | the answer |
|---|---|
| a system prompt names `需要检索` and `不需要检索` | the first where the text is about the past |
| a system prompt names `"instructions"` and `"final"` | a step for workers (`instructions.py`) |
| a forbidden topic (`违禁话题`, `forbidden topic`) | some text, finish reason `content_filter` |
| offers tools and asks for what they do (`tasks.py`) | tool calls, at times with text before them |
| comes back with tool results | the results quoted, then prose |
| holds a picture | a description: facts of the file, and a scene drawn from it |
| wants JSON (`response_format`) | an object |
| wants something very long (`写一篇很长的`, `a very long story`) | a story that ends by `length` |
| anything else | prose in the language of the question, about its words |

An answer longer than the request's `max_tokens` ends by `length`.
"""

import re
from base64 import b64decode
from binascii import Error as Base64Error
from hashlib import blake2b
from typing import Literal

import msgspec

from loadtests.simulator.profile import Profile
from loadtests.simulator.request import (
    ChatCompletionRequest,
    FunctionCall,
    RequestedCall,
    RequestMessage,
    count,
    pieces,
)
from loadtests.simulator.texts import instructions, prose, tasks
from loadtests.simulator.texts.prose import (
    PHRASES,
    Language,
    draw,
    language_of,
    name,
    pick,
    topic_of,
)

LONGEST_QUOTE = 200


DATA_URL = re.compile(r"data:image/([a-z+.-]+);base64,(.*)", re.DOTALL)
PNG = b"\x89PNG\r\n\x1a\n"
WIDTH = slice(16, 20)
HEIGHT = slice(20, 24)
FORBIDDEN = re.compile(r"违禁话题|forbidden topic", re.IGNORECASE)
LONG = re.compile(
    r"很长很长|写一篇很长|超长|(?:a |an )?(?:very|extremely) long (?:story|essay|text|answer)",
    re.IGNORECASE,
)
NEEDED, NOT_NEEDED = "需要检索", "不需要检索"
PAST = re.compile(
    r"上次|以前|之前|从前|小时候|去年|当年|那时|你的(?:家人|朋友|工作)"
    r"|last (?:time|week|month|year)|used to|years ago|when (?:i|we) were|your (?:family|friends)",
    re.IGNORECASE,
)
WRITTEN = re.compile(r"“([^”\n]{4,80})”")  # what a picture says, and not what it shows
SPOKEN = re.compile(r"^user: (.+)$", re.MULTILINE)
PREFACED_ONE_IN = 3
AFTER_RESULTS = 24


class FormAnswer(msgspec.Struct, frozen=True):
    """Result of the tool `ask_human`: the user's action, and the values of the form."""

    action: str
    data: dict[str, object] = {}


FORM_ANSWER = msgspec.json.Decoder(FormAnswer)


def quoted(turn: tuple[RequestMessage, ...], language: Language) -> str:
    """Quote every tool result of a turn, in the order of the messages."""
    names = {call.id: call.function.name for it in turn for call in it.tool_calls or ()}
    space = " " if language == "en" else ""
    results = [message for message in turn if message.role == "tool"]
    return space.join(_quote(message, names, language) for message in results)


def last_result(turn: tuple[RequestMessage, ...]) -> str:
    """Return the text of the last tool message; empty when there is none."""
    results = [message.text for message in turn if message.role == "tool"]
    return results[-1] if results else ""


def _quote(message: RequestMessage, names: dict[str, str], language: Language) -> str:
    tool, text = names.get(message.tool_call_id or "", "other"), message.text
    kind = "error" if text.startswith("Error:") else tool
    if kind == "ask_human":
        kind, text = _answered(text)
    quotes = PHRASES[language].quotes
    return quotes.get(kind, quotes["other"]).replace("{result}", text[:LONGEST_QUOTE])


def _answered(text: str) -> tuple[str, str]:
    """Read the user's answer: how it is quoted, and its values."""
    try:
        answer = FORM_ANSWER.decode(text)
    except msgspec.MsgspecError:
        return "other", text
    if answer.action == "reject":
        return "refused", ""
    return "ask_human", ", ".join(map(_value, answer.data.values()))


def _value(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


class SeenPicture(msgspec.Struct, frozen=True):
    """A picture's kind (`png`, `jpeg`, …), bytes, size in pixels where readable, and digest."""

    kind: str
    length: int
    size: tuple[int, int] | None
    digest: bytes


def read_picture(url: str) -> SeenPicture:
    """Read a data URL; anything else is a picture of unknown kind, never fetched."""
    match = DATA_URL.match(url)
    raw = _decoded(match[2]) if match else b""
    size = None
    if raw.startswith(PNG) and len(raw) >= HEIGHT.stop:
        size = (int.from_bytes(raw[WIDTH], "big"), int.from_bytes(raw[HEIGHT], "big"))
    digest = blake2b(url.encode(), digest_size=16).digest()
    return SeenPicture(match[1] if match else "unknown", len(raw), size, digest)


def describe(picture: SeenPicture, language: Language, scenes: tuple[str, ...]) -> str:
    """Describe a picture; equal pictures are described equally."""
    size = f"{picture.size[0]}×{picture.size[1]}" if picture.size else f"{picture.length} B"
    scene = pick(picture.digest, "scene", scenes)
    kind = picture.kind.upper()
    if language == "zh":
        return f"这是一张 {kind} 图片（{size}）。{scene}"
    return f"This is a {kind} picture ({size}). {scene}"


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except Base64Error:
        return b""


Finish = Literal["stop", "length", "tool_calls", "content_filter"]


class SimulatedAnswer(msgspec.Struct, frozen=True):
    """An answer cut into tokens, and why it ends."""

    content: tuple[str, ...]
    finish: Finish = "stop"
    calls: tuple[RequestedCall, ...] = ()
    reasoning: tuple[str, ...] = ()

    @property
    def tokens(self) -> int:
        """Tokens of all of it, calls included."""
        called = sum(
            count(call.function.name) + count(call.function.arguments) for call in self.calls
        )
        return len(self.reasoning) + len(self.content) + called


def answer(request: ChatCompletionRequest, digest: bytes, profile: Profile) -> SimulatedAnswer:
    """Decide the answer; reasoning comes first and counts against the request's limit."""
    question = request.question
    language = language_of(question)
    topic = topic_of(question, language) if profile.reasoning else ""
    thought = prose.reasoning(digest, language, topic, profile.reasoning)
    whole = _whole_answer(request, digest, profile, language)
    limit = request.max_completion_tokens or request.max_tokens
    return _limited(msgspec.structs.replace(whole, reasoning=tuple(thought)), limit)


def _whole_answer(
    request: ChatCompletionRequest, digest: bytes, profile: Profile, language: Language
) -> SimulatedAnswer:
    phrases = prose.PHRASES[language]
    if any(it.role == "system" and NOT_NEEDED in it.text for it in request.messages):
        recalls = tasks.MEMORY.search(request.question) or PAST.search(request.question)
        return SimulatedAnswer(tuple(pieces(NEEDED if recalls else NOT_NEEDED)))
    if instructions.wanted(request.messages):
        return SimulatedAnswer(tuple(pieces(instructions.next_step(request.messages, language))))
    if FORBIDDEN.search(request.question):
        start = pick(digest, "filtered", phrases.filtered)
        return SimulatedAnswer(tuple(pieces(start)), "content_filter")
    if calls := _calls(request, digest, profile):
        return SimulatedAnswer(_preface(digest, language, calls), "tool_calls", calls)
    if results := quoted(request.turn, language):
        more = prose.sentences(digest, language, AFTER_RESULTS)
        return SimulatedAnswer(tuple(pieces(results + more)))
    return _written(request, digest, profile, language)


def _written(
    request: ChatCompletionRequest, digest: bytes, profile: Profile, language: Language
) -> SimulatedAnswer:
    question = request.question
    if pictures := _pictures(request):
        scenes = prose.PHRASES[language].scenes
        seen = [describe(read_picture(url), language, scenes) for url in pictures]
        return SimulatedAnswer(tuple(pieces("\n".join(seen))))
    if request.response_format is not None and request.response_format.type != "text":
        return SimulatedAnswer(tuple(pieces(_object(digest, language, question))))
    if LONG.search(question):
        story = pieces(prose.sentences(digest, language, profile.limit).strip())
        return SimulatedAnswer(tuple(story[: profile.limit]), "length")
    topic = topic_of(question, language)
    return SimulatedAnswer(tuple(prose.plain(digest, language, topic, profile.tokens)))


def _calls(
    request: ChatCompletionRequest, digest: bytes, profile: Profile
) -> tuple[RequestedCall, ...]:
    """Decide the calls of this round; none when all rounds are done."""
    done = sum(1 for message in request.turn if message.tool_calls)
    rounds = tasks.call_rounds(request.question, request.offered)
    if not rounds:
        rounds = [_required(request)]
    elif tasks.endless(request.question):
        rounds *= done + 1
    if done >= len(rounds):
        return ()
    previous = last_result(request.turn)
    called = [tasks.resolved(call, previous) for call in rounds[done]]
    return tuple(
        RequestedCall(call, _call_id(digest, index, profile)) for index, call in enumerate(called)
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


def _preface(
    digest: bytes, language: Language, calls: tuple[RequestedCall, ...]
) -> tuple[str, ...]:
    if draw(digest, "preface", PREFACED_ONE_IN):
        return ()
    bank = prose.PHRASES[language]
    asks = any(call.function.name == tasks.ASK for call in calls)
    return tuple(
        pieces(pick(digest, "which preface", bank.preface_question if asks else bank.preface))
    )


def _pictures(request: ChatCompletionRequest) -> tuple[str, ...]:
    return request.messages[request.last_user].pictures if request.last_user >= 0 else ()


def _object(digest: bytes, language: Language, question: str) -> str:
    # Where a conversation is read for memories, the user's last message is what there is to learn.
    spoken = SPOKEN.findall(question)
    topic = topic_of(spoken[-1] if spoken else question, language)
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


def _limited(whole: SimulatedAnswer, limit: int | None) -> SimulatedAnswer:
    """Cut an answer to a number of tokens; calls stay whole or are dropped."""
    if limit is None or whole.tokens <= limit:
        return whole
    thought = whole.reasoning[:limit]
    content = whole.content[: limit - len(thought)]
    return SimulatedAnswer(content, "length", (), thought)
