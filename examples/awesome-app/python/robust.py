"""awesome-app, robust: it starts at once with the settings that are available locally, and uses
those of the configuration server when they arrive.
"""

import http.client
import os
import random
import socket
import threading
import time
import urllib.parse

import app

EMBEDDED = "level=INFO\n"
LIMIT, SIZE = 2, 64 << 10  # limits of one fetch, in seconds and in bytes
FIRST, LONGEST = 0.5, 300  # longest pause before the first retry, which doubles, and its maximum, in seconds


def fetch(url):
    """Return the document, or raise, within LIMIT seconds for connecting and LIMIT for the rest."""
    u = urllib.parse.urlsplit(url)
    make = http.client.HTTPSConnection if u.scheme == "https" else http.client.HTTPConnection
    connection = make(u.netloc, timeout=LIMIT)
    connection.connect()
    # The socket timeout applies to each read alone, so a slow response could take for ever without this.
    end = threading.Timer(LIMIT, connection.sock.shutdown, [socket.SHUT_RDWR])
    end.start()
    try:
        connection.request("GET", urllib.parse.urlunsplit(("", "", u.path or "/", u.query, "")))
        answer = connection.getresponse()
        if answer.status != 200:
            raise ValueError(f"the centre answers {answer.status} {answer.reason}")
        body = answer.read(SIZE + 1)
        if len(body) > SIZE:
            raise ValueError(f"the answer has more than {SIZE} bytes")
        if end.finished.is_set():
            raise TimeoutError(f"no answer within {LIMIT} s")
        if answer.length != 0 and not answer.chunked:
            raise ValueError("the answer may be cut off")
        return body.decode()
    finally:
        end.cancel()
        connection.close()


class Settings:
    """The settings in use. A good document replaces them; after any error they stay."""

    def __init__(self, url, refresh, last_good):
        self.url, self.refresh, self.last_good = url, refresh, last_good
        self.use(EMBEDDED, "embedded")
        if last_good and os.path.exists(last_good):
            try:
                with open(last_good, encoding="utf-8") as f:
                    self.use(f.read(SIZE), "last good")
            except (OSError, ValueError) as e:
                app.log.warning("%s is passed over: %s", last_good, e)
        if url:
            threading.Thread(target=self.follow, daemon=True).start()

    def use(self, document, source):
        level = app.parse(document)
        if (level, source) != getattr(self, "state", ())[:2]:
            app.log.info("log settings in use: level %s, source %s", level, source)
        app.log.setLevel(level)
        self.state = app.State(level, source)

    def follow(self):
        """Fetch for ever. Pauses are random, so that processes that start together do not fetch together."""
        failures = 0
        while True:
            try:
                document = fetch(self.url)
                self.use(document, "provider")
                self.keep(document)
                failures = 0
                pause = self.refresh * random.uniform(0.5, 1.5)
            except Exception as e:  # catches everything, because this thread must never end
                app.log.warning("log settings stay as they are: %s: %s", self.url, e)
                self.state = self.state._replace(error=str(e) or type(e).__name__)
                pause = random.uniform(0, min(FIRST * 2 ** min(failures, 16), LONGEST))
                failures += 1
            time.sleep(pause)

    def keep(self, document):
        """Store the last good document. The file always contains the previous or the new one as a whole."""
        if not self.last_good:
            return
        try:
            with open(self.last_good + ".tmp", "w", encoding="utf-8") as f:
                f.write(document)
            os.replace(self.last_good + ".tmp", self.last_good)
        except OSError as e:  # such as a full disk: the document is in use anyway
            app.log.warning("%s is not written: %s", self.last_good, e)


def main():
    url, refresh = os.environ.get("CONFIG_URL", ""), os.environ.get("REFRESH") or "60"
    if url and not url.startswith(("http://", "https://")):
        app.refuse(f"CONFIG_URL is {url!r}; it must begin with http:// or https://")
    if not refresh.isdigit() or not 1 <= int(refresh) <= 9999:
        app.refuse(f"REFRESH is {refresh!r}; it must be a number of seconds, from 1 to 9999")
    app.log.info("starting awesome-app with log settings from %s", url or "nowhere")
    settings = Settings(url, int(refresh), os.environ.get("LAST_GOOD"))
    app.serve(lambda: settings.state)


main()
