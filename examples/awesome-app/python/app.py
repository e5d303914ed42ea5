"""The parts of awesome-app that do not fetch settings: it logs, and serves.

../README.md describes the behaviour in all languages.
"""

import http.server
import logging
import os
import signal
import sys
import time
from typing import NamedTuple

logging.Formatter.converter = time.gmtime
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
log = logging.getLogger("awesome-app")


class State(NamedTuple):
    """The content of /settings."""

    level: str
    source: str  # source of the settings in use
    error: str = ""  # why the server's settings are not in use


def parse(document):
    """Return the level in a document with lines of the form key=value."""
    fields = dict(line.strip().split("=", 1) for line in document.splitlines() if "=" in line)
    if "level" not in fields:
        raise ValueError("the document has no level")
    if fields["level"] not in ("DEBUG", "INFO", "WARN", "ERROR"):
        raise ValueError(f"level is {fields['level']!r}; it must be DEBUG, INFO, WARN or ERROR")
    return fields["level"]


def refuse(why):
    """End the program because an environment variable is invalid."""
    log.error("awesome-app cannot start: %s", why)
    sys.exit(2)


def serve(state):
    """Serve until SIGTERM. state() must return the present State."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            log.debug("request path=%s", self.path)
            if self.path == "/healthz":
                self.answer(200, "ok\n")
            elif self.path == "/settings":
                self.answer(200, "".join(f"{k}={v}\n" for k, v in state()._asdict().items()))
            else:
                self.answer(404, "not found\n")

        def answer(self, status, text):
            self.send_response(status)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_):
            pass  # not the default, which writes to stderr at any level

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # process 1 of a container ignores SIGTERM without a handler
    with http.server.ThreadingHTTPServer(("", int(os.environ.get("PORT") or 8080)), Handler) as server:
        log.info("awesome-app is ready on port %d", server.server_port)
        server.serve_forever()
