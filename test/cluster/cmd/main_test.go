package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	dir := t.TempDir()
	tests := map[string]struct {
		args           []string
		status         int
		stdout, stderr string // substrings of the outputs; "" matches only an empty output
	}{
		"help goes to standard output":        {[]string{"--help"}, 0, "examples:", ""},
		"help of a command":                   {[]string{"up", "--help"}, 0, "", "examples:"},
		"nothing is a usage error":            {nil, 2, "", "usage:"},
		"an unknown command is named":         {[]string{"launch"}, 2, "", `no command "launch"`},
		"an unknown version is refused":       {[]string{"down", "--kube", "v1.2"}, 2, "", "no Kubernetes v1.2 here"},
		"entering needs a cluster":            {[]string{"enter", "--dir", dir, "true"}, 1, "", "hint: cluster up"},
		"running needs a command":             {[]string{"run"}, 2, "", "run needs a command"},
		"a cluster that is down can be ended": {[]string{"down", "--dir", dir}, 0, "", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if status := run(tt.args, &stdout, &stderr); status != tt.status {
				t.Errorf("exit status %d, want %d", status, tt.status)
			}
			for stream, got := range map[string]struct{ text, want string }{
				"stdout": {stdout.String(), tt.stdout}, "stderr": {stderr.String(), tt.stderr},
			} {
				if (got.want == "") != (got.text == "") || !strings.Contains(got.text, got.want) {
					t.Errorf("%s is %q, want %q in it", stream, got.text, got.want)
				}
			}
		})
	}
}
