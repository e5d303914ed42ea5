"""awesome-app as many applications are: it fetches its log settings once, at its start, and exits
if that fails.
"""

import os
import urllib.request

import app

url = os.environ.get("CONFIG_URL", "")
app.log.info("starting awesome-app with log settings from %s", url)
with urllib.request.urlopen(url) as answer:  # the fault: no second try, no limit of time, nothing to go on with
    level = app.parse(answer.read().decode())
app.log.setLevel(level)
app.serve(lambda: app.State(level, "provider"))
