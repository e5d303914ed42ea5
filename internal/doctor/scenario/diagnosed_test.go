package scenario

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/doctor/diagnose"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence/gather"
	"outrider.dev/test/tier"
)

// onceFalse lists the seeds whose pods once showed a fault. An ordinary run includes them.
var onceFalse = []int{127, 132, 215, 579, 1319, 1445}

// onceFalseDeleted are the same of pods that are deleted.
var onceFalseDeleted = []int{134, 148, 156, 299, 354, 378, 405, 483, 508, 570, 576, 760, 772, 823, 898}

// A diagnosis of what the simulator shows of a pod names causes that are in the simulation, and no others. No rule of
// the diagnosis uses the simulator, so each judges the other. The runs that the diagnosis shows have the simulation's
// times, to within the second that the status of a pod has.
func TestDiagnosisOfSimulatedPods(t *testing.T) {
	c := compare(t, 2000, 100, onceFalse, false)
	if c.races == 0 || c.runs < c.pods || c.racesFound*100 < c.races*95 || c.firstRight*100 < c.failed*95 || c.wellSaid < c.well {
		t.Errorf("too little was found: %s", c.String())
	}
}

// The same of pods in deletion: half as many, so that a third of all are deleted. A pod that only stops has no fault.
func TestDiagnosisOfSimulatedPodsInDeletion(t *testing.T) {
	c := compare(t, 1000, 100, onceFalseDeleted, true)
	if c.shutdowns == 0 || c.runs < c.pods || c.shutdownsFound*100 < c.shutdowns*95 || c.firstRight*100 < c.failed*95 || c.wellSaid*100 < c.well*98 {
		t.Errorf("too little was found: %s", c.String())
	}
}

// compare compares the diagnoses of all pods nightly, else of the first and of some others.
func compare(t *testing.T, all, first int, others []int, deleted bool) (c comparison) {
	for seed := range all {
		if !tier.Nightly() && seed >= first && !slices.Contains(others, seed) {
			continue
		}
		c.pods++
		rng := rand.New(rand.NewPCG(uint64(seed), map[bool]uint64{false: 35, true: 38}[deleted]))
		in, err := newIncident(rng, deleted)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if err := c.add(t, in); err != nil {
			t.Errorf("seed %d: %v\n%s", seed, err, in.out.Timeline)
		}
	}
	t.Logf("%d pods: %s", c.pods, c.String())
	return c
}

// A comparison counts what a diagnosis has found of what a simulation contains.
type comparison struct {
	pods               int
	failed, firstRight int // pods in which something failed; those whose first finding is a cause of it
	races, racesFound  int
	shutdowns          int // shutdown races
	shutdownsFound     int
	well, wellSaid     int
	runs               int
	codes              map[string]int
}

func (c *comparison) String() string {
	var codes []string
	for _, code := range slices.Sorted(maps.Keys(c.codes)) {
		codes = append(codes, fmt.Sprintf("%s %d", code, c.codes[code]))
	}
	return fmt.Sprintf("%d of %d failures have a right first finding, %d of %d races, or their cause at the proxy, and %d of %d at the end are found, %d of %d healthy pods are called well; %d runs have the right times; first findings: %s",
		c.firstRight, c.failed, c.racesFound, c.races, c.shutdownsFound, c.shutdowns, c.wellSaid, c.well, c.runs, strings.Join(codes, ", "))
}

func (c *comparison) add(t *testing.T, in *incident) error {
	folder := t.TempDir()
	for name, text := range in.files() {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	set, err := gather.Read(t.Context(), gather.Options{}, folder)
	if err != nil {
		return err
	}
	got, err := diagnose.Diagnose(t.Context(), set.Pods[0], diagnose.Options{})
	if err != nil {
		return err
	}
	if err := c.times(in, got.Tracks); err != nil {
		return err
	}
	return c.causes(in, got)
}

// times compares the runs of the containers.
func (c *comparison) times(in *incident, tracks []result.Track) error {
	for _, track := range tracks {
		truth := in.runs[track.Container]
		for _, span := range track.Runs {
			if in.deletion != nil && len(truth) == 0 && !span.Started.Known() && !span.Finished.Known() {
				continue // the kubelet made it up
			}
			if span.Number >= len(truth) {
				return fmt.Errorf("run %d of %s: there were %d", span.Number, track.Container, len(truth))
			}
			r := truth[span.Number]
			for _, both := range [][2]time.Time{{span.Started.At, in.at(r.from)}, {span.Finished.At, in.at(r.to)}} {
				if !both[0].IsZero() && !both[0].Equal(both[1].Truncate(time.Second)) {
					return fmt.Errorf("run %d of %s: %s, and it was %s", span.Number, track.Container, both[0], both[1])
				}
			}
			c.runs++
		}
	}
	return nil
}

// refusals are the codes of findings about calls that were refused while no proxy listened.
var refusals = map[finding.Code]bool{"startup-race": true, "hold-fails-open": true, "init-needs-network": true}

// causes compares the findings. A cause that is said to be likely or certain must be in the simulation.
func (c *comparison) causes(in *incident, got result.Report) error {
	truth, besides := in.truth(), in.besides()
	said := func(f result.Finding) string { return string(f.Code) + " " + f.Container }
	for _, f := range got.Findings {
		blamed := strings.Contains(f.Sentence, "refused, and ended") && !f.Over && !slices.ContainsFunc(in.shown(f.Container), simulatedRun.mayHaveEndedByCall)
		if f.Confidence != result.Possible && (blamed || !truth[said(f)] && !truth[string(f.Code)] && !besides[said(f)] && !besides[string(f.Code)]) {
			return fmt.Errorf("%s: %q (%s) is false; true: %v; all findings:%s", f.Code, f.Sentence, f.Confidence, slices.Sorted(maps.Keys(truth)), listed(got))
		}
	}
	well := in.well() || in.deletion != nil
	if got.Verdict == result.Nothing && !well {
		return fmt.Errorf("said to be well: %q; true: %v", got.Sentence, slices.Sorted(maps.Keys(truth)))
	}
	switch {
	case len(truth) == 0 && len(besides) > 0:
		return nil // the evidence is of both
	case len(truth) == 0:
		c.well++
		if got.Verdict.Well() {
			c.wellSaid++
		}
		return nil
	}
	if c.codes == nil {
		c.codes = map[string]int{}
	}
	first := string(got.Verdict)
	if len(got.Findings) > 0 && got.Verdict == result.Found {
		first = string(got.Findings[0].Code)
	}
	c.codes[first]++
	c.failed++
	if got.Verdict == result.Found || got.Verdict == result.Starting {
		c.firstRight++
	}
	for cause := range truth {
		if name, is := strings.CutPrefix(cause, "shutdown-race "); is {
			c.shutdowns++
			if slices.ContainsFunc(got.Findings, func(f result.Finding) bool { return f.Container == name && f.Code == "shutdown-race" }) {
				c.shutdownsFound++
			}
		}
		if name, is := strings.CutPrefix(cause, "startup-race "); is {
			c.races++
			if slices.ContainsFunc(got.Findings, func(f result.Finding) bool {
				return f.Container == "istio-proxy" || f.Container == name && refusals[f.Code]
			}) {
				c.racesFound++
			}
		}
	}
	return nil
}

// listed returns the findings as lines of text.
func listed(r result.Report) string {
	var b strings.Builder
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "\n  %s %s: %s", f.Code, f.Confidence, f.Sentence)
	}
	return b.String()
}
