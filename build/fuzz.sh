#!/bin/sh
# fuzz.sh TIME: runs every fuzz target of every module for TIME ("60s"), one on each core, and names those with a
# failing input at its end.
# fuzz.sh TIME DIR TARGET: runs one of them.
set -eu
[ $# -eq 1 ] || [ $# -eq 3 ] || { echo "usage: build/fuzz.sh TIME [DIR TARGET], for example build/fuzz.sh 60s" >&2; exit 2; }

if [ $# -eq 1 ]; then
	FAILED=$(mktemp)
	export FAILED
	trap 'rm -f "$FAILED"' EXIT
	grep -rE '^func Fuzz' --include='*_test.go' . |
		sed -E 's|/[^/]*_test.go:func (Fuzz[A-Za-z0-9]+).*| \1|' | sort |
		xargs -n 2 -P "$(nproc)" "$0" "$1" && exit
	echo "failing inputs: $(tr '\n' ' ' <"$FAILED")" >&2
	exit 1
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ${GO:-go} -C "$2" test -run '^$' -fuzz "^$3\$" -fuzztime "$1" -parallel 1 -fuzzminimizetime 10x . >"$log" 2>&1; then
	echo "$2 $3: $(tail -n 1 "$log")"
elif grep -q 'context deadline exceeded' "$log" && ! grep -q 'Failing input' "$log"; then
	echo "$2 $3: no failing input: the time ended while Go was at work (https://go.dev/issue/75804)"
else
	tail -n 30 "$log"
	echo "$2 $3" >>"${FAILED:-/dev/null}"
	exit 1
fi
