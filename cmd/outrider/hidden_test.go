package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// evil is a text that would move a terminal's cursor, set its title, hide text, and change the direction of writing,
// by C0, C1 and Unicode characters.
const evil = "e\x1b[2Jv\x1b]0;t\x07i\u009b8ml\u202e\x7f\x1b[8m"

// quoted is evil, escaped for YAML and JSON.
const quoted = `e\u001b[2Jv\u001b]0;t\u0007i\u009b8ml\u202e\u007f\u001b[8m`

// acts matches everything to which a terminal would react, except our own colours.
var acts = regexp.MustCompile(`[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f\x{80}-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]|\x1b([^\[]|\[[^0-3]|\[[0-9;]*[^m0-9;])`)

// manifests contains manifests with the placeholder E in every field that a command may print. The test replaces E by
// control characters.
var manifests = map[string]string{
	"a pod": `{"apiVersion": "v1", "kind": "Pod", "E": 1, "metadata": {"name": "E", "namespace": "E", "E": 1, "labels": {"E": "E", "outrider.dev/inject": "true"}, "annotations": {"E": "E"}},
"spec": {"E": 1, "containers": [{"name": "E", "image": "E", "E": 1, "command": ["sh", "-c", "sleep 5; E exec app"], "env": [{"name": "E", "value": "E"}], "ports": [{"name": "E", "containerPort": 15090}]},
{"name": "istio-proxy", "image": "E", "args": ["proxy", "E"]}], "volumes": [{"name": "E", "emptyDir": {}}]}}`,
	"names that are in order": `{"apiVersion": "v1", "kind": "Pod", "E": 1, "metadata": {"name": "p", "annotations": {"E": "E"}},
"spec": {"E": 1, "containers": [{"name": "app", "image": "E", "E": 1, "command": ["sh", "-c", "sleep 5; E exec app"]}, {"name": "istio-proxy", "image": "E", "args": ["proxy", "E"]}]}}`,
	"an annotation of ours":   `{"kind": "Pod", "metadata": {"name": "p", "annotations": {"outrider.dev/depends-on.app": "E", "outrider.dev/E": "E", "proxy.istio.io/config": "E"}}, "spec": {"containers": [{"name": "app", "image": "a"}]}}`,
	"another kind":            `{"apiVersion": "v1", "kind": "E", "metadata": {"name": "E"}}`,
	"a value that is no text": `{"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "app", "image": "a", "args": "E"}]}}`,
	"a field twice":           "kind: Pod\n\"E\": 1\n\"E\": 2\n",
	"no YAML":                 "kind: \x1b[2J\n",
	"an alias":                "kind: *E\n",
	"a tag":                   "kind: !!E x\n",
}

