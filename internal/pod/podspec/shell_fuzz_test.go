package podspec

import (
	"strings"
	"testing"
)

// Any script can be read, and each call stands where it says.
func FuzzCalls(f *testing.F) {
	for _, script := range []string{"a && exec b --c", "until nc -z db 5432; do sleep 1; done; /app", "x=$(curl \"$URL\") | tee /log", "if [ -f /a ]; then timeout 3 env A=b wget c; fi &", "[[ -d /var/lib/mysql ]] || 'my sqld' 1>&2", "f() { a; }; f", "case $1 in a) b;; esac; exec -a n c", "-d"} {
		f.Add(script)
	}
	f.Fuzz(func(t *testing.T, script string) {
		argv := []string{"tini", "--", "sh", "-ec", script, "name"}
		calls := Calls(argv)
		finals := 0
		for _, c := range calls {
			isOption := strings.HasPrefix(script, "-") || strings.HasPrefix(script, "+")
			if !isOption && (c.Program == "" || c.Word != 4 || c.At < 0 || c.At >= len(script)) {
				t.Errorf("%q: %+v", script, c)
			}
			if c.Final {
				finals++
			}
		}
		if finals > 1 {
			t.Errorf("%q: %d final calls", script, finals)
		}
		Calls(strings.Fields(script))
	})
}
