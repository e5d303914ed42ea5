package cli

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

func TestReadOfAURL(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/values.yaml" {
			http.NotFound(w, r)
			return
		}
		w.Write([]byte("a: 1\n"))
	}))
	defer server.Close()
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	name, data, err := Read(cmd, server.URL+"/values.yaml")
	if err != nil || string(data) != "a: 1\n" || name != server.URL+"/values.yaml" {
		t.Errorf("%s: %q, %v", name, data, err)
	}
	if _, data, err := Read(cmd, server.URL+"/other"); err == nil || !strings.Contains(err.Error(), "404") || len(data) > 0 {
		t.Errorf("what is not there: %q, %v", data, err)
	}
}

func TestExpand(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"b.yaml", "a.yml", ".hidden.yaml", "text.txt", "below/c.json", ".git/d.yaml"} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Expand([]string{"-", "https://example.com/a", dir, "missing"})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"-", "https://example.com/a", dir + "/a.yml", dir + "/b.yaml", dir + "/below/c.json", "missing"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := Expand([]string{t.TempDir()}); err == nil {
		t.Error("an empty folder is accepted")
	}
}

func TestProgress(t *testing.T) {
	steps := func(p *Progress) {
		p.Wait("0 of 2")
		p.Wait("0 of 2")
		p.Wait("1 of 2, which is more than fits")
		p.Step("ready:\n\x1b[2Jall")
		p.Wait("more")
		p.End()
		p.End()
	}
	var log, terminal strings.Builder
	steps(NewProgress(&log))
	if want := "0 of 2\n1 of 2, which is more than fits\nready: \\x1b[2Jall\nmore\n"; log.String() != want {
		t.Errorf("in a log:\n%q\nwant\n%q", log.String(), want)
	}
	steps(&Progress{w: &terminal, terminal: true, columns: 10})
	const clear = "\r\x1b[K"
	if want := "0 of 2" + clear + "1 of 2, w" + clear + "ready: \\x1b[2Jall\n" + "more\n"; terminal.String() != want {
		t.Errorf("on a terminal:\n%q\nwant\n%q", terminal.String(), want)
	}
}

// The command that NeedsLinux returns is listed and has help. Running it is a usage error, with any flags.
func TestNeedsLinux(t *testing.T) {
	for name, tt := range map[string]struct {
		args   []string
		status int
		want   string
	}{
		"alone":      {[]string{"run"}, Misused, "outrider: error: outrider run needs Linux"},
		"with flags": {[]string{"run", "-f", "pod.yaml", "--duration=10s", "-o", "json"}, Misused, "outrider: error: outrider run needs Linux"},
		"its help":   {[]string{"run", "--help"}, OK, "run a pod (needs Linux)"},
		"the list":   {[]string{"--help"}, OK, "run a pod (needs Linux)"},
	} {
		t.Run(name, func(t *testing.T) {
			root := &cobra.Command{Use: "outrider"}
			root.AddCommand(NeedsLinux("run", "run a pod"), VersionCommand())
			var out bytes.Buffer
			if status := Run(root, tt.args, &out, &out, nil); status != tt.status || !strings.Contains(out.String(), tt.want) {
				t.Errorf("status %d, want %d and %q:\n%s", status, tt.status, tt.want, &out)
			}
		})
	}
}
