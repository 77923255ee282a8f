"""An OpenAI-compatible endpoint for tests, whose reply depends on the question."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

# (status, body): a body that is text is sent unchanged; None cuts the connection.
Answer = tuple[int, Any]


class Endpoint:
    """The requests that a server got; it replies to each with `answer`."""

    def __init__(self, answer: Callable[[str, int], Answer]):
        self.answer = answer  # takes the user's message and the attempt's number
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.released = threading.Event()  # set when the test ends
        self.url = ""
        self._lock = threading.Lock()

    def handle(self, body: dict[str, Any], headers: dict[str, str]) -> Answer:
        """Records a request and returns its answer."""
        text = body["messages"][-1]["content"]
        with self._lock:
            self.requests.append(body)
            self.headers.append(headers)
            attempt = sum(r["messages"] == body["messages"] for r in self.requests)
        return self.answer(text, attempt)


def says(content: object, status: int = 200) -> Answer:
    """Returns an `answer` whose model replies `content`."""
    return status, {"choices": [{"message": {"content": content}}]}


@contextlib.contextmanager
def serve(answer: Callable[[str, int], Answer]) -> Iterator[Endpoint]:
    """Yields an endpoint that answers on a port of this machine."""
    endpoint = Endpoint(answer)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers["content-length"])
            body = json.loads(self.rfile.read(length))
            assert self.path == "/v1/chat/completions", self.path
            status, said = endpoint.handle(body, dict(self.headers))
            if said is None:
                self.close_connection = True
                return
            data = (said if isinstance(said, str) else json.dumps(said)).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            with contextlib.suppress(ConnectionError):
                self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    endpoint.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield endpoint
    finally:
        endpoint.released.set()
        server.shutdown()
        thread.join()
        server.socket.close()
