package corpus

import (
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/doctor/lint"
	"outrider.dev/internal/doctor/lint/kinds"
	"outrider.dev/startup"
)

// unreached maps each code for which there are no twins to the reason.
var unreached = map[string]string{
	"unsupported-value": "podspec refuses the word before, as invalid-annotation",
	"invalid-timeout":   "podspec refuses the time before, as invalid-annotation",
	"duplicate-edge":    "podspec refuses the second one before, as invalid-annotation",
	"pod-too-large":     "such a pod is too long for a file: TestPodTooLarge of package lint",
}

// Each code of lint is reported for each of its bad twins, of which there are at least two, and for none of its
// good twins.
func TestTwins(t *testing.T) {
	all, err := Twins()
	if err != nil {
		t.Fatal(err)
	}
	bad, good := map[string]int{}, 0
	for _, f := range all {
		code := strings.TrimSuffix(path.Base(f.Name), ".txtar")
		if _, err := kinds.Of(code); err != nil {
			t.Errorf("%s: %v", f.Name, err)
		}
		archive := txtar.Parse(f.Data)
		o := options(t, f.Name, string(archive.Comment))
		for _, one := range archive.Files {
			report, err := lint.Lint([]lint.File{{Name: one.Name, Data: one.Data}}, o)
			if err != nil {
				t.Errorf("%s: %v", f.Name, err)
				continue
			}
			found := slices.ContainsFunc(report.Findings, func(x finding.Finding) bool { return string(x.Code) == code })
			switch is := strings.HasPrefix(one.Name, "bad"); {
			case !is && !strings.HasPrefix(one.Name, "good"):
				t.Errorf("%s: %s: want a name that begins with bad or good", f.Name, one.Name)
			case is && found:
				bad[code]++
			case is:
				t.Errorf("%s: %s: %s is not found, but %s", f.Name, one.Name, code, codes(report.Findings))
			case found:
				t.Errorf("%s: %s: %s is found in a good twin", f.Name, one.Name, code)
			default:
				good++
			}
		}
	}
	total := 0
	for _, k := range kinds.All() {
		n := bad[string(k.Code)]
		total += n
		if reason := unreached[string(k.Code)]; n < 2 && reason == "" {
			t.Errorf("%s: found in %d bad twins, want 2 or more", k.Code, n)
		}
	}
	t.Logf("%d codes: %d bad twins found, %d good ones left alone; %d codes have none", len(kinds.All()), total, good, len(unreached))
}

func codes(all []finding.Finding) []string {
	out := []string{}
	for _, f := range all {
		out = append(out, string(f.Code))
	}
	return out
}

func options(t *testing.T, file, comment string) lint.Options {
	t.Helper()
	var o lint.Options
	for line := range strings.Lines(comment) {
		switch key, value, _ := strings.Cut(strings.TrimSpace(line), ": "); key {
		case "kube":
			n, err := strconv.Atoi(strings.TrimPrefix(value, "1."))
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			o.Kubernetes = startup.Kubernetes(n)
		case "injected":
			o.Injected = true
		case "namespace":
			o.Namespace = value
		}
	}
	return o
}
