// Package conformance runs the Gateway API's own conformance suite against Outrider, with
// options.yaml. "make conformance" builds it, and the echo server that the suite calls, and
// starts it in a cluster that has Outrider and the CRDs: see test/e2e/conformance, which is in
// the main module. What the suite requires stays here.
package conformance

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/gateway-api/conformance"
	"sigs.k8s.io/gateway-api/conformance/utils/flags"
	"sigs.k8s.io/gateway-api/conformance/utils/suite"
	"sigs.k8s.io/gateway-api/pkg/features"
)

var table = flag.String("table", "", "file for the result of each test, a table in Markdown (default none)")

func TestMesh(t *testing.T) {
	if *flags.ConformanceOptionsFile == "" {
		t.Skip("skipped: it runs in a cluster with Outrider: make conformance")
	}
	options := conformance.DefaultOptions(t)
	var all results
	options.Hook = all.add
	conformance.RunConformanceWithOptions(t, options)
	if *table != "" {
		if err := os.WriteFile(*table, []byte(all.String()), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// results are those of the tests of a mesh.
type results []result

type result struct {
	test, outcome string
	features      []string // without that of every mesh
}

// add prints the result: the test framework does when all tests have ended.
func (all *results) add(t *testing.T, test suite.ConformanceTest, _ *suite.ConformanceTestSuite) {
	if !slices.Contains(test.Features, features.SupportMesh) {
		return // of a gateway
	}
	r := result{test: test.ShortName, outcome: "passes"}
	switch {
	case t.Failed():
		r.outcome = "fails"
	case t.Skipped():
		r.outcome = "skipped"
	}
	for _, f := range test.Features {
		if f != features.SupportMesh {
			r.features = append(r.features, string(f))
		}
	}
	fmt.Printf("conformance: %s %s\n", r.test, r.outcome)
	*all = append(*all, r)
}

// String is a table, by test.
func (all results) String() string {
	sorted := slices.SortedFunc(slices.Values(all), func(a, b result) int { return cmp.Compare(a.test, b.test) })
	var b strings.Builder
	b.WriteString("| test | features besides Mesh | result |\n| --- | --- | --- |\n")
	for _, r := range sorted {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", r.test, strings.Join(r.features, ", "), r.outcome)
	}
	return b.String()
}
