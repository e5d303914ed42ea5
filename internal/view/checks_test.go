package view

import (
	"strings"
	"testing"

	"outrider.dev/internal/check"
	"outrider.dev/internal/cli"
)

// Of checks of many objects the table has few, the end of it counts all, and programs get all.
func TestChecksOfObjects(t *testing.T) {
	all := []check.Check{{ID: "api-server", Result: check.OK, Reason: "it answers"}}
	for _, pod := range []string{"a", "b", "c", "d", "e", "f"} {
		all = append(all, check.Check{ID: "proxy-ready", Object: "shop/" + pod, Result: check.OK, Reason: "ready"})
	}
	all[3].Result, all[3].Reason, all[3].Hint, all[3].Link = check.Failed, "not ready", "look at it", "page#proxy-ready"
	for output, want := range map[string][]string{ // any order: each is printed by itself
		"table": {"ok       api-server   it answers\n", "ok       proxy-ready  5 of 6\nfailed   proxy-ready  shop/c: not ready\n", "hint: look at it\n", "7 checks: 6 ok, 1 failed\n"},
		"json":  {`"object": "shop/a"`, `"object": "shop/f"`},
		"junit": {`name="proxy-ready shop/c"`, `failures="1"`, `tests="7"`, `name="api-server"`},
	} {
		var out strings.Builder
		if err := Checks(&out, cli.Terminal{}, output, "outrider check", all); err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			if !strings.Contains(out.String(), w) {
				t.Errorf("%s has no %q:\n%s", output, w, &out)
			}
		}
	}
}
