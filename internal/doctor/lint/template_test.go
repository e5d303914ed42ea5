package lint

import (
	"slices"
	"testing"

	"outrider.dev/internal/base/finding"
)

// Files that are no manifests yet, or describe what a test expects, do not get findings about the words that a program
// replaces or evaluates. A word that stays does.
func TestTemplatesAndAssertions(t *testing.T) {
	pod := func(name, more string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  " + more + "\n  containers:\n  - {name: " + name + ", image: i, command: [/app]}\n"
	}
	sleeps := func(script string) string {
		return "apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nspec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: i, command: [sh, -c, '" + script + "']}]}}}\n"
	}
	for name, c := range map[string]struct { // in any order: subtests
		text string
		code finding.Code
		want finding.Severity // empty: it is not found
	}{
		"a variable of envsubst":                {pod(`"${SERVICE_NAME}"`, "restartPolicy: Always"), "invalid-name", ""},
		"a variable of envsubst, short":         {pod(`"$NAME"`, "restartPolicy: Always"), "invalid-name", ""},
		"a word for sed":                        {pod(`__APP__`, "restartPolicy: Always"), "invalid-name", ""},
		"a word between at signs":               {pod(`"@app@"`, "restartPolicy: Always"), "invalid-name", ""},
		"a word for a reader":                   {pod(`"<your app>"`, "restartPolicy: Always"), "invalid-name", ""},
		"an underscore":                         {pod(`runtime_init`, "restartPolicy: Always"), "invalid-name", finding.Error},
		"a capital letter":                      {pod(`App`, "restartPolicy: Always"), "invalid-name", finding.Error},
		"a stray backslash":                     {pod(`app\`, "restartPolicy: Always"), "invalid-name", finding.Error},
		"a condition of a test":                 {pod("app", "(length(volumes) > `0`): true"), "unknown-field", ""},
		"a condition of a test about a field":   {pod("app", "(starts_with(nodeName, 'kind-')): true"), "unknown-field", ""},
		"a misspelt field":                      {pod("app", "restartPolicies: Always"), "unknown-field", finding.Warning},
		"a shell of which only the image tells": {pod("app", "restartPolicy: Always") + "  - {name: b, image: debian, command: [sh, -c, 'server --port 80']}\n", "shell-without-exec", finding.Note},
		"a shell that surely stays":             {pod("app", "restartPolicy: Always") + "  - {name: b, image: debian, command: [sh, -c, 'prepare; server --port 80 & wait']}\n", "shell-without-exec", finding.Warning},
		"a loop that pauses":                    {pod("app", "restartPolicy: Always") + "  - {name: b, image: debian, command: [bash, -c, 'while true; do report; sleep 30; done']}\n", "shell-without-exec", finding.Note},
		"a loop without a pause":                {pod("app", "restartPolicy: Always") + "  - {name: b, image: debian, command: [bash, -c, 'while true; do worker --once; done']}\n", "shell-without-exec", finding.Warning},
		"a Job that only sleeps":                {sleeps("echo begin; sleep 120; echo end"), "fixed-sleep", ""},
		"a Job that sleeps before its work":     {sleeps("sleep 120; import --all"), "fixed-sleep", finding.Note},
	} {
		t.Run(name, func(t *testing.T) {
			report, err := Lint([]File{{"pod.yaml", []byte(c.text)}}, Options{Kubernetes: 34})
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(report.Findings, func(f finding.Finding) bool { return f.Code == c.code })
			if got := i >= 0; got != (c.want != "") || got && report.Findings[i].Severity != c.want {
				t.Errorf("%+v, want %s %q", report.Findings, c.code, c.want)
			}
		})
	}
}
