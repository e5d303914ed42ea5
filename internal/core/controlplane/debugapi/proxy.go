package debugapi

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"outrider.dev/internal/base/contract"
)

// A Proxy describes a connected proxy by the fields that commands show. The JSON text in Raw has all fields.
type Proxy struct {
	ID        string         `json:"id"`
	Namespace string         `json:"namespace"`
	Workload  string         `json:"workload"`
	Protocol  string         `json:"protocol"`
	Agent     string         `json:"agent"` // version; empty: there is no agent, or it does not report its version
	Envoy     string         `json:"envoy"` // version; empty: not reported
	Since     time.Time      `json:"since"`
	Types     []Subscription `json:"types"`
	Excess    int            `json:"excess"`
	Notes     []string       `json:"notes"`

	// Replica is the name of the replica to which the proxy is connected. It is set if the list comes from
	// several replicas.
	Replica      string           `json:"replica"`
	ControlPlane contract.Version `json:"controlPlane"`

	Raw json.RawMessage `json:"-"` // the complete JSON text
}

// A Subscription is the state of a proxy's subscriptions to one type of resource.
type Subscription struct {
	Type       string   `json:"type"`
	Sent       string   `json:"sent"`
	Acked      string   `json:"acked"`
	Pending    int      `json:"pending"`
	Wildcard   bool     `json:"wildcard"`
	Subscribed []string `json:"subscribed"`
	Resources  int      `json:"resources"`
	Rejected   *struct {
		Version string    `json:"version"`
		Reason  string    `json:"reason"`
		Time    time.Time `json:"time"`
	} `json:"rejected"`
}

// A Resource is a resource that was sent to a proxy.
type Resource struct {
	Type    string          `json:"type"`
	Name    string          `json:"name"`
	Version string          `json:"version"`
	Body    json.RawMessage `json:"body,omitempty"`
}

// oldKeys maps keys of a [Subscription] that the previous version of the control plane writes to the present ones.
var oldKeys = map[string]string{"asked": "subscribed", "told": "resources"}

// translated returns the JSON text of a proxy with the present keys. A text that cannot be read is returned as it is.
func translated(raw []byte) []byte {
	var proxy map[string]json.RawMessage
	var types []map[string]json.RawMessage
	if json.Unmarshal(raw, &proxy) != nil || json.Unmarshal(proxy["types"], &types) != nil {
		return raw
	}
	changed := false
	for _, t := range types {
		for old, present := range oldKeys { // any order: each sets a different key
			if value, ok := t[old]; ok && t[present] == nil {
				t[present], changed = value, true
				delete(t, old)
			}
		}
	}
	if !changed {
		return raw
	}
	var err error
	if proxy["types"], err = json.Marshal(types); err != nil {
		return raw
	}
	if text, err := json.Marshal(proxy); err == nil {
		return text
	}
	return raw
}

// UnmarshalJSON also stores the text in Raw. It understands what the previous version of the control plane writes.
func (p *Proxy) UnmarshalJSON(raw []byte) error {
	type plain Proxy
	raw = translated(raw)
	if err := json.Unmarshal(raw, (*plain)(p)); err != nil {
		return err
	}
	p.Raw = slices.Clone(raw)
	return nil
}

// Of returns a copy of the proxy with the replica to which it is connected, and that replica's version. Both
// are added to Raw too.
func (p Proxy) Of(replica string, v contract.Version) Proxy {
	p.Replica, p.ControlPlane = replica, v
	all := map[string]json.RawMessage{}
	if json.Unmarshal(p.Raw, &all) != nil {
		return p // p has no JSON text
	}
	for name, value := range map[string]any{"replica": replica, "controlPlane": v} { // any order: each sets a different key
		if text, err := json.Marshal(value); err == nil {
			all[name] = text
		}
	}
	if text, err := json.Marshal(all); err == nil {
		p.Raw = text
	}
	return p
}

// Skew describes which of the proxy's versions differ from the control plane's; empty: no known version
// differs.
func (p Proxy) Skew() string {
	var out []string
	if v := p.ControlPlane.Version; p.Agent != "" && v != "" && p.Agent != v {
		out = append(out, fmt.Sprintf("agent %s, control plane %s", p.Agent, v))
	}
	if v := p.ControlPlane.Envoy; p.Envoy != "" && v != "" && p.Envoy != v {
		out = append(out, fmt.Sprintf("Envoy %s, the control plane is for %s", p.Envoy, v))
	}
	return strings.Join(out, "; ")
}

// Name returns the third part of an ID of the form role~address~name~domain, which is pod.namespace.
func (p Proxy) Name() string {
	if parts := strings.Split(p.ID, "~"); len(parts) == 4 {
		return parts[2]
	}
	return p.ID
}

// Unenforced reports whether a note is about an object that forbids something and that the proxy does not
// enforce. It returns the note without its severity.
func Unenforced(note string) (string, bool) { return strings.CutPrefix(note, contract.ErrorPrefix) }

func isID(pod string) bool { return strings.Contains(pod, "~") }

func (p Proxy) is(pod string) bool {
	return p.ID == pod || p.Name() == pod || p.Workload == pod || strings.TrimSuffix(p.Name(), "."+p.Namespace) == pod
}

// Failed reports whether the proxy rejected a resource, or does not enforce an object that should forbid
// something.
func (p Proxy) Failed() bool {
	return slices.ContainsFunc(p.Types, func(s Subscription) bool { return s.Rejected != nil }) ||
		slices.ContainsFunc(p.Notes, func(note string) bool { _, ok := Unenforced(note); return ok })
}

// Find returns the proxies of a pod. It fails if there is none; the error lists up to ten others.
func Find(all []Proxy, pod string) ([]Proxy, error) {
	var out []Proxy
	var names []string
	for _, p := range all {
		if names = append(names, p.Name()); p.is(pod) {
			out = append(out, p)
		}
	}
	switch {
	case len(out) > 0:
		return out, nil
	case len(names) == 0:
		return nil, fmt.Errorf("no proxy %q: none is connected to outriderd", pod)
	case len(names) > 10:
		names = append(names[:10], "...")
	}
	return nil, fmt.Errorf("no proxy %q is connected to outriderd; there are %s", pod, strings.Join(names, ", "))
}

// FindOne returns the only proxy of a pod, by its newest connection if it has several. It fails if there is
// no such proxy or more than one.
func FindOne(all []Proxy, pod string) (Proxy, error) {
	found, err := Find(all, pod)
	if err != nil {
		return Proxy{}, err
	}
	ids := map[string]bool{}
	var names []string
	newest := found[0]
	for _, p := range found {
		if !ids[p.ID] {
			ids[p.ID] = true
			names = append(names, p.Name())
		}
		if p.Since.After(newest.Since) {
			newest = p
		}
	}
	if len(names) > 1 {
		return Proxy{}, &InputError{fmt.Errorf("%q may be %s", pod, strings.Join(names, " or ")), "name one of them in full"}
	}
	return newest, nil
}

// OneLine replaces line ends and control characters by spaces, so that a text fits into a row of a table.
func OneLine(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f }), " ")
}
