package shell

import "testing"

func TestSameProgram(t *testing.T) {
	sh := func(script string) []string { return []string{"sh", "-c", script} }
	for name, tt := range map[string]struct {
		before, after []string
		want          bool
	}{
		"nothing changes":                 {sh("a; b"), sh("a; b"), true},
		"a wait is left out":              {sh("sleep 1; b"), sh("b"), true},
		"a wait with && is left out":      {sh("a && sleep 1 && c"), sh("a && c"), true},
		"a wait between two":              {sh("a; sleep 1; b"), sh("a; b"), true},
		"a wrapper is taken off":          {[]string{"wait-for", "db:1", "--", "app", "x"}, []string{"app", "x"}, true},
		"the last by exec":                {sh("a; B=1 b c"), sh("a; B=1 exec b c"), true},
		"the whole command is gone":       {[]string{"app"}, nil, false},
		"a script becomes its argument":   {sh("a"), []string{"a"}, false},
		"another statement":               {sh("a; b"), sh("a; c"), false},
		"the last is left out":            {sh("a; b"), sh("a"), false},
		"a wait before the end of a job":  {sh("sleep 5; app; curl localhost:1/quit; exit $rc"), sh("app; curl localhost:1/quit; exit $rc"), true},
		"a line that goes on":             {sh("sleep 5 && \\\n  app \\\n x"), sh("app \\\n x"), true},
		"a program that waits":            {sh("pilot-agent wait; app"), sh("app"), true},
		"a pause after the work":          {sh("migrate; sleep 3600; echo done"), sh("migrate; echo done"), false},
		"work is left out":                {sh("a; b"), sh("b"), false},
		"a pause that is all":             {sh("sleep 3600; echo done"), sh("echo done"), false},
		"a pause before an end":           {sh("sleep 5 && exit 1"), sh("exit 1"), false},
		"what decides about || is gone":   {sh("a || b; c"), sh("b; c"), false},
		"what || decides about is gone":   {sh("a || b; c"), sh("a || c"), false},
		"the end of a pipe is gone":       {sh("a | b; c"), sh("a | c"), false},
		"what always ran has a condition": {sh("a && w; b"), sh("a && b"), false},
		"the last runs in the background": {sh("sleep 1; b"), sh("b &"), false},
		"another shell":                   {sh("a; b"), []string{"bash", "-c", "b"}, false},
		"other arguments":                 {append(sh("sleep 1; b"), "x"), append(sh("b"), "y"), false},
		"exec before the end":             {sh("a; b"), sh("exec a; b"), false},
		"exec of a builtin":               {sh("a; cd /"), sh("a; exec cd /"), false},
		"exec behind a trap":              {sh("trap x EXIT; b"), sh("trap x EXIT; exec b"), false},
		"exec of a function":              {sh("b() { a; }; b"), sh("b() { a; }; exec b"), false},
		"exec of what is substituted":     {sh("$(a)"), sh("exec $(a)"), false},
		"a script that no shell reads":    {sh("a; ("), sh("("), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := SameProgram(tt.before, tt.after); got != tt.want {
				t.Errorf("%q and %q: %t, want %t", tt.before, tt.after, got, tt.want)
			}
		})
	}
}

// SameProgram ignores loops that only wait, in the forms that people write. It does not ignore a loop that does
// more than that.
func TestOnlyWaits(t *testing.T) {
	const h = "curl -sf localhost:15021/healthz/ready"
	for loop, want := range map[string]bool{
		"until " + h + "; do sleep 1; done":                                                                           true,
		"until " + h + " > /dev/null 2>&1; do echo waiting; sleep 1; done":                                            true,
		"for i in $(seq 1 30); do " + h + " && break; sleep 1; done":                                                  true,
		"while ! nc -z 127.0.0.1 15021; do sleep 0.5; done":                                                           true,
		"until curl -s -o /dev/null -w '%{http_code}' http://localhost:15020/app-health | grep 200; do sleep 1; done": true,
		"until wget -qO- http://localhost:15021/healthz/ready; do sleep 1; done":                                      true,
		"until (: > /dev/tcp/localhost/15021) 2>/dev/null; do sleep 1; done":                                          true,
		"n=0; until " + h + "; do n=$((n+1)); [ $n -gt 9 ] && exit 1; sleep 1; done":                                  true,
		"for i in 1 2; do if " + h + "; then exec myapp; fi; sleep 1; done":                                           false,
		"for i in 1 2; do " + h + " && myapp && break; sleep 1; done":                                                 false,
		"until " + h + "; do migrate; sleep 1; done":                                                                  false,
		"for i in 1 2; do " + h + " || exit 0; sleep 1; done":                                                         false,
		"until " + h + " && nc -z db 5432; do sleep 1; done":                                                          false,
		"until " + h + " && fetch http://config/x > /cfg; do sleep 1; done":                                           false,
		"until " + h + " -o /data/f; do sleep 1; done":                                                                false,
		"until " + h + " | tee /data/f; do sleep 1; done":                                                             false,
		"while true; do if " + h + "; then touch /f; break; fi; sleep 1; done":                                        false,
		"while true; do if " + h + "; then export READY=yes; break; fi; sleep 1; done":                                false,
		"while read l; do " + h + "; done < /file":                                                                    false,
		"until curl -sf -X POST 'localhost:15000/logging?level=debug'; do sleep 1; done":                              false,
		"until curl -s localhost:15000/config_dump | grep -q my-cluster; do sleep 1; done":                            false,
		"until curl -sfd x localhost:15021/healthz/ready; do sleep 1; done":                                           false,
	} {
		all := Statements(loop + "\nexec myapp")
		got := true
		for _, s := range all[:len(all)-1] {
			got = got && (!s.IsLoop() || onlyWaits(loop+"\nexec myapp", s))
		}
		if got != want {
			t.Errorf("%s: only waits: %t, want %t", loop, got, want)
		}
	}
	for script, want := range map[string]bool{
		"until READY=$(" + h + "); do sleep 1; done; export READY; myapp":                             false,
		"for i in 1 2; do " + h + " && break; done; if [ \"$i\" -eq 2 ]; then exit 1; fi; exec myapp": false,
		"until n=$(" + h + "); do sleep 1; done; exec myapp":                                          true,
	} {
		if got := onlyWaits(script, Statements(script)[0]); got != want {
			t.Errorf("%s: only waits: %t, want %t", script, got, want)
		}
	}
}
