package lint

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/core/pod/inject"
	"outrider.dev/internal/core/pod/podfile"
)

// forms are functions that rewrite one line of a manifest in another style of YAML. Some of them change its meaning,
// or make the YAML invalid.
var forms = map[string]func(line string) string{
	"an explicit key":               func(l string) string { return keyed.ReplaceAllString(l, "$1? $2\n$1:$3") },
	"an explicit key with no value": func(l string) string { return keyed.ReplaceAllString(l, "$1? x\n$0") },
	"a key that is a mapping":       func(l string) string { return keyed.ReplaceAllString(l, "$1? {x: y}\n$1: z\n$0") },
	"a key that is a list":          func(l string) string { return keyed.ReplaceAllString(l, "$1? [x, y]\n$1: z\n$0") },
	"an empty key":                  func(l string) string { return keyed.ReplaceAllString(l, "$1: z\n$0") },
	"a null key":                    func(l string) string { return keyed.ReplaceAllString(l, "$1~: z\n$0") },
	"a quoted key":                  func(l string) string { return keyed.ReplaceAllString(l, `$1"$2":$3`) },
	"a tagged key":                  func(l string) string { return keyed.ReplaceAllString(l, "$1!!str $2:$3") },
	"an anchor at a key":            func(l string) string { return keyed.ReplaceAllString(l, "$1&k $2:$3") },
	"an anchor at a value":          func(l string) string { return keyed.ReplaceAllString(l, "$1$2: &v$3") },
	"a value of itself":             func(l string) string { return keyed.ReplaceAllString(l, "$1$2: &v [*v]") },
	"a merge":                       func(l string) string { return keyed.ReplaceAllString(l, "$1<<: {x: y}\n$0") },
	"a merge of a list":             func(l string) string { return keyed.ReplaceAllString(l, "$1<<: [{x: y}, {z: w}]\n$0") },
	"a merge of a text":             func(l string) string { return keyed.ReplaceAllString(l, "$1<<: x\n$0") },
	"a tagged value":                func(l string) string { return keyed.ReplaceAllString(l, "$1$2: !!map$3") },
	"a tag of its own":              func(l string) string { return keyed.ReplaceAllString(l, "$1$2: !x$3") },
	"no value":                      func(l string) string { return keyed.ReplaceAllString(l, "$1$2:") },
	"a number":                      func(l string) string { return keyed.ReplaceAllString(l, "$1$2: 1") },
	"a list":                        func(l string) string { return keyed.ReplaceAllString(l, "$1$2: [1]") },
	"a mapping":                     func(l string) string { return keyed.ReplaceAllString(l, "$1$2: {a: 1}") },
	"a text of blocks":              func(l string) string { return keyed.ReplaceAllString(l, "$1$2: |\n$1  x") },
	"a tab":                         func(l string) string { return strings.Replace(l, " ", "\t", 1) },
	"a tab behind":                  func(l string) string { return l + "\t" },
	"CRLF":                          func(l string) string { return l + "\r" },
	"a document's end":              func(l string) string { return l + "\n..." },
	"a document's begin":            func(l string) string { return l + "\n---" },
	"a directive":                   func(l string) string { return "%YAML 1.1\n---\n" + l },
	"a comment":                     func(l string) string { return "# c\n" + l + " # d" },
	"a byte order mark":             func(l string) string { return "\ufeff" + l },
	"a line separator":              func(l string) string { return l + "\u2028" },
	"a next line":                   func(l string) string { return l + "\u0085" },
}

// keyed matches a line with a key: the text before it, the key, and the text after the colon.
var keyed = regexp.MustCompile(`^([ -]*)([\w./-]+):(.*)$`)

// formed is a pod in which the fixes of lint, and injection, have to change mappings, lists, strings and commands.
const formed = `apiVersion: v1
kind: Pod
metadata:
  name: shop
  labels:
    sidecar.istio.io/inject: "true"
  annotations:
    proxy.istio.io/config: |
      holdApplicationUntilProxyStarts: true
spec:
  terminationGracePeriodSeconds: 5
  containers:
  - name: app
    image: shop
    command: [sh, -c, "sleep 5; exec /app"]
    lifecycle:
      preStop:
        exec:
          command:
          - sleep
          - "10"
  - name: istio-proxy
    image: istio/proxyv2
    args: [proxy, sidecar]
`

// Whichever line of a manifest is rewritten in whichever style, nothing panics, and the fixed or injected text can be
// parsed again.
func TestEveryFormOfYAML(t *testing.T) {
	lines := strings.Split(formed, "\n")
	tried := 0
	for form, change := range forms {
		for i, line := range lines {
			changed := change(line)
			if changed == line {
				continue
			}
			tried++
			text := []byte(strings.Join(slices.Concat(lines[:i], []string{changed}, lines[i+1:]), "\n"))
			func() {
				defer func() {
					if p := recover(); p != nil {
						t.Errorf("line %d, %s: %v\n%s", i+1, form, p, text)
					}
				}()
				checkFixes(t, text)
				checkInjected(t, text)
			}()
		}
	}
	if tried < 500 {
		t.Errorf("only %d manifests", tried)
	}
}

// checkInjected checks that the text can be parsed again after injection. It ignores a text that injection refuses.
func checkInjected(t *testing.T, text []byte) {
	t.Helper()
	injected, _, err := podfile.Rewrite("f", text, func(o podfile.Object) (*corev1.Pod, error) {
		r, err := inject.Pod(&o.Pod, inject.Namespace{Name: "x"}, inject.Options{})
		return r.Pod, err
	})
	if err != nil {
		return
	}
	if _, _, err := podfile.Parse("f", injected); err != nil {
		t.Errorf("injected, it cannot be read: %v\n%s", err, injected)
	}
}
