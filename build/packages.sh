#!/bin/sh
# Installs those of the named Debian packages that are missing.
set -eu
missing=
for p in "$@"; do
	dpkg-query -W -f='${Status}\n' "$p" 2>/dev/null | grep -q '^install ok installed' || missing="$missing $p"
done
test -n "$missing" || exit 0
echo "installing$missing" >&2
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $missing
