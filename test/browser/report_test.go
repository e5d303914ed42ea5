package browser

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"outrider.dev/internal/core/pod/kubelet"
	"outrider.dev/internal/doctor/chart"
	"outrider.dev/internal/lab/demo"
	"outrider.dev/internal/lab/localpod"
	"outrider.dev/startup"
	"outrider.dev/test/tier"
)

// Every report is readable in a browser: wide and narrow, light and dark, without a network.
func TestReports(t *testing.T) {
	ctx := browser(t)
	outrider := build(t)
	pod, err := filepath.Abs("testdata/race.yaml")
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		page   string
		title  string
		charts int

		oneAxis bool
	}{
		"a simulated pod": {
			page: report(t, outrider, "simulate", "-f", pod, "-o", "html", "--with", "istio-proxy: image takes 800ms, healthy after 2.5s",
				"--with", "shop: calls istio-proxy after 400ms or exits 1", "--with", "until 20s"),
			title: "Simulated: Pod shop-1", charts: 1,
		},
		"a verified pod": {
			page:  report(t, outrider, "verify", "-f", pod, "-o", "html", "--time", "1h", "--faults", "1"),
			title: "Verified: Pod shop-1", charts: 2, // its start and its stop
		},
		"a long word among the events": {
			page: chart.Page{Title: "x", Sections: []chart.Section{{
				Chart: chart.New([]string{"app"}, longWord, nil, nil), Timeline: longWord,
			}}}.HTML(),
			title: "x", charts: 1,
		},
		"the demo": {page: demo.HTML(played(), 3000, "outrider demo --report demo.html"), title: "The start of a pod in a mesh of 3000 services", charts: len(demo.Acts), oneAxis: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			file := write(t, "report.html", tt.page)
			for _, fault := range faults(t, ctx, file, tt.charts) {
				t.Error(fault)
			}
			l := open(t, ctx, file, widths[0]).look()
			if l.Title != tt.title || l.Scripts > 0 || len(l.Details) == 0 {
				t.Errorf("title %q, %d scripts, %d details; want %q, none, some", l.Title, l.Scripts, len(l.Details), tt.title)
			}
			for _, c := range l.Charts {
				if tt.oneAxis && c.Axis != l.Charts[0].Axis {
					t.Errorf("axes %q and %q: want one for all charts", l.Charts[0].Axis, c.Axis)
				}
			}
		})
	}
}

// The checks of [TestReports] detect faults: each page of this test has one fault, except a correct page. An ordinary
// run opens the correct page and a quarter of the others.
func TestFaultsAreFound(t *testing.T) {
	ctx := browser(t)
	const good = `<svg width="200" height="100"><rect width="9" height="9"/><rect width="9" height="9"/><rect width="9" height="9"/><text y="40">a</text><text y="60">b</text></svg>
<details><summary>more</summary><p style="height: 90px">here</p></details>`
	tests := map[string]struct{ body, want string }{
		"nothing is wrong":           {good, ""},
		"a script fails":             {good + `<script>missing()</script>`, "console: error: "},
		"a script complains":         {good + `<script>console.error("x")</script>`, "console: error: "},
		"something is fetched":       {good + `<img alt="" src="http://127.0.0.1:9/x.png">`, "network: request: http://127.0.0.1:9/x.png"},
		"an element is too wide":     {good + `<p style="width: 800px">x</p>`, "390 px, light: reaches beyond the window: p"},
		"what is unfolded is wide":   {good + `<details><summary>x</summary><p style="width: 800px; height: 90px">x</p></details>`, "390 px, unfolded: reaches beyond the window: p"},
		"details have no content":    {good + `<details><summary>x</summary></details>`, "unfolded: details 2"},
		"a chart has no height":      {strings.Replace(good, `height="100"`, `height="0"`, 1), "chart: 1 is 200 by 0 px"},
		"a chart is missing":         {good[strings.Index(good, "<details"):], "chart: 0 of them, want 1"},
		"a label is cut off":         {strings.Replace(good, `<text y="40">`, `<text y="40" x="195">long label `, 1), "is cut off at text"},
		"grey on white":              {good + `<p style="color: #999">x</p>`, "is hardly read: p"},
		"black on a dark bar":        {strings.Replace(good, `<text y="40">`, `<rect width="90" height="90" fill="#222"/><text y="40">`, 1), "is hardly read: text"},
		"a pale bar":                 {strings.Replace(good, `<rect width="9" height="9"/>`, `<rect class="bar" width="9" height="9" fill="#ddd"/>`, 1), "is hardly seen: rect"},
		"dark without dark's colour": {good + `<style>@media (prefers-color-scheme: dark) { body { background: #111 } }</style><p>x</p>`, "dark: is hardly read: p"},
	}
	opened := 0
	for name, tt := range tests {
		if tt.want != "" && !tier.Sample(name, 4) {
			continue
		}
		opened++
		t.Run(name, func(t *testing.T) {
			got := faults(t, ctx, write(t, "page.html", `<!DOCTYPE html><html lang="en"><title>x</title><body>`+tt.body), 1)
			switch hit := slices.ContainsFunc(got, func(f string) bool { return strings.Contains(f, tt.want) }); {
			case tt.want == "" && len(got) > 0:
				t.Errorf("faults: %q", got)
			case tt.want != "" && !hit:
				t.Errorf("faults: %q, want one with %q", got, tt.want)
			}
		})
	}
	t.Logf("%d of %d pages", opened, len(tests))
}

