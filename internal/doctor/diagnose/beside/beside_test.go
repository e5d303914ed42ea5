package beside

import (
	"fmt"
	"slices"
	"testing"

	"outrider.dev/internal/base/finding"
	"outrider.dev/internal/doctor/diagnose/kinds"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
)

// Of a probe that fails, or ends a container, since another cause has it fail, the advice is to end that.
func TestAdviceAboutAConsequence(t *testing.T) {
	for _, code := range []finding.Code{"probe-fails", "killed-by-probe"} {
		all := []result.Finding{
			{Code: "sibling-down", Container: "web", Confidence: result.Certain},
			{Code: code, Container: "web", Confidence: result.Certain, Evidence: []evidence.Quote{{Text: "HTTP probe failed with statuscode: 503"}}, Remedy: finding.Remedy{Sentence: "correct the path"}},
		}
		if Consequences(all); !all[1].Over || all[1].Remedy.Sentence != "end what sibling-down says of web: this follows from it" {
			t.Errorf("%+v", all[1])
		}
	}
}

// The tables have only codes that exist.
func TestCodesOfTheTables(t *testing.T) {
	lists := [][]finding.Code{ofTheNode, elsewhere, byTime}
	for _, w := range rows {
		lists = append(lists, w.codes, w.beside)
	}
	for _, list := range lists {
		for _, code := range list {
			if _, err := kinds.Of(string(code)); err != nil {
				t.Error(err)
			}
		}
	}
}

// Of two findings of whatever kinds, about the pod or about containers, one stays at least, and one is no consequence.
func TestOneOfTwoStays(t *testing.T) {
	quote := evidence.Quote{Text: "dial tcp: refused"}
	isCall := func(evidence.Quote) bool { return true }
	for _, a := range kinds.All() {
		for _, b := range kinds.All() {
			for _, of := range [][2]string{{"app", "app"}, {"app", "side"}, {"app", ""}, {"", "app"}, {"", ""}} {
				for _, sure := range []result.Confidence{result.Likely, result.Certain} {
					all := []result.Finding{{Code: a.Code, Container: of[0], Confidence: sure, Evidence: []evidence.Quote{quote}}, {Code: b.Code, Container: of[1], Confidence: sure, Evidence: []evidence.Quote{quote}}}
					out := Once(all, isCall)
					if Consequences(out); len(out) == 0 || !slices.ContainsFunc(out, func(f result.Finding) bool { return !f.Over }) {
						t.Errorf("%s of %q beside %s of %q: %v", a.Code, of[0], b.Code, of[1], out)
					}
				}
			}
		}
	}
}

