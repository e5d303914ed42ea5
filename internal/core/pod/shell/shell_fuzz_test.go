package shell

import (
	"strings"
	"testing"
)

// A script that nests too deeply is not parsed, because the parser would overflow the stack, which ends the
// process.
func TestDeepScripts(t *testing.T) {
	for _, begin := range []string{"$(", "(", "{ ", "`", "\"$(", "$((", "${a:-", "if ", "if a; then ", "while a; do ", "for a in b; do ", "case a in b) ", "a && ", "a | ", "! ", "[[ ! ", "time ", "f() ", "a[", "<(", "if a; then b; elif "} {
		for _, n := range []int{maxLevels + 1, 500_000} {
			if got := Statements(strings.Repeat(begin, n)); got != nil {
				t.Errorf("%d times %q: %d statements", n, begin, len(got))
			}
		}
	}
	deep := strings.Repeat("if a; then ", maxLevels) + "b" + strings.Repeat("; fi", maxLevels)
	if got := Statements(deep); len(got) != 1 {
		t.Errorf("%d levels: %d statements", maxLevels, len(got))
	}
	Statements("echo $((" + strings.Repeat("-", maxScript-20) + "1))") // each sign begins a level, and almost all bytes are signs
}

// Any script can be read without a panic, and the position of each call is correct.
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
		Endless(argv)
	})
}

func FuzzStatements(f *testing.F) {
	f.Add("set -e; until curl -f http://localhost:15021/healthz/ready >/dev/null 2>&1; do sleep 1; done && exec java -jar '/a b.jar' # run")
	f.Add("while ! nc -z 127.0.0.1 15021\ndo\nsleep 1\ndone\n/app \"$@\"")
	f.Fuzz(func(t *testing.T, text string) {
		at := 0
		for _, s := range Statements(text) {
			if s.Start < at || s.End < s.Start || s.End > len(text) || len(s.words) == 0 {
				t.Fatalf("statement %+v after %d in %q", s, at, text)
			}
			at = s.End
			s.PolledPort()
			s.Sleeps()
			s.Neutral()
			s.Loops()
		}
	})
}