// build builds the command outrider with the flags of a release, and returns its path.
func build(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "outrider")
	cmd := exec.Command("go", "build", "-o", binary, "outrider.dev/cmd/outrider")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building: %v\n%s", err, out)
	}
	return binary
}

// report runs a command and returns its output. Exit status 1 is not an error, because it means findings.
func report(t *testing.T, outrider string, args ...string) string {
	t.Helper()
	cmd := exec.Command(outrider, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var status *exec.ExitError
	if err != nil && !(errors.As(err, &status) && status.ExitCode() == 1) {
		t.Fatalf("outrider %s: %v\n%s", strings.Join(args, " "), err, &stderr)
	}
	return string(out)
}

// longWord is a timeline with a detail that has no space to wrap at.
var longWord = startup.Timeline{
	{Container: "app", What: startup.IsStarted, At: time.Second},
	{Container: "app", What: startup.HasFailed, At: 2 * time.Second, Detail: "registry.example.com/a/rather/long/path/to/an/image/of/the/application:v1.2.3"},
}

// played returns invented results of the demo's acts. In the first act the race is visible.
func played() []demo.Performance {
	var all []demo.Performance
	for i, act := range demo.Acts {
		race := act.Order == "" && !act.Park
		timeline := startup.Timeline{
			{Container: "outrider-init", What: startup.IsStarted, At: 300 * time.Millisecond},
			{Container: "outrider-init", What: startup.IsCompleted, At: 400 * time.Millisecond},
			{Container: "outrider-proxy", What: startup.IsStarted, At: 500 * time.Millisecond},
			{Container: "awesome-app", What: startup.IsStarted, At: 600 * time.Millisecond},
		}
		if race {
			timeline = append(timeline,
				startup.Event{Container: "awesome-app", What: startup.IsRefused, At: 700 * time.Millisecond, Detail: "connection refused"},
				startup.Event{Container: "awesome-app", What: startup.HasFailed, At: 800 * time.Millisecond, Detail: "exit status 1"},
				startup.Event{Container: "awesome-app", What: startup.IsStarted, At: 1900 * time.Millisecond, Incarnation: 1})
		}
		timeline = append(timeline,
			startup.Event{Container: "outrider-proxy", What: startup.IsHealthy, At: 1500 * time.Millisecond},
			startup.Event{Container: "awesome-app", What: startup.IsHealthy, At: 2 * time.Second}).Sorted()
		p := demo.Performance{Act: act, Number: i + 1, Starts: 1, Ready: 2 * time.Second, Sent: 400,
			Result: localpod.Result{Status: kubelet.Status{Phase: kubelet.Succeeded}, Timeline: timeline},
			Chart:  chart.New([]string{"outrider-init", "outrider-proxy", "awesome-app"}, timeline, nil, nil)}
		if race {
			p.Refused, p.Starts, p.Failed = 1, 2, 17
		}
		all = append(all, p)
	}
	return all
}