func TestRows(t *testing.T) {
	call := evidence.Quote{Text: "dial tcp: refused"}
	f := func(code finding.Code, container string, quotes ...evidence.Quote) result.Finding {
		return result.Finding{Code: code, Container: container, Confidence: result.Certain, Evidence: quotes}
	}
	possible := f("image-missing", "app")
	possible.Confidence = result.Possible
	over := f("dependency-down", "app")
	over.Over = true
	unwell, gateway, missing := evidence.Quote{Text: "HTTP probe failed with statuscode: 500"}, evidence.Quote{Text: "HTTP probe failed with statuscode: 502"}, evidence.Quote{Text: "HTTP probe failed with statuscode: 404"}
	told := func(code finding.Code, container, answer string) result.Finding {
		g := f(code, container)
		g.Sentence = "its probe failed: nothing listened on " + answer
		return g
	}
	for name, c := range map[string]struct { // in any order: subtests
		in   []result.Finding
		want string // the codes that stay; "<" before those that are consequences
	}{
		"a node came":                          {[]result.Finding{f("not-scheduled", ""), f("image-missing", "app")}, "image-missing"},
		"whether an image is missing is open":  {[]result.Finding{f("not-scheduled", ""), possible}, "not-scheduled image-missing"},
		"volumes, then the sandbox":            {[]result.Finding{f("volume-missing", ""), f("no-sandbox", "")}, "no-sandbox"},
		"the pod says how it ended":            {[]result.Finding{f("evicted", ""), f("node-lost", "app"), f("probe-fails", "side")}, "evicted"},
		"a container alone says nothing of it": {[]result.Finding{f("node-lost", "app"), f("probe-fails", "side")}, "node-lost probe-fails"},
		"two ends of the pod":                  {[]result.Finding{f("node-lost", ""), f("evicted", "")}, "node-lost evicted"},
		"one call, told twice":                 {[]result.Finding{f("startup-race", "app", call), f("dependency-down", "app", call)}, "startup-race"},
		"two calls":                            {[]result.Finding{f("startup-race", "app", call), f("dependency-down", "app")}, "startup-race dependency-down"},
		"a probe ends a proxy":                 {[]result.Finding{f("proxy-died", "istio-proxy"), f("killed-by-probe", "istio-proxy")}, "<proxy-died killed-by-probe"},
		"a probe ends another container":       {[]result.Finding{f("proxy-died", "istio-proxy"), f("killed-by-probe", "app")}, "proxy-died killed-by-probe"},
		"a server says that it lacks another":  {[]result.Finding{f("dependency-down", "app"), f("probe-fails", "app", unwell)}, "dependency-down <probe-fails"},
		"a page that does not exist":           {[]result.Finding{f("dependency-down", "app"), f("probe-fails", "app", missing)}, "dependency-down probe-fails"},
		"a server lacks what another calls":    {[]result.Finding{f("dependency-down", "side"), f("probe-fails", "app", unwell)}, "dependency-down probe-fails"},
		"a gateway before what crashes":        {[]result.Finding{f("probe-fails", "app", gateway), f("app-crash", "side")}, "<probe-fails app-crash"},
		"an own failure beside a crash":        {[]result.Finding{f("probe-fails", "app", unwell), f("app-crash", "side")}, "probe-fails app-crash"},
		"a chain of three":                     {[]result.Finding{f("sibling-down", "app"), f("app-crash", "side"), f("probe-fails", "app", unwell)}, "<sibling-down app-crash <probe-fails"},
		"a call that was got over":             {[]result.Finding{over, f("probe-fails", "app", unwell)}, "<dependency-down probe-fails"},
		"both probes got one answer":           {[]result.Finding{told("killed-by-probe", "app", "port 1"), told("probe-fails", "app", "port 1")}, "killed-by-probe"},
		"the probes got two answers":           {[]result.Finding{told("killed-by-probe", "app", "port 1"), told("probe-fails", "app", "port 2")}, "killed-by-probe <probe-fails"},
		"probes of two containers":             {[]result.Finding{told("killed-by-probe", "side", "port 1"), told("probe-fails", "app", "port 1")}, "killed-by-probe probe-fails"},
		"a stop":                               {[]result.Finding{f("shutdown-race", "app"), f("dependency-down", "app")}, "shutdown-race <dependency-down"},
		"a drain":                              {[]result.Finding{f("evicted", "", evidence.Quote{Text: "EvictionByEvictionAPI: evicting"}), f("shutdown-race", "app")}, "<evicted shutdown-race"},
		"a full node":                          {[]result.Finding{f("evicted", "", evidence.Quote{Text: "Evicted: The node was low on resource: memory"}), f("shutdown-race", "app")}, "evicted shutdown-race"},
		"another's stop":                       {[]result.Finding{f("shutdown-race", "app"), f("dependency-down", "side")}, "shutdown-race dependency-down"},
		"a sibling that fails":                 {[]result.Finding{f("sibling-down", "app"), f("out-of-memory", "side")}, "<sibling-down out-of-memory"},
	} {
		t.Run(name, func(t *testing.T) {
			out := Once(c.in, func(q evidence.Quote) bool { return q == call })
			Consequences(out)
			got := ""
			for _, f := range out {
				got += fmt.Sprintf(" %s%s", map[bool]string{true: "<"}[f.Over], f.Code)
			}
			if got[min(1, len(got)):] != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
