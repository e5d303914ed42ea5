package lint

import (
	"fmt"
	"strings"
	"testing"

	"outrider.dev/internal/base/finding"
)

// sleepers returns a manifest with n pods, as a list in kubectl's format or as separate documents.
func sleepers(n int, list bool) string {
	var b strings.Builder
	const pod = `apiVersion: v1
kind: Pod
metadata:
  labels: {outrider.dev/inject: "true"}
  name: app-%d
spec:
  # one
  containers:
  - name: app
    command: [sh, -c, "sleep 5; exec /app"]
`
	if list {
		b.WriteString("apiVersion: v1\nitems:\n")
	}
	for i := range n {
		text := fmt.Sprintf(pod, i)
		if list {
			text = "- " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n  ") + "\n"
		} else {
			b.WriteString("---\n")
		}
		b.WriteString(text)
	}
	if list {
		b.WriteString("kind: List\nmetadata: {resourceVersion: \"\"}\n")
	}
	return b.String()
}

// Each object of a file is changed separately, in a list as well as in documents.
func TestFixesOfManyObjects(t *testing.T) {
	for name, list := range map[string]bool{"a list": true, "documents": false} {
		t.Run(name, func(t *testing.T) {
			text := sleepers(40, list)
			fixed, err := Fix([]File{{"f.yaml", []byte(text)}}, Options{}, func(finding.Finding) bool { return true })
			if err != nil || len(fixed.Findings) != 40 || len(fixed.Changed) != 1 {
				t.Fatalf("%v: %d fixed in %d files", err, len(fixed.Findings), len(fixed.Changed))
			}
			got := string(fixed.Changed[0].Data)
			indent := ""
			if list {
				indent = "  "
			}
			want := strings.ReplaceAll(text, "sleep 5; ", "")
			want = strings.ReplaceAll(want, indent+"  labels:", indent+"  annotations:\n"+indent+"    outrider.dev/depends-on.app: outrider-proxy\n"+indent+"  labels:")
			if got != want {
				t.Errorf("got:\n%s", got[:600])
			}
		})
	}
}
