package contract

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"outrider.dev/test/formats"
)

// The webhook of one version writes these, and the node and the agent of another one read them.
func TestFormats(t *testing.T) {
	gate := Gate{Name: "app", States: "/s", Own: "/o", After: []string{"cache is healthy, within 20s or continue"}, At: map[string]string{"b": "http://x/?a=b", "c": "http://y/"},
		Probe: `{"tcpSocket":{"port":1}}`, StartupProbe: `{"exec":{}}`, LivenessDelay: 20 * time.Second, PostStart: "{}", Notify: "fd=4", RestartPolicy: "Never", StopGrace: 90 * time.Second, PreStop: true,
		HelperOf: []string{"a", "b"}, StopSignal: "SIGUSR1", NotifySignal: "HUP"}
	work := NodeWork{Capture: []string{"-p", "15001", "-i", "*"}, Containers: map[string][]string{"app": gate.Args(), ProxyContainer: nil}}
	formats.Check(t, "node-work", work.String(), func(text string) (string, error) {
		w, err := ParseNodeWork(text)
		return w.String(), err
	})
	gate.Command = []string{"java", "--after", "--", "x"}
	held := Held{Name: "app", States: "/s", Probe: "{}", Command: []string{"x"}}
	for name, c := range map[string]struct {
		args  []string
		parse func([]string) ([]string, bool)
	}{
		"gate": {gate.Args(), func(a []string) ([]string, bool) { g, ok := ParseGate(a); return g.Args(), ok }},
		"held": {held.Args(), func(a []string) ([]string, bool) { h, ok := ParseHeld(a); return h.Args(), ok }},
		"started": {Started{Name: "app", States: "/s"}.Args(), func(a []string) ([]string, bool) {
			s, ok := ParseStarted(a)
			return s.Args(), ok
		}},
	} {
		line := func(args []string) string { text, _ := json.Marshal(args); return string(text) } // there are only strings
		formats.Check(t, name, line(c.args), func(text string) (string, error) {
			var args []string
			if err := json.Unmarshal([]byte(text), &args); err != nil {
				return "", err
			}
			back, ok := c.parse(args)
			if !ok {
				return "", errors.New("it is refused")
			}
			return line(back), nil
		})
	}
}

// gone lists names of the previous version without a meaning in this one, and why nothing of the previous version misses
// them.
var gone = map[string]string{
	"192.0.2.1":   "an agent proves its capture to itself, and now to any address of 192.0.2.0/24",
	"2001:db8::1": "the same",
	"on-demand":   "OUTRIDER_PUSH: every proxy gets what it uses",
	"full":        "OUTRIDER_PUSH: agents that set it are served what they use",
	"push":        "the annotation outrider.dev/push: injection ignores it, with a warning",
	"SILENT":      "the metadata of an agent with a port for silent connections, which only improves listeners",
	"silent":      "the cluster of the bootstrap for that port",
}

// Each name on which the parts of the previous version agree has the same text in this one: annotations, labels, files,
// keys, Secrets, ConfigMaps, Leases, metadata of nodes. testdata/formats/names was written from faa55d1c.
func TestNames(t *testing.T) {
	file := filepath.Join("testdata", "formats", "names")
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	now := texts(t)
	for name := range strings.Lines(string(before)) {
		name = strings.TrimSuffix(name, "\n")
		if _, there := now[name]; !there && gone[name] == "" {
			t.Errorf("%q is a name of the previous version, whose parts still write and read it (docs/support.md): read the former name for one release, and write it, or say in gone why nothing misses it", name)
		}
	}
}

// texts returns all texts in declarations of constants and variables of the package.
func texts(t *testing.T) map[string]bool {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok == token.IMPORT {
				continue
			}
			ast.Inspect(g, func(n ast.Node) bool {
				if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
					text, err := strconv.Unquote(l.Value)
					if err != nil {
						t.Fatal(err)
					}
					out[text] = true
				}
				return true
			})
		}
	}
	if len(out) < 100 {
		t.Fatalf("%d names: %v", len(out), slices.Sorted(maps.Keys(out)))
	}
	return out
}
