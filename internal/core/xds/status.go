package xds

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"

	"outrider.dev/internal/base/contract"
)

// A ProxyStatus describes one proxy's subscriptions, and which resources were sent and acknowledged.
type ProxyStatus struct {
	ID             string       `json:"id"`
	Namespace      string       `json:"namespace"`
	ServiceAccount string       `json:"serviceAccount"`
	Workload       string       `json:"workload,omitempty"`
	Protocol       string       `json:"protocol"`
	Agent          string       `json:"agent,omitempty"` // version of Outrider's agent
	Envoy          string       `json:"envoy,omitempty"` // version
	Since          time.Time    `json:"since"`
	Snapshot       string       `json:"view"` // version of the newest snapshot that the proxy has
	Types          []TypeStatus `json:"types"`
	// Excess counts names beyond the limit, which were answered but get no updates.
	Excess int `json:"excess,omitempty"`
	// Notes are sentences about facts that the proxy's owner may not expect.
	Notes []string `json:"notes,omitempty"`
}

// A TypeStatus is the part of a ProxyStatus for one type.
type TypeStatus struct {
	Type       string     `json:"type"`  // short: "Cluster"
	Sent       string     `json:"sent"`  // version of the snapshot in the last message
	Acked      string     `json:"acked"` // version of the last accepted snapshot
	Rejected   *Rejection `json:"rejected,omitempty"`
	Pending    int        `json:"pending"` // messages without an ACK or NACK
	Messages   uint64     `json:"messages"`
	Wildcard   bool       `json:"wildcard"`
	Subscribed []string   `json:"subscribed"` // names
	Resources  int        `json:"resources"`  // number of resources that the proxy has
}

// A Rejection is a NACK.
type Rejection struct {
	Version string    `json:"version"`
	Reason  string    `json:"reason"`
	Time    time.Time `json:"time"`
}

// A SentResource is a resource that a proxy has.
type SentResource struct {
	Type    string          `json:"type"` // short: "Cluster"
	Name    string          `json:"name"`
	Version string          `json:"version"`
	Body    json.RawMessage `json:"body,omitempty"` // as Envoy's JSON; empty if no resource has the name
}

func (s *Server) all() []*client {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.clients), func(a, b *client) int { return cmp.Compare(a.id, b.id) })
}

// Proxies returns the connected proxies, by ID and then by the time of connection.
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
		Protocol: c.protocol, Agent: c.proxy.Metadata[contract.MetadataVersion], Envoy: c.proxy.Envoy, Since: c.since, Snapshot: c.snapshot.Version(), Excess: c.overLimit,
	}
	for _, typeURL := range slices.SortedFunc(maps.Keys(c.types), compareTypes) {
		sub := c.types[typeURL]
		a := &sub.acks
		out.Types = append(out.Types, TypeStatus{
			Type: shortType(typeURL), Sent: a.sent, Acked: a.acked, Rejected: a.rejected, Pending: len(a.pending), Messages: a.count,
			Wildcard: sub.wildcard, Subscribed: slices.Sorted(maps.Keys(sub.names)), Resources: len(sub.sent),
		})
	}
	var targets []string
	if sub := c.types[ListenerType]; sub != nil {
		targets = slices.Sorted(maps.Keys(sub.names))
	}
	out.Notes = c.notes(targets)
	return out
}

// maxNotes limits the notes on one proxy, because a client can subscribe to any number of names.
const maxNotes = 20

// notes returns the notes on the proxy and its services and, for a gRPC client, on some of its targets.
func (c *client) notes(targets []string) []string {
	if !c.proxy.GRPC {
		targets = nil
	}
	var endpoints []string
	if sub := c.types[EndpointType]; sub != nil {
		endpoints = slices.Sorted(maps.Keys(sub.sent))
	}
	all := c.snapshot.Notes(c.proxy, targets[:min(len(targets), maxNotes)], endpoints)
	if more := len(all) - maxNotes; more > 0 {
		all = append(all[:maxNotes:maxNotes], fmt.Sprintf("and %d more", more))
	}
	return all
}

// Resources returns the resources that were sent to the proxy with an ID, by type and name. If two
// streams have that ID, the newer one is used. False means that the proxy is not connected here.
func (s *Server) Resources(id string) ([]SentResource, bool) {
	for _, c := range slices.Backward(s.all()) {
		if c.proxy.ID == id {
			return c.resources(), true
		}
	}
	return nil, false
}

func (c *client) resources() []SentResource {
	c.mu.Lock()
	var out []SentResource
	var bodies []*anypb.Any // immutable, so they can be decoded without the lock
	for _, typeURL := range slices.SortedFunc(maps.Keys(c.types), compareTypes) {
		sub := c.types[typeURL]
		for _, name := range slices.Sorted(maps.Keys(sub.sent)) {
			r := c.named(typeURL, name).Resource
			if r == nil {
				r = cmp.Or(notFound(c.proxy, typeURL, name), &Resource{Name: name})
			}
			out = append(out, SentResource{Type: shortType(typeURL), Name: name, Version: sub.sent[name]})
			if r.Version != sub.sent[name] {
				r = &Resource{}
			}
			bodies = append(bodies, r.Body)
		}
	}
	c.mu.Unlock()
	for i, body := range bodies {
		out[i].Body = decoded(body)
	}
	return out
}

// decoded returns a body as JSON, or an error as JSON if it cannot be decoded: a part of it may have a type that
// is not linked into this program.
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
