"""A service that streams as the OpenAI API does. `python service.py [PORT] [NAME]`."""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CLOSING = {"old": "Anything else?", "new": "Is there anything else I can do?"}


class Support(BaseHTTPRequestHandler):
    """Answers `POST /api/support` with a stream of chunks."""

    def do_POST(self) -> None:
        """Stream the reply, a word at a time."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        asked = body["messages"][-1]["content"]
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self.chunk({"role": "assistant", "content": ""})
        for number, word in enumerate(f"You asked: {asked} {CLOSING[name]}".split()):
            if word == "breakdown":
                return  # it crashes in the middle of the answer
            self.chunk({"content": word if number == 0 else f" {word}"})
        self.chunk({}, "stop")
        self.wfile.write(b"data: [DONE]\n\n")

    def chunk(self, delta: dict[str, str], finish: str | None = None) -> None:
        """Send one chunk."""
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        said = {"id": name, "object": "chat.completion.chunk", "choices": [choice]}
        self.wfile.write(f"data: {json.dumps(said)}\n\n".encode())

    def log_request(self, code: int | str = "-", _: int | str = "-") -> None:
        """Print the status and the role of a request."""
        print(f"{name} service: {code} as {self.headers.get('x-cutover-role')}", flush=True)


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 9001
    name = (sys.argv[2:] or ["old"])[0]
    server = ThreadingHTTPServer(("127.0.0.1", port), Support)
    print(f"{name} service on http://127.0.0.1:{server.server_port}/api/support", flush=True)
    server.serve_forever()
