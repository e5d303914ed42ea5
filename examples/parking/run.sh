#!/usr/bin/env bash
# Shows, in a network namespace of its own, what an app sees when its proxy comes late:
# without parking, with parking, and when the proxy dies and comes back. About 5 seconds;
# nothing on the machine is changed. See README.md.
set -euo pipefail
export LC_ALL=C

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

fail() {
	printf 'parking demo: %s\n' "$*" >&2
	exit 1
}

end() {
	local running
	running=$(jobs -pr)
	# shellcheck disable=SC2086 # one word each
	[[ -z $running ]] || kill $running 2>/dev/null || true
	rm -rf "$work"
}

# prepare builds the agent, unless there is one, and goes on inside a network namespace
# that has no name: it ends with the processes in it.
prepare() {
	local program
	[[ $EUID == 0 ]] || fail "needs root: it writes packet filter rules in a network namespace"
	for program in unshare ip timeout python3; do
		[[ -n $(type -P "$program") ]] || fail "needs $program"
	done
	agent=${OUTRIDER_AGENT-}
	if [[ -z $agent ]]; then
		[[ -n $(type -P go) ]] || fail "needs go, or OUTRIDER_AGENT=path of outrider-agent"
		echo "building outrider-agent"
		agent=$work/outrider-agent
		(cd "$here" && CGO_ENABLED=0 go build -trimpath -o "$agent" outrider.dev/cmd/outrider-agent)
	fi
	[[ -x $agent ]] || fail "there is no agent at $agent"
	exec unshare --net -- "$BASH" "$here/run.sh" inside "$work" "$(realpath "$agent")"
}

work=${2-}
[[ -n $work ]] || work=$(mktemp -d)
trap end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
[[ ${1-} == inside ]] || prepare
agent=$3

bold='' red='' green='' plain=''
if [[ -t 1 && -z ${NO_COLOR-} ]]; then
	bold=$'\e[1m' red=$'\e[31m' green=$'\e[32m' plain=$'\e[0m'
fi

# The app and the proxy. Both print what happens, and when: seconds since the step began.
# The app's exit status is 0 if it was served, 3 if it was refused.
peers='
import socket, sys, time
role, start, late, red, green, plain = sys.argv[1:]
start = float(start)
def report(text, colour=""):
    print(f"  {time.time() - start:5.2f} s  {role:5}  {colour}{text}{plain}", flush=True)

if role == "proxy":
    time.sleep(max(0, start + float(late) - time.time()))
    with socket.create_server(("127.0.0.1", 15001)) as s:
        report("listens on 127.0.0.1:15001")
        while True:
            c, _ = s.accept()
            c.sendall(b"hello from the proxy\n")
            c.close()

report("connects to 192.0.2.1:80")
try:
    with socket.create_connection(("192.0.2.1", 80), timeout=5) as c:
        report("served: " + c.makefile().readline().strip(), green)
except ConnectionRefusedError:
    report("Connection refused", red)
    sys.exit(3)
except OSError as e:
    sys.exit(f"the app: {e}")
'

peer() { # ROLE SECONDS, in a subshell
	exec timeout 10 python3 -c "$peers" "$1" "$start" "$2" "$red" "$green" "$plain"
}

# app makes one connection, which must end with a status.
app() {
	local status=0
	peer app 0 &
	wait $! || status=$?
	[[ $status == "$1" ]] || fail "the connection should have ended with status $1 (0 served, 3 refused), not $status"
}

proxy() { # starts to listen SECONDS after the begin of the step
	peer proxy "$1" &
	proxy=$!
}

agent() { timeout 10 "$agent" capture "$@"; }

capture() {
	agent -p 15001 -z 15006 -u 1337 -i '*' -b '*' -d 15090,15020 "$@" >"$work/log" 2>&1 ||
		fail "outrider-agent capture has failed: $(<"$work/log")"
	printf '           outrider-agent capture%s: %s\n' "${*:+ $*}" "$(head -n 1 "$work/log")"
}

step() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }

ip link set lo up
ip link add eth0 type veth peer name peer0
ip addr add 10.77.0.2/24 dev eth0
ip link set eth0 up
ip link set peer0 up
ip route add default via 10.77.0.1

step "1. The problem: the redirect is there, the proxy is not"
capture --park=off
start=$EPOCHREALTIME
app 3

step "2. The cure: the same with parking; the proxy listens 1.5 s late"
capture
start=$EPOCHREALTIME
proxy 1.5
app 0

step "3. The proxy dies, an app connects, the proxy is back after 1.5 s"
kill "$proxy"
wait "$proxy" 2>/dev/null || true
start=$EPOCHREALTIME
proxy 1.5
app 0

step "4. What the rules report about themselves: outrider-agent capture verify"
agent verify | sed 's/^/           /'
