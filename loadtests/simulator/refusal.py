"""A request turned down: an HTTP status and an error body in OpenAI's shape."""

from typing import TypeVar

import msgspec

Asked = TypeVar("Asked")

TYPES = {401: "authentication_error", 404: "invalid_request_error", 429: "rate_limit_error"}
FIRST_SERVER_ERROR = 500


class Refusal(msgspec.Struct, frozen=True):
    """Why a request is not answered; `retry_after` in seconds becomes a header."""

    status: int
    message: str
    code: str | None = None
    param: str | None = None
    retry_after: float | None = None

    @property
    def type(self) -> str:
        """OpenAI's name for this kind of error."""
        kind = "server_error" if self.status >= FIRST_SERVER_ERROR else "invalid_request_error"
        return TYPES.get(self.status, kind)

    @property
    def body(self) -> bytes:
        """The error as JSON."""
        error = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return msgspec.json.encode({"error": error})

    @property
    def headers(self) -> tuple[tuple[bytes, bytes], ...]:
        """Headers beside the content type."""
        if self.retry_after is None:
            return ()
        return ((b"retry-after", f"{self.retry_after:g}".encode()),)


def read(decoder: msgspec.json.Decoder[Asked], body: bytes) -> Asked | Refusal:
    """Decode a request body: 400 for what is no JSON, 422 for a wrong type."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        return Refusal(422, f"Invalid request: {error}", code="invalid_type")
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Refusal(
            400, "We could not parse the JSON body of your request.", code="invalid_json"
        )
