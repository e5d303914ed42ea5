package view

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/base/finding"
)

// In a narrow terminal text is wrapped, and commands stay as they are pasted. Links are written out.
func TestCode(t *testing.T) {
	c := finding.Entry{Kind: finding.Kind{Code: "cycle", Title: "they wait", Severity: finding.Error, Doc: "findings/cycle.md",
		Explanation: "None of them\never starts, see [the\npage](../plan.md#edges).\n\n- one\n- another that is long, see [this](tls.md)"}, By: []string{"lint", "check"},
		Do: "Run this, or `kubectl get pods -A`:\n\n```sh\nkubectl get pods \\\n  --all-namespaces --show-labels\n```\n\nThen look."}
	want := `cycle  error, by lint, check
They wait.

None of them ever starts,
see the page
(docs/plan.md#edges).

- one
- another that is long, see
  this (outrider explain
  tls)

Do

Run this, or
` + "`kubectl get pods -A`" + `:

    kubectl get pods \
      --all-namespaces --show-labels

Then look.

More: docs/findings/cycle.md
`
	var out strings.Builder
	if err := Code(&out, cli.Terminal{Columns: 28}, "text", c); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Error(d)
	}
}
