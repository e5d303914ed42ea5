package order

import (
	"fmt"
	"strings"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/inject/verdict"
	"outrider.dev/internal/core/pod/mechanism"
	"outrider.dev/startup"
)

// A how is the mechanism of an edge and the reasons for it, in words that do not name the waiting container.
type how struct{ edge, why string }

func howOf(c mechanism.Choice, written, alongside bool) how {
	edge := c.Edge
	edge.To = "x"
	h := how{strings.TrimPrefix(edge.String(), "x "), strings.Join(c.Why, "; ")}
	if !written {
		h.edge += ", by nothing"
		if alongside {
			h.why += "; a sidecar or a hold would change " + c.Edge.From + ", which is another mesh's: annotation " + contract.Start + ": native or hold requests that"
		}
	}
	for _, o := range c.Refused {
		if o.By != startup.InitDone { // InitDone is possible only for containers that complete
			h.why += fmt.Sprintf("; not by %s: %s", o.By, o.WhyNot())
		}
	}
	return h
}

// Explain adds a note for each edge, with the mechanism and the reasons. Edges with the same explanation share a
// sentence.
func (p Plan) Explain(alongside bool, r *verdict.Report) {
	var order []how
	waiting := map[how][]string{}
	edges, warned := map[startup.Edge]bool{}, map[startup.Edge]bool{}
	for _, e := range p.Edges.Edges {
		edges[e] = true
	}
	for _, c := range p.choices {
		written := edges[c.Edge]
		if !written && c.Edge.By != "" {
			continue // the pod already had the edge
		}
		h := howOf(c, written, alongside)
		if waiting[h] == nil {
			order = append(order, h)
		}
		waiting[h] = append(waiting[h], c.Edge.To)
		if c.Warning != "" && (written || c.Edge.By == "") && !warned[c.Edge] {
			warned[c.Edge] = true // an edge may be requested twice, by name and by "*"
			r.Warn("%s %s: %s", c.Edge.To, h.edge, c.Warning)
		}
	}
	for _, h := range order {
		r.Note("%s %s: %s", strings.Join(waiting[h], ", "), h.edge, strings.TrimPrefix(h.why, "; "))
	}
}