// remote returns the URL of a control plane whose responses all contain evil.
func remote(t *testing.T) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("id") == "fail" {
			http.Error(w, evil, http.StatusTeapot)
			return
		}
		if strings.HasSuffix(r.URL.Path, "/proxies") {
			fmt.Fprint(w, strings.ReplaceAll(`[{"id": "E", "protocol": "E", "types": [{"type": "E", "sent": "E", "acked": "E", "subscribed": ["E"], "rejected": {"version": "E", "reason": "E"}}]}]`, "E", quoted))
			return
		}
		fmt.Fprint(w, strings.ReplaceAll(`[{"type": "E", "name": "E", "version": "E", "body": {"name": "E", "E": "E"}}]`, "E", quoted))
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// commands lists all commands that print text from manifests. FILE stands for the name of a manifest.
func commands(url string) [][]string {
	all := [][]string{
		{"plan", "-f", "FILE"}, {"plan", "-f", "FILE", "--advise"}, {"plan", "-f", "FILE", "-o", "dot"}, {"plan", "-f", "FILE", "-o", "svg"}, {"plan", "-f", "FILE", "-o", "mermaid"},
		{"simulate", "-f", "FILE"}, {"simulate", "-f", "FILE", "-o", "svg"}, {"simulate", "-f", "FILE", "-o", "html"}, {"simulate", "-f", "FILE", "--with", evil}, {"simulate", "-f", "FILE", "--behaviour", "FILE"},
		{"verify", "-f", "FILE", "--faults", "0"}, {"verify", "-f", "FILE", "--only", evil},
		{"lint", "-f", "FILE", "--injected"}, {"lint", "-f", "FILE", "--only", evil}, {"lint", "--explain", evil},
		{"inject", "-f", "FILE", "-o", os.DevNull}, {"inject", "-f", "FILE", "-o", os.DevNull, "--set", evil}, {"inject", "-f", "FILE", "-o", os.DevNull, "--values", "FILE"}, {"inject", "-f", "FILE", "-o", os.DevNull, "--mesh-config", "FILE"},
		{"run", "-f", "FILE"}, {"run", "-f", "FILE", "--pod", evil}, {"run", "-f", "FILE", "--network", evil}, {"run", "-f", "FILE", "--entrypoint", evil},
		{"rules", "-b", evil}, {"rules", "-x", evil}, {"rules", "--explain", "--to", evil}, {"rules", "-m", evil},
		{"proxy-status", "--control-plane-http", url}, {"proxy-status", "-f", "FILE"}, {"proxy-status", evil, "--control-plane-http", url},
		{"proxy-config", evil, "all", "--control-plane-http", url}, {"proxy-config", "fail", "all", "--control-plane-http", url}, {"proxy-config", "x", evil},
		{evil}, {"plan", "--" + evil}, {"plan", evil}, {"plan", "-f", evil}, {"plan", "-f", "FILE", "-o", evil}, {"demo", "--act", evil}, {"demo", "--agent", evil},
	}
	return all
}

// No control character of a manifest or file name reaches the terminal, neither in the output nor in errors.
func TestNothingActsOnATerminal(t *testing.T) {
	url := remote(t)
	for name, text := range manifests {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), evil+".yaml") // the name of a file may be hostile too
			if err := os.WriteFile(file, []byte(strings.ReplaceAll(text, "E", quoted)), 0o644); err != nil {
				t.Fatal(err)
			}
			for _, c := range commands(url) {
				if c[0] == "run" && name == "names that are in order" {
					continue // this command would run the pod
				}
				args := strings.Split(strings.ReplaceAll(strings.Join(c, "\n"), "FILE", file), "\n")
				status, stdout, stderr := command(args...)
				for where, text := range map[string]string{"output": stdout, "error": stderr} {
					if at := acts.FindStringIndex(text); at != nil {
						t.Errorf("%q: status %d, %s: %q", c, status, where, text[max(0, at[0]-80):min(len(text), at[1]+40)])
					}
				}
			}
		})
	}
}

// Commands that print manifests keep all bytes if the output is a pipe, but make control characters harmless if it
// is a terminal.
func TestManifestsAtATerminal(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pod.yaml")
	if err := os.WriteFile(file, []byte("kind: Pod\nmetadata: {name: a, annotations: {a: 'b\u202ec\u0085'}}\nspec: {containers: [{name: app, image: a, command: [/app]}]}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	const sentinel = "(the end of what is printed)"
	master, slave := terminal(t)
	for _, args := range [][]string{{"inject", "-f", file}, {"inject", "-f", file, "--diff"}, {"lint", "-f", file, "--fix"}} {
		if _, stdout, _ := command(args...); !strings.Contains(stdout, "\u202e") {
			t.Errorf("%q: a pipe gets other bytes than the file has: %q", args, stdout)
		}
		done := make(chan string)
		go func() {
			var all []byte
			for buffer := make([]byte, 4096); !strings.Contains(string(all), sentinel); {
				n, err := master.Read(buffer)
				if all = append(all, buffer[:n]...); err != nil {
					break
				}
			}
			done <- string(all)
		}()
		run(args, slave, slave)
		fmt.Fprintln(slave, sentinel)
		if got := strings.ReplaceAll(<-done, "\r\n", "\n"); acts.MatchString(got) || !strings.Contains(got, `b\u202ec`) {
			t.Errorf("%q: a terminal gets %q", args, got)
		}
	}
}

// terminal opens a pseudoterminal.
func terminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("needs pseudo terminals: %v", err)
	}
	t.Cleanup(func() { master.Close() })
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	return master, slave
}
