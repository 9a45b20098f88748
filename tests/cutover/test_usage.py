"""The tokens of an answer, as each API counts them."""

import pytest

from cutover.normal_form import TokenUsage, model_of, usage


def sse(*events: str) -> list[bytes]:
    """Return events as they stand on a tape."""
    return [f"data: {one}\n\n".encode() for one in events]


@pytest.mark.parametrize(
    ("items", "read", "written"),
    [
        (sse('{"choices":[]}', '{"usage":{"prompt_tokens":5,"completion_tokens":2}}'), 5, 2),
        (sse('{"usage":{"prompt_tokens":5,"completion_tokens":1}}',
             '{"usage":{"prompt_tokens":5,"completion_tokens":9}}', "[DONE]"), 5, 9),
        (sse('{"usage":null,"choices":[]}', "[DONE]"), None, None),
        ([b'{"usage":{"prompt_tokens":3,"total_tokens":3}}'], 3, None),
        ([b'event: x\ndata: {"response":{"usage":{"input_tokens":7,"output_tokens":4}}}\n'], 7, 4),
        (sse('{"message":{"usage":{"input_tokens":2,"cache_read_input_tokens":8,'
             '"output_tokens":1}}}', '{"usage":{"output_tokens":6}}'), 10, 6),
        (sse('{"message":"text","usage":"much"}', '{"usage":{'), None, None),
        (sse('{"choices":[{"delta":{"content":"\\"usage\\""}}]}'), None, None),
        ([], None, None),
    ],
)  # fmt: skip
def test_the_last_count_is_the_whole(
    items: list[bytes], read: int | None, written: int | None
) -> None:
    """Chat completions, responses, messages; in streams and whole; None where none is given."""
    assert usage(items) == TokenUsage(read, written)


@pytest.mark.parametrize(
    ("canonical", "model"),
    [(b'{"model":"m","messages":[]}', "m"), (b"[]", ""), (b'{"model":1}', ""), (b"\xff", "")],
)
def test_the_model_is_what_was_asked_for(canonical: bytes, model: str) -> None:
    """A request that names none has none."""
    assert model_of(canonical) == model
