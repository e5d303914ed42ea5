package podspec

import "testing"

func TestSameProgram(t *testing.T) {
	sh := func(script string) []string { return []string{"sh", "-c", script} }
	for name, tt := range map[string]struct {
		before, after []string
		want          bool
	}{
		"nothing changes":                 {sh("a; b"), sh("a; b"), true},
		"a wait is left out":              {sh("a; b"), sh("b"), true},
		"a wait with && is left out":      {sh("a && b && c"), sh("a && c"), true},
		"a wait between two":              {sh("a; w; b"), sh("a; b"), true},
		"a wrapper is taken off":          {[]string{"wait-for", "db:1", "--", "app", "x"}, []string{"app", "x"}, true},
		"the last by exec":                {sh("a; B=1 b c"), sh("a; B=1 exec b c"), true},
		"the whole command is gone":       {[]string{"app"}, nil, false},
		"a script becomes its argument":   {sh("a"), []string{"a"}, false},
		"another statement":               {sh("a; b"), sh("a; c"), false},
		"the last is left out":            {sh("a; b"), sh("a"), false},
		"what decides about || is gone":   {sh("a || b; c"), sh("b; c"), false},
		"what || decides about is gone":   {sh("a || b; c"), sh("a || c"), false},
		"the end of a pipe is gone":       {sh("a | b; c"), sh("a | c"), false},
		"what always ran has a condition": {sh("a && w; b"), sh("a && b"), false},
		"the last runs in the background": {sh("w; b"), sh("b &"), false},
		"another shell":                   {sh("a; b"), []string{"bash", "-c", "b"}, false},
		"other arguments":                 {append(sh("w; b"), "x"), append(sh("b"), "y"), false},
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
