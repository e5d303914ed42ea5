package xds

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"
)

// A ProxyStatus is what one proxy was told and what it said to that.
type ProxyStatus struct {
	ID             string       `json:"id"`
	Namespace      string       `json:"namespace"`
	ServiceAccount string       `json:"serviceAccount"`
	Workload       string       `json:"workload,omitempty"`
	Protocol       string       `json:"protocol"`
	OnDemand       bool         `json:"onDemand"`
	Since          time.Time    `json:"since"`
	View           string       `json:"view"` // version of the newest view that it follows
	Types          []TypeStatus `json:"types"`
	// Excess counts names beyond the bound: they were answered, and are not followed.
	Excess int `json:"excess,omitempty"`
}

// A TypeStatus is what a proxy knows of one type.
type TypeStatus struct {
	Type     string     `json:"type"`  // short: "Cluster"
	Sent     string     `json:"sent"`  // version of the view that the last message came from
	Acked    string     `json:"acked"` // version of the view that was accepted last
	Rejected *Rejection `json:"rejected,omitempty"`
	Pending  int        `json:"pending"` // messages without an answer
	Messages uint64     `json:"messages"`
	Wildcard bool       `json:"wildcard"`
	Asked    []string   `json:"asked"` // names
	Told     int        `json:"told"`  // number of resources
}

// A Rejection is why a proxy did not take a message.
type Rejection struct {
	Version string    `json:"version"`
	Reason  string    `json:"reason"`
	Time    time.Time `json:"time"`
}

// Told is one resource that a proxy was told.
type Told struct {
	Type    string          `json:"type"` // short: "Cluster"
	Name    string          `json:"name"`
	Aliases []string        `json:"aliases,omitempty"`
	Version string          `json:"version"`
	Body    json.RawMessage `json:"body,omitempty"` // as Envoy's JSON; none if there is nothing of that name
}

func (s *Server) all() []*client {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.clients), func(a, b *client) int { return cmp.Compare(a.id, b.id) })
}

// Proxies returns who is connected, by ID and then by the time of connection.
func (s *Server) Proxies() []ProxyStatus {
	all := s.all()
	out := make([]ProxyStatus, 0, len(all))
	for _, c := range all {
		out = append(out, c.status())
	}
	slices.SortStableFunc(out, func(a, b ProxyStatus) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

func (c *client) status() ProxyStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := ProxyStatus{
		ID: c.proxy.ID, Namespace: c.proxy.Namespace, ServiceAccount: c.proxy.ServiceAccount, Workload: c.workload.Name,
		Protocol: c.protocol, OnDemand: c.proxy.OnDemand, Since: c.since, View: c.view.Version(), Excess: c.excess,
	}
	for _, typeURL := range slices.SortedFunc(maps.Keys(c.types), inOrder) {
		sub := c.types[typeURL]
		e := &sub.exchange
		out.Types = append(out.Types, TypeStatus{
			Type: short(typeURL), Sent: e.sent, Acked: e.acked, Rejected: e.rejected, Pending: len(e.pending), Messages: e.count,
			Wildcard: sub.wildcard, Asked: slices.Sorted(maps.Keys(sub.asked)), Told: len(sub.told),
		})
	}
	return out
}

// Sent returns what the proxy of an ID was told, by type and name. Of two streams with
// that ID it is the newer one. False: it is not connected here.
func (s *Server) Sent(id string) ([]Told, bool) {
	for _, c := range slices.Backward(s.all()) {
		if c.proxy.ID == id {
			return c.sent(), true
		}
	}
	return nil, false
}

func (c *client) sent() []Told {
	c.mu.Lock()
	var out []Told
	var bodies []*anypb.Any // never changed, so decoded without the lock
	for _, typeURL := range slices.SortedFunc(maps.Keys(c.types), inOrder) {
		sub := c.types[typeURL]
		for _, name := range slices.Sorted(maps.Keys(sub.told)) {
			r := sub.told[name]
			out = append(out, Told{Type: short(typeURL), Name: name, Aliases: sub.aliases(r), Version: r.Version})
			bodies = append(bodies, r.Body)
		}
	}
	c.mu.Unlock()
	for i, body := range bodies {
		out[i].Body = decoded(body)
	}
	return out
}

// decoded is a body as JSON. One with a part of a type that is not linked in is shown
// with the reason.
func decoded(body *anypb.Any) json.RawMessage {
	if body == nil {
		return nil
	}
	m, err := body.UnmarshalNew()
	if err == nil {
		var raw []byte
		if raw, err = protojson.Marshal(m); err == nil {
			return raw
		}
	}
	raw, _ := json.Marshal(map[string]string{"@type": body.GetTypeUrl(), "error": err.Error()})
	return raw
}
