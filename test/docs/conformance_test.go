package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// A conformanceReport holds the fields of the Gateway API's conformance report that the page is compared with.
type conformanceReport struct {
	ProfileReports []struct {
		Name           string
		Core, Extended struct {
			Statistics                                          struct{ Failed, Passed, Skipped int }
			FailedTests, SupportedFeatures, UnsupportedFeatures []string
		}
	} `json:"profiles"`
}

var row = regexp.MustCompile(`(?m)^\| (\w+) \| (.*) \| (\w+) \|$`)

// For each test and each extended feature, the page about conformance has the same result as the suite's report,
// and a reason if the feature is missing.
func TestConformanceIsAsReported(t *testing.T) {
	const dir = "../../docs/conformance/"
	reports, err := filepath.Glob(dir + "*-report.yaml")
	if err != nil || len(reports) != 1 {
		t.Fatalf("%v, %d reports; want one", err, len(reports))
	}
	text, err := os.ReadFile(reports[0])
	if err != nil {
		t.Fatal(err)
	}
	var report conformanceReport
	if err := yaml.Unmarshal(text, &report); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(dir + "README.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(raw)
	results := map[string]string{} // by test and by feature
	for _, m := range row.FindAllStringSubmatch(page, -1) {
		results[m[1]] = m[3]
	}
	for _, p := range report.ProfileReports {
		if p.Core.Statistics.Passed == 0 {
			t.Errorf("%s: no core test passes in the profile %s", reports[0], p.Name)
		}
		for _, test := range append(p.Core.FailedTests, p.Extended.FailedTests...) {
			if results[test] != "fails" {
				t.Errorf("README.md: %s %q; the report says that it fails", test, results[test])
			}
		}
		for _, feature := range p.Extended.SupportedFeatures {
			if results[feature] != "yes" {
				t.Errorf("README.md: %s %q; the report says that it is supported", feature, results[feature])
			}
		}
		for _, feature := range p.Extended.UnsupportedFeatures {
			if results[feature] != "no" {
				t.Errorf("README.md: %s %q; the report says that it is not supported", feature, results[feature])
			}
		}
	}
	if len(report.ProfileReports) != 2 || !strings.Contains(page, filepath.Base(reports[0])) {
		t.Errorf("%s: %d profiles, and the page must name the file", reports[0], len(report.ProfileReports))
	}
}
