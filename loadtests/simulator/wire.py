"""OpenAI's answer on the wire: chunks of a stream, or one body."""

import msgspec

from loadtests.simulator.answer import SimulatedAnswer
from loadtests.simulator.profile import Profile
from loadtests.simulator.request import ChatCompletionRequest, RequestedCall, TokenUsage, pieces
from loadtests.simulator.texts.prose import draw, name

DONE = b"data: [DONE]\n\n"
EPOCH = 1_750_000_000
EPOCH_SPREAD = 10_000_000
FINGERPRINT = "fp_simulator1"

encode = msgspec.json.encode


class Envelope(msgspec.Struct, frozen=True):
    """What all chunks of an answer share, ready as bytes."""

    head: bytes
    tail: bytes

    def deltas(self, deltas: list[bytes]) -> list[bytes]:
        """Wrap deltas that are not the last ones."""
        before = self.head + b',"choices":[{"index":0,"delta":'
        after = b',"logprobs":null,"finish_reason":null}]%b}\n\n' % self.tail
        return [before + delta + after for delta in deltas]

    def finish(self, reason: str) -> bytes:
        """Write the chunk that says why the answer ends."""
        choice = b'{"index":0,"delta":{},"logprobs":null,"finish_reason":"%b"}' % reason.encode()
        return b'%b,"choices":[%b]%b}\n\n' % (self.head, choice, self.tail)

    def usage(self, usage: TokenUsage) -> bytes:
        """Write the chunk after the last choice: no choices, but the usage."""
        return b'%b,"choices":[],"usage":%b}\n\n' % (self.head, usage.encode())


def envelope(request: ChatCompletionRequest, digest: bytes) -> Envelope:
    """Prepare the parts every chunk repeats; id and time follow from the digest."""
    head = b"data: " + encode(_identity(request, digest, "chat.completion.chunk"))[:-1]
    return Envelope(head, b',"usage":null' if request.include_usage else b"")


def first_delta(answer: SimulatedAnswer) -> bytes:
    """Write the role-only delta; its content is null when no text follows."""
    content = b'""' if answer.content else b"null"
    return b'{"role":"assistant","content":%b,"refusal":null}' % content


def deltas(answer: SimulatedAnswer, profile: Profile) -> list[bytes]:
    """Write the deltas that carry something: reasoning, then text, then calls."""
    field = profile.reasoning_field.encode()
    thoughts = _grouped(answer.reasoning, profile.chunk)
    texts = _grouped(answer.content, profile.chunk)
    written = [b'{"content":null,"%b":%b}' % (field, encode(thought)) for thought in thoughts]
    written += [b'{"content":%b}' % encode(text) for text in texts]
    return written + _call_deltas(answer.calls, profile.chunk)


def error_event(code: str) -> bytes:
    """Write an error inside a stream that began well."""
    message = "The server had an error while processing your request."
    error = {"message": message, "type": "server_error", "param": None, "code": code}
    return b"data: %b\n\n" % encode({"error": error})


def body(
    request: ChatCompletionRequest,
    digest: bytes,
    answer: SimulatedAnswer,
    usage: TokenUsage,
    profile: Profile,
) -> bytes:
    """Write the answer as one JSON body."""
    message: dict[str, object] = {"role": "assistant", "content": "".join(answer.content) or None}
    if answer.reasoning:
        message[profile.reasoning_field] = "".join(answer.reasoning)
    if answer.calls:
        message["tool_calls"] = [_call(call) for call in answer.calls]
    message["refusal"] = None
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": answer.finish}
    whole = _identity(request, digest, "chat.completion") | {"choices": [choice]}
    return encode(whole | {"usage": msgspec.Raw(usage.encode())})


def _identity(request: ChatCompletionRequest, digest: bytes, kind: str) -> dict[str, object]:
    return {
        "id": "chatcmpl-" + name(digest, "id", 29),
        "object": kind,
        "created": EPOCH + draw(digest, "created", EPOCH_SPREAD),
        "model": request.model_name,
        "service_tier": "default",
        "system_fingerprint": FINGERPRINT,
    }


def _call_deltas(calls: tuple[RequestedCall, ...], size: int) -> list[bytes]:
    """Id and name in the first delta of an index only; then the arguments, taking turns."""
    parts = [_grouped(tuple(pieces(call.function.arguments)), size) for call in calls]
    written = [
        b'{"tool_calls":[%b]}' % encode({"index": k} | _call(call, arguments=""))
        for k, call in enumerate(calls)
    ]
    for turn in range(max(map(len, parts), default=0)):
        for index, part in enumerate(parts):
            if turn < len(part):
                function = encode({"arguments": part[turn]})
                written.append(b'{"tool_calls":[{"index":%d,"function":%b}]}' % (index, function))
    return written


def _call(call: RequestedCall, arguments: str | None = None) -> dict[str, object]:
    text = call.function.arguments if arguments is None else arguments
    function = {"name": call.function.name, "arguments": text}
    identity = {"id": call.id} if call.id else {}
    return identity | {"type": "function", "function": function}


def _grouped(tokens: tuple[str, ...], size: int) -> list[str]:
    return ["".join(tokens[start : start + size]) for start in range(0, len(tokens), size)]
