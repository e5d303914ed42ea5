package relay

import (
	"context"
	"encoding/binary"
	"slices"
	"time"

	"outrider.dev/internal/base/wire"
)

// A Hold is the set of listeners that are not changed any more.
type Hold int

// The sets, each of which contains the one before.
const (
	holdNone Hold = iota
	HoldInbound
	HoldAll
)

const (
	// maxHeld bounds the bytes of a message that wait for its end. A larger message passes unchanged. Envoy
	// grants a stream 16 MiB until it has read something, so that it never waits for bytes that wait here.
	maxHeld = 4 << 20
	// settledPoll is the pause between two looks at whether Envoy has answered, for which there is no event.
	settledPoll = 5 * time.Millisecond

	// Fields of envoy.service.discovery.v3.DeltaDiscoveryResponse, and one that it does not have. Envoy skips that
	// one, as protobuf requires.
	resourcesField, removedField, unknownField = 2, 6, 15

	// Fields of envoy.service.discovery.v3.Resource, google.protobuf.Any and envoy.config.listener.v3.Listener, and
	// a value of envoy.config.core.v3.TrafficDirection.
	bodyField, valueField, directionField, outbound = 2, 2, 16, 2
)

// HoldListeners keeps the listeners of an Envoy that drains as they are, until the agent ends. A drain of Envoy
// reaches the listeners that exist when it begins; it cannot be repeated. The connections of a listener that came
// later would get neither "connection: close" nor GOAWAY, and would be cut in the end.
//
// Envoy gets the messages with listeners empty, and accepts them, so the control plane goes on. Clusters that Envoy
// has are not removed either, since listeners may refer to them. Everything else passes: endpoints, routes, and
// clusters for the first use of a service. So do the first listeners of an Envoy that is started later.
//
// It returns when Envoy has answered the messages with listeners that it got before, or when ctx ends.
func (r *Relay) HoldListeners(ctx context.Context, h Hold) {
	r.mu.Lock()
	r.leaving.holds = max(r.leaving.holds, h)
	tees := make([]*tee, 0, len(r.leaving.tees))
	for t := range r.leaving.tees { // any order: all are awaited
		tees = append(tees, t)
	}
	r.mu.Unlock()
	for slices.ContainsFunc(tees, (*tee).unsettled) {
		select {
		case <-time.After(settledPoll):
		case <-ctx.Done():
			return
		}
	}
}

// A leaving has what an Envoy that drains needs.
type leaving struct {
	holds Hold
	tees  map[*tee]bool // of the connections that are copied
}

func (l *leaving) enter(t *tee) {
	if l.tees == nil {
		l.tees = map[*tee]bool{}
	}
	l.tees[t] = true
}

func (r *Relay) held() Hold {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leaving.holds
}

// enter records a connection that is copied, until the returned function is called.
func (r *Relay) enter(t *tee) (leave func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leaving.enter(t)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.leaving.tees, t)
	}
}

// unsettled reports whether Envoy has not yet answered a message with listeners that was forwarded unchanged.
func (t *tee) unsettled() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.pending { // any order: one is enough
		if p.typeURL == listenerType && len(p.resources)+len(p.removed) > 0 {
			return true
		}
	}
	return len(t.responses.partial) > 0 && !t.responses.editable()
}

// parse reads p, and returns the bytes to forward now. While listeners are held, the bytes of an incomplete
// message wait for its end. Frames of the agent's own must not get between them: if [opening.credit] is due, they
// wait only if it can be sent before p, which is so between two frames.
func (d *direction) parse(p []byte, between bool) []byte {
	t := d.tee
	d.keep(d == t.responses && t.relay.held() > holdNone && (len(d.held) > 0 || between || t.opening.spared == 0))
	if !d.kept {
		d.frames.read(p)
		return p
	}
	p = slices.Clone(p) // the caller uses its buffer again
	first := d.first()
	d.frames.read(p)
	d.held = append(d.held, p)
	size := 0
	for _, h := range d.held {
		size += len(h)
	}
	switch now := d.first(); {
	case now == nil || d.err != nil || size > maxHeld:
		p = slices.Concat(d.held...)
		d.held = nil
		d.give()
		return p
	case now == first: // the message has begun in earlier bytes
		return nil
	}
	begin := cap(p) - cap(d.pieces[0])
	out := append(slices.Concat(d.held[:len(d.held)-1]...), p[:begin]...)
	d.held = [][]byte{p[begin:]}
	return out
}

// hold removes from m what an Envoy that leaves must not get, and reports whether that was anything. It changes the
// numbers of fields and no length, so the frames and the flow control of HTTP/2 stay as they are. p is the parsed m.
func (t *tee) hold(m []byte, p response) (changed bool) {
	d, use := t.responses, t.types[p.typeURL]
	if !d.kept || !d.editable() || use == nil || !use.accepted && len(use.initial) == 0 {
		return false
	}
	h := t.relay.held()
	_ = wire.Fields(m, func(f wire.Field) error { // parseResponse has found no error
		if !t.holdsField(h, p.typeURL, f) {
			return nil
		}
		size := len(binary.AppendUvarint(nil, uint64(len(f.Bytes))))
		tag := cap(m) - cap(f.Bytes) - size - 1
		if tag >= 0 && m[tag] == byte(f.Number<<3)|byte(wire.BytesField) { // false for lengths that are not as short as they can be
			m[tag] = unknownField<<3 | byte(wire.BytesField)
			d.set(tag, m[tag])
			changed = true
		}
		return nil
	})
	return changed
}

// holdsField reports whether a field of a response is kept from Envoy.
func (t *tee) holdsField(h Hold, typeURL string, f wire.Field) bool {
	switch {
	case f.Kind != wire.BytesField || f.Number != resourcesField && f.Number != removedField:
		return false
	case typeURL == clusterType && f.Number == removedField:
		_, has := t.relay.store.get(typeURL, string(f.Bytes))
		return has
	case typeURL != listenerType:
		return false
	case h == HoldAll:
		return true
	}
	raw := f.Bytes
	if f.Number == removedField {
		r, _ := t.relay.store.get(typeURL, string(f.Bytes))
		raw = r.raw
	}
	return !isOutbound(raw)
}

// isOutbound reports whether a resource is a listener for outbound connections.
func isOutbound(raw []byte) (is bool) {
	value := raw
	for _, number := range []uint64{bodyField, valueField} {
		var inner []byte
		_ = wire.Fields(value, func(f wire.Field) error { // without the field it is not outbound
			if f.Number == number {
				inner = f.Bytes
			}
			return nil
		})
		value = inner
	}
	_ = wire.Fields(value, func(f wire.Field) error {
		if f.Number == directionField {
			is = f.Varint == outbound
		}
		return nil
	})
	return is
}
