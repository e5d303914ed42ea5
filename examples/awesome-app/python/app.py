"""awesome-app without the way in which it gets its log settings: it logs, and serves.

../README.md has the contract of all languages.
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
    """What /settings shows."""

    level: str
    source: str  # of the settings in use
    error: str = ""  # why they are not the centre's


def parse(document):
    """Return the level of a document: lines of the form key=value."""
    fields = dict(line.strip().split("=", 1) for line in document.splitlines() if "=" in line)
    if "level" not in fields:
        raise ValueError("the document has no level")
    if fields["level"] not in ("DEBUG", "INFO", "WARN", "ERROR"):
        raise ValueError(f"level is {fields['level']!r}; it must be DEBUG, INFO, WARN or ERROR")
    return fields["level"]


def refuse(why):
    """End a program of which a variable cannot work."""
    log.error("awesome-app cannot start: %s", why)
    sys.exit(2)


def serve(state):
    """Serve until SIGTERM. state() is the State now."""

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
            pass  # the default writes to stderr, whatever the level

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # the first process of a container has no default
    with http.server.ThreadingHTTPServer(("", int(os.environ.get("PORT") or 8080)), Handler) as server:
        log.info("awesome-app is ready on port %d", server.server_port)
        server.serve_forever()
