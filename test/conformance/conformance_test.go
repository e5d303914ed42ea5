// Package conformance runs the Gateway API's own conformance suite against Outrider, with
// options.yaml. "make conformance" builds this package and the echo server that the suite calls,
// and runs it in a cluster with Outrider and the CRDs: see test/e2e/conformance in the main module.
// It is a separate module, so that the main module does not depend on the suite's dependencies.
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

// results are the results of the mesh tests.
type results []result

type result struct {
	test, outcome string
	features      []string // features that the test needs, except the one that every mesh test needs
}

// add records the result of a test of a mesh, when the test has ended with all its subtests.
func (all *results) add(t *testing.T, test suite.ConformanceTest, _ *suite.ConformanceTestSuite) {
	if !slices.Contains(test.Features, features.SupportMesh) {
		return // a test of gateways
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

// String formats the results as a table, sorted by test.
func (all results) String() string {
	sorted := slices.SortedFunc(slices.Values(all), func(a, b result) int { return cmp.Compare(a.test, b.test) })
	var b strings.Builder
	b.WriteString("| test | features besides Mesh | result |\n| --- | --- | --- |\n")
	for _, r := range sorted {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", r.test, strings.Join(r.features, ", "), r.outcome)
	}
	return b.String()
}
