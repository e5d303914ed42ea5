package view

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/core/controlplane/debugapi"
)

// Proxies prints the state of each proxy that is connected to outriderd.
func Proxies(w io.Writer, output string, all []debugapi.Proxy) error {
	if output == "json" {
		raw := []json.RawMessage{}
		for _, p := range all {
			raw = append(raw, p.Raw)
		}
		return cli.WriteJSON(w, raw)
	}
	if len(all) == 0 {
		_, err := fmt.Fprintln(w, "no proxy is connected to outriderd")
		return err
	}
	replica := slices.ContainsFunc(all, func(p debugapi.Proxy) bool { return p.Replica != "" })
	rows := [][]string{{"NAME", "PROTOCOL", "SINCE", "TYPE", "SUBSCRIBED", "RESOURCES", "SENT", "ACKED", "STATUS"}}
	for _, p := range all {
		head := []string{debugapi.OneLine(p.Name()), p.Protocol, p.Since.UTC().Format(time.RFC3339)}
		if len(p.Types) == 0 {
			rows = append(rows, append(head, "-", "-", "-", "-", "-", "no subscription"))
		}
		for _, s := range p.Types {
			names := fmt.Sprint(len(s.Subscribed))
			if s.Wildcard {
				names = "all"
			}
			rows = append(rows, append(head, s.Type, names, fmt.Sprint(s.Resources), cmp.Or(s.Sent, "-"), cmp.Or(s.Acked, "-"), subscriptionStatus(s)))
			head = []string{"", "", ""}
		}
		if p.Excess > 0 {
			rows = append(rows, []string{"", "", "", "-", fmt.Sprint(p.Excess), "-", "-", "-", "over the limit: answered once, not kept up to date"})
		}
		if skew := p.Skew(); skew != "" {
			rows = append(rows, []string{"", "", "", "-", "-", "-", "-", "-", "SKEW: " + debugapi.OneLine(skew)})
		}
		for _, note := range p.Notes {
			rows = append(rows, []string{"", "", "", "-", "-", "-", "-", "-", noteStatus(note)})
		}
	}
	if replica {
		rows = withReplicas(rows, all)
	}
	return table(w, rows)
}

// withReplicas inserts the column REPLICA after the names. It is filled only in the first row of each proxy.
func withReplicas(rows [][]string, all []debugapi.Proxy) [][]string {
	next := 0
	for i, r := range rows {
		cell := ""
		switch {
		case i == 0:
			cell = "REPLICA"
		case r[0] != "":
			cell, next = cmp.Or(debugapi.OneLine(all[next].Replica), "-"), next+1
		}
		rows[i] = slices.Insert(r, 1, cell)
	}
	return rows
}

func noteStatus(note string) string {
	if text, ok := debugapi.Unenforced(note); ok {
		return "NOT ENFORCED: " + debugapi.OneLine(text)
	}
	return "NOTE: " + debugapi.OneLine(note)
}

// subscriptionStatus describes the proxy's response to the last message of a subscription.
func subscriptionStatus(s debugapi.Subscription) string {
	switch {
	case s.Rejected != nil:
		return fmt.Sprintf("REJECTED %s: %s", s.Rejected.Version, debugapi.OneLine(s.Rejected.Reason))
	case s.Pending > 0:
		return fmt.Sprintf("STALE: %s without an answer", plural(s.Pending, "message"))
	case s.Sent == "":
		return "nothing sent"
	case s.Acked == "":
		return "STALE: never accepted"
	}
	return "ok"
}

// Resources prints the resources that outriderd sent to one proxy.
func Resources(w io.Writer, output string, all []debugapi.Resource) error {
	if output == "json" {
		return cli.WriteJSON(w, all)
	}
	if len(all) == 0 {
		_, err := fmt.Fprintln(w, "no resource of that kind was sent")
		return err
	}
	rows := [][]string{{"TYPE", "NAME", "VERSION", "WHAT"}}
	for _, r := range all {
		what := "no such name"
		if len(r.Body) > 0 && string(r.Body) != "null" {
			what = summary(r.Type, r.Body)
		}
		rows = append(rows, []string{debugapi.OneLine(r.Type), debugapi.OneLine(r.Name), cmp.Or(r.Version, "-"), debugapi.OneLine(what)})
	}
	return table(w, rows)
}
