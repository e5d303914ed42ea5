package validator

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"outrider.dev/internal/base/contract"
)

const enabled = "[plugins.'io.containerd.nri.v1.nri'.default_validator]\nenable = true\n"

func TestState(t *testing.T) {
	const (
		v3    = "version = 3\nroot = '/var/lib/containerd'\n"
		quiet = "[plugins.'io.containerd.nri.v1.nri']\ndisable = false\n"
	)
	loop := "imports = ['config.toml', 'conf.d/*.toml']\n"
	for name, tt := range map[string]struct {
		files map[string]string
		want  string
		why   string
	}{
		"on":              {map[string]string{"config.toml": v3 + enabled}, contract.ValidatorOn, ""},
		"on, in one line": {map[string]string{"config.toml": "version = 2\nplugins.\"io.containerd.nri.v1.nri\".default_validator.enable = true"}, contract.ValidatorOn, ""},
		"not named":       {map[string]string{"config.toml": v3 + quiet}, contract.ValidatorOff, ""},
		"off":             {map[string]string{"config.toml": strings.Replace(enabled, "true", "false", 1)}, contract.ValidatorOff, ""},
		"another plugin":  {map[string]string{"config.toml": strings.Replace(enabled, "nri.v1", "cri.v1", 1)}, contract.ValidatorOff, ""},
		"by an import":    {map[string]string{"config.toml": "imports = ['conf.d/*.toml']\n" + v3, "conf.d/a.toml": v3, "conf.d/b.toml": enabled}, contract.ValidatorOn, ""},
		"a later false":   {map[string]string{"config.toml": "imports = ['b.toml']\n" + enabled, "b.toml": strings.Replace(enabled, "true", "false", 1)}, contract.ValidatorOn, ""},
		"imports itself":  {map[string]string{"config.toml": loop, "conf.d/a.toml": loop}, contract.ValidatorUnknown, "conf.d/config.toml: no such file"},
		"no file":         {nil, contract.ValidatorUnknown, "no such file"},
		"from elsewhere":  {map[string]string{"config.toml": "imports = ['/usr/share/a.toml']"}, contract.ValidatorUnknown, "imports /usr/share/a.toml, which is not below "},
		"no TOML":         {map[string]string{"config.toml": "password = secret"}, contract.ValidatorUnknown, "config.toml is no configuration of containerd"},
		"written since":   {map[string]string{"config.toml": enabled, "late": ""}, contract.ValidatorRestart, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			socket := filepath.Join(dir, "nri.sock")
			began := time.Now().Add(-time.Hour)
			write(t, socket, "", began)
			for f, text := range tt.files {
				at := began.Add(-time.Minute)
				if _, late := tt.files["late"]; late {
					at = began.Add(time.Minute)
				}
				write(t, filepath.Join(dir, f), text, at)
			}
			got, err := State(filepath.Join(dir, "config.toml"), socket)
			if got != tt.want || (err == nil) != (tt.why == "") || err != nil && (!strings.Contains(err.Error(), tt.why) || strings.Contains(err.Error(), "secret")) {
				t.Errorf("%s, %v; want %s, %q", got, err, tt.want, tt.why)
			}
		})
	}
}

func write(t *testing.T, path, text string, at time.Time) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
}

// For any file the answer is a valid state; it is never "on" unless the file contains the word.
func FuzzState(f *testing.F) {
	f.Add(enabled)
	f.Add("imports = ['*.toml', 'config.toml']")
	f.Add("plugins = 1")
	f.Fuzz(func(t *testing.T, text string) {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "config.toml"), text, time.Now().Add(-time.Hour))
		write(t, filepath.Join(dir, "nri.sock"), "", time.Now())
		got, err := State(filepath.Join(dir, "config.toml"), filepath.Join(dir, "nri.sock"))
		switch {
		case got == contract.ValidatorOn && !strings.Contains(strings.ToLower(text), "true"):
			t.Errorf("%q is on", text)
		case (got == contract.ValidatorUnknown) != (err != nil):
			t.Errorf("%s, %v", got, err)
		}
	})
}
