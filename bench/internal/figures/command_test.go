package figures

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	for name, tt := range map[string]struct {
		args   []string
		err    error
		status int
		says   string
	}{
		"measured":       {[]string{"-n=2"}, nil, 0, ""},
		"help":           {[]string{"-help"}, nil, 0, "  -n int"},
		"failed":         {nil, errors.New("no Envoy"), 1, "bench/x: error: no Envoy\n"},
		"a list":         {nil, func() error { _, err := Numbers("sizes", "1,x", 0, 9); return err }(), 2, `bench/x: error: -sizes: "x" is not a number from 0 to 9`},
		"too little":     {[]string{"-n=0"}, nil, 2, "bench/x: error: -n=0: want 1 or more\n"},
		"no such flag":   {[]string{"-m"}, nil, 2, "flag provided but not defined: -m"},
		"something else": {[]string{"fast"}, nil, 2, `bench/x: error: "fast": there are flags only`},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			fs := Flags("x", &out)
			fs.Int("n", 1, "runs")
			status := Run(fs, tt.args, func() error { return errors.Join(Positive(fs, "n"), tt.err) })
			if status != tt.status || !strings.Contains(out.String(), tt.says) {
				t.Errorf("status %d, %q; want %d, %q", status, out.String(), tt.status, tt.says)
			}
		})
	}
}
