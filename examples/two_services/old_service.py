"""The old service: Python, standard library alone. `python old_service.py [PORT]`."""

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PAUSE = 0.02


class Chat(BaseHTTPRequestHandler):
    """Answers `POST /chat/sse` with a stream of events."""

    def do_POST(self) -> None:
        """Stream the reply, a word at a time."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if not body.get("content"):
            self.refuse(404, "message_not_found")
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        said = ""
        self.event(step="ACCEPT")
        self.event(step="START_REPLY")
        for word in f"You said: {body['content']}".split():
            time.sleep(PAUSE)
            said = f"{said} {word}".strip()
            self.event(step="SEND", content=said)
        self.event(step="SUCCESS", content=said)
        self.event(step="END")

    def event(self, **fields: str) -> None:
        """Send one event."""
        self.wfile.write(f"data: {json.dumps(fields)}\n\n".encode())

    def refuse(self, status: int, code: str) -> None:
        """Turn a request down."""
        body = json.dumps({"code": code}).encode()
        self.send_response(status)
        self.send_header("content-type", "application/problem+json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code: int | str = "-", _: int | str = "-") -> None:
        """Print the status and the role of a request."""
        print(f"old service: {code} as {self.headers.get('x-cutover-role')}", flush=True)


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 9001
    server = ThreadingHTTPServer(("127.0.0.1", port), Chat)
    print(f"old service on http://127.0.0.1:{server.server_port}/chat/sse", flush=True)
    server.serve_forever()
