package shell

import (
	"strings"
	"testing"
)

// A command line waits for the commands of its loops, if it does nothing else.
func TestAwaits(t *testing.T) {
	for script, want := range map[string]string{
		"until nslookup db >/dev/null 2>&1; do echo waiting; sleep 2; done":                      "nslookup db",
		"echo begin; while ! nc -z -w 2 db 5432 </dev/null; do sleep 1; done; echo done; exit 0": "nc -z -w 2 db 5432",
		"until [ -f /shared/ready ]; do sleep 1; done":                                           "[ -f /shared/ready ]",
		"for i in $(seq 1 60); do curl -sf http://auth:8080/health && break; sleep 2; done":      "curl -sf http://auth:8080/health",
		"while true; do if pg_isready -h db; then break; fi; sleep 1; done":                      "pg_isready -h db",
		"until nc db 5432; do sleep 1; done; until nc cache 6379; do sleep 1; done":              "nc db 5432, nc cache 6379",
		"until nc db 5432; do sleep 1; done; migrate up":                                         "",
		"until nc db 5432; do sleep 1; done &":                                                   "",
		"while true; do date; sleep 5; done":                                                     "",
		"while read line; do echo $line; done":                                                   "",
		"sleep 30":                                                                               "",
		"until nc db 5432; do":                                                                   "",
	} {
		if got := strings.Join(Awaits([]string{"sh", "-c", script}), ", "); got != want {
			t.Errorf("%s: %q, want %q", script, got, want)
		}
	}
	for line, want := range map[string]string{"/wait-for-it.sh db:5432 -t 0": "/wait-for-it.sh db:5432 -t 0", "wait4x tcp db:5432": "wait4x tcp db:5432", "tini -- wait-for db:5432": "tini -- wait-for db:5432", "/app serve": "", "waitress-serve": ""} {
		if got := strings.Join(Awaits(strings.Fields(line)), ", "); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}
