package view

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/base/cli/visible"
	"outrider.dev/internal/core/pod/plan"
	"outrider.dev/internal/core/pod/podfile"
	"outrider.dev/internal/ops/check"
)

const pods = "../../../internal/core/pod/podspec/testdata/pods/"

func reports(t *testing.T, file string) []plan.Report {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	objects, _, err := podfile.Parse(file, data)
	if err != nil {
		t.Fatal(err)
	}
	var out []plan.Report
	for _, o := range objects {
		r, err := plan.New(o, 34, true)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

// Every pod in podspec's test data is drawn as well-formed XML that contains each container.
func TestEveryPodIsDrawn(t *testing.T) {
	files, err := filepath.Glob(pods + "*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("%v, %d files", err, len(files))
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			all := reports(t, file)
			svg := planSVG(all)
			d := xml.NewDecoder(strings.NewReader(svg))
			var err error
			for err == nil {
				_, err = d.Token()
			}
			if !errors.Is(err, io.EOF) {
				t.Fatalf("%v\n%s", err, svg)
			}
			for _, c := range all[0].Containers {
				if !strings.Contains(svg, ">"+c.Name+"<") {
					t.Errorf("%s is not in the picture", c.Name)
				}
			}
		})
	}
}

func TestColoursAreOnlyAdded(t *testing.T) {
	all := reports(t, pods+"annotated.yaml")
	var plain, coloured bytes.Buffer
	for w, terminal := range map[*bytes.Buffer]cli.Terminal{&plain: {}, &coloured: {Colour: true}} {
		if err := Plans(w, terminal, "text", all); err != nil {
			t.Fatal(err)
		}
	}
	text := coloured.String()
	for _, code := range []string{"0", bold, red, green, yellow, faint} {
		text = strings.ReplaceAll(text, visible.Colour(code), "")
	}
	if text != plain.String() || text == coloured.String() {
		t.Errorf("without its colours:\n%s\nwant:\n%s", text, plain.String())
	}
}

// The table lists only some objects of a check, but its last line counts all. JSON and JUnit contain all objects.
func TestChecksOfObjects(t *testing.T) {
	all := []check.Check{{ID: "api-server", Result: check.OK, Reason: "it answers"}}
	for _, pod := range []string{"a", "b", "c", "d", "e", "f"} {
		all = append(all, check.Check{ID: "proxy-ready", Object: "shop/" + pod, Result: check.OK, Reason: "ready"})
	}
	all[3].Result, all[3].Reason, all[3].Hint, all[3].Link = check.Failed, "not ready", "look at it", "page#proxy-ready"
	for output, want := range map[string][]string{ // any order: each output is printed separately
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
