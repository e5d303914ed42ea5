package relay

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"outrider.dev/internal/base/wire"
	"outrider.dev/test/mutants"
)

// listenerOf returns a listener for connections in a direction.
func listenerOf(name, version string, direction uint64) resource {
	value := wire.AppendField(wire.AppendVarint(nil, directionField, direction), 1, name)
	packed := wire.AppendField(wire.AppendField(nil, 1, listenerType), 2, value)
	raw := wire.AppendField(wire.AppendField(wire.AppendField(nil, 1, version), 3, name), 2, packed)
	return resource{name, version, raw}
}

const inbound = 1

// removal returns a response that only removes names.
func removal(typeURL, nonce string, names ...string) []byte {
	m := response{typeURL: typeURL, nonce: nonce}.marshal()
	for _, name := range names {
		m = wire.AppendField(m, removedField, name)
	}
	return m
}

// ofEnvoy returns a tee whose Envoy has a cluster a and two listeners.
func ofEnvoy(t testing.TB) (tt *tee, request, respond func([]byte)) {
	t.Helper()
	dir := t.TempDir()
	r, err := Listen(Options{
		Socket: filepath.Join(dir, "ads"), Address: "127.0.0.1:1", Store: filepath.Join(dir, "accepted"), Key: "proxy",
		Changed: func(State) {}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.listener.Close()
		r.store.close()
	})
	tt = newTee(r)
	t.Cleanup(r.enter(tt))
	tt.requests.read(make([]byte, prefaceSize))
	request = func(m []byte) { tt.requests.read(frame(dataFrame, 0, 1, wire.Frame(m))) }
	respond = func(m []byte) { tt.responses.read(frame(dataFrame, 0, 1, wire.Frame(m))) }
	request(requestOf(clusterType, "", nil, nil))
	respond(response{typeURL: clusterType, nonce: "1", resources: []resource{resourceOf("a", "1")}}.marshal())
	request(requestOf(clusterType, "1", nil, nil))
	request(requestOf(listenerType, "", nil, nil))
	respond(response{typeURL: listenerType, nonce: "2", resources: []resource{listenerOf("in", "1", inbound), listenerOf("out", "1", outbound)}}.marshal())
	request(requestOf(listenerType, "2", nil, nil))
	request(requestOf(endpointType, "", []string{"e"}, nil))
	return tt, request, respond
}

// reaches returns what Envoy gets of a response, in pieces of the given size: "Listener in@2 -out #nonce".
func reaches(t testing.TB, tt *tee, m []byte, size int) (text string) {
	t.Helper()
	raw, out := frame(dataFrame, 0, 1, wire.Frame(m)), []byte(nil)
	for piece := range slices.Chunk(raw, size) {
		p, err := tt.responses.read(piece)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, p...)
	}
	if len(out) != len(raw) {
		t.Fatalf("%d bytes of %d", len(out), len(raw))
	}
	got, _, err := decoded(out, maxResponse, len(out))
	if err != nil || len(got) != 1 {
		t.Fatalf("%q, %v", got, err)
	}
	p, err := parseResponse([]byte(got[0]))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range p.resources {
		text += r.name + "@" + r.version + " "
	}
	for _, name := range p.removed {
		text += "-" + name + " "
	}
	return text + "#" + p.nonce
}

// An Envoy that leaves gets no change of a listener, and no removal of a cluster that it has. Everything else
// passes. When the pod stops, the same holds for inbound listeners only.
func TestHold(t *testing.T) {
	both := []resource{listenerOf("in", "2", inbound), listenerOf("out", "2", outbound), listenerOf("other", "1", 0)}
	for hold, want := range map[Hold][]string{
		holdNone:    {"in@2 out@2 other@1 #3", "-in -out #4", "-a -b #5", "b@1 #6", "e@2 #7"},
		HoldInbound: {"out@2 #3", "-out #4", "-b #5", "b@1 #6", "e@2 #7"},
		HoldAll:     {"#3", "#4", "-b #5", "b@1 #6", "e@2 #7"},
	} {
		for _, size := range []int{1, 7, 1 << 20} {
			t.Run(fmt.Sprint(hold, " in pieces of ", size), func(t *testing.T) {
				tt, request, _ := ofEnvoy(t)
				tt.relay.HoldListeners(t.Context(), hold)
				for i, m := range [][]byte{
					response{typeURL: listenerType, nonce: "3", resources: both}.marshal(),
					removal(listenerType, "4", "in", "out"),
					removal(clusterType, "5", "a", "b"),
					response{typeURL: clusterType, nonce: "6", resources: []resource{resourceOf("b", "1")}}.marshal(),
					response{typeURL: endpointType, nonce: "7", resources: []resource{resourceOf("e", "2")}}.marshal(),
				} {
					if got := reaches(t, tt, m, size); got != want[i] {
						t.Errorf("%s, want %s", got, want[i])
					}
				}
				for i, typeURL := range []string{listenerType, listenerType, clusterType, clusterType, endpointType} {
					request(requestOf(typeURL, fmt.Sprint(i+3), nil, nil))
				}
				kept := tt.relay.store.names(listenerType)
				if names := tt.relay.store.names(clusterType); hold == HoldAll && (!slices.Equal(kept, []string{"in", "out"}) || !slices.Equal(names, []string{"a", "b"})) {
					t.Errorf("listeners %v and clusters %v are kept for the next Envoy, want what this one has", kept, names)
				}
			})
		}
	}
}

// An Envoy that connects again gets no listeners with the control plane's first bytes either, after which the agent
// adds frames of its own.
func TestHoldFromTheFirstBytes(t *testing.T) {
	tt, _, _ := ofEnvoy(t)
	tt.relay.HoldListeners(t.Context(), HoldAll)
	tt = newTee(tt.relay)
	tt.requests.read(make([]byte, prefaceSize))
	if out, err := tt.responses.read(frame(4, 0, 0, nil)); err != nil || len(out) != frameHead {
		t.Fatalf("settings: %q, %v", out, err)
	}
	node := wire.AppendField(wire.AppendField(nil, 1, "proxy"), extensionsField, make([]byte, 100))
	tt.requests.read(frame(dataFrame, 0, 1, wire.Frame(append(wire.AppendField(nil, nodeField, node), requestOf(listenerType, "", nil, map[string]string{"in": "1"})...))))
	if tt.opening.spared == 0 {
		t.Fatal("nothing is removed from the request")
	}
	m := wire.Frame(response{typeURL: listenerType, nonce: "3", resources: []resource{listenerOf("in", "2", inbound)}}.marshal())
	all := append(frame(4, 1, 0, nil), frame(dataFrame, 0, 1, m)...)
	first, _ := tt.responses.read(all[:len(all)-5])
	rest, _ := tt.responses.read(all[len(all)-5:])
	messages := 0
	f := frames{limit: maxResponse, ended: func(uint32) {}, message: func(_ uint32, m []byte) {
		if got := got(t, m); got != "Listener #3" {
			t.Error(got)
		}
		messages++
	}}
	f.read(append(first, rest...))
	if len(first)+len(rest) != len(all)+2*(frameHead+4) || messages != 1 || f.err != nil || len(f.head) > 0 {
		t.Errorf("%d bytes for %d, %d messages, %v", len(first)+len(rest), len(all), messages, f.err)
	}
}

// An Envoy that starts while listeners are held gets its first listeners.
func TestHoldPassesTheFirstListeners(t *testing.T) {
	tt, request, _ := ofEnvoy(t)
	tt.relay.HoldListeners(t.Context(), HoldAll)
	m := response{typeURL: listenerType, nonce: "3", resources: []resource{listenerOf("in", "2", inbound)}}.marshal()
	again := func(initial map[string]string) string {
		tt.stream, tt.types = 0, map[string]*typeUse{} // another stream of the same number
		request(requestOf(listenerType, "", nil, initial))
		return reaches(t, tt, m, 1<<20)
	}
	if got := again(nil); got != "in@2 #3" {
		t.Errorf("a new Envoy gets %s", got)
	}
	if got := again(map[string]string{"in": "1"}); got != "#3" {
		t.Errorf("an Envoy that connects again gets %s", got)
	}
}

// The wait lasts until Envoy has answered the listeners that it got before, or has left.
func TestHoldAwaitsEarlierListeners(t *testing.T) {
	m := response{typeURL: listenerType, nonce: "3", resources: []resource{listenerOf("in", "2", inbound)}}.marshal()
	raw := frame(dataFrame, 0, 1, wire.Frame(m))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, settle := range map[string]func(tt *tee, request func([]byte)){
		"by an answer": func(_ *tee, request func([]byte)) { request(requestOf(listenerType, "3", nil, nil)) },
		"by its end": func(tt *tee, _ func([]byte)) {
			tt.mu.Lock()
			defer tt.mu.Unlock()
			tt.leave()
		},
	} {
		t.Run(name, func(t *testing.T) {
			tt, request, _ := ofEnvoy(t)
			tt.responses.read(raw[:20])
			tt.relay.HoldListeners(ended, HoldAll)
			if !tt.unsettled() {
				t.Error("a message whose beginning was forwarded is not awaited")
			}
			if out, err := tt.responses.read(raw[20:]); err != nil || !bytes.Equal(out, raw[20:]) {
				t.Errorf("its rest is changed: %q, %v", out, err)
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				tt.relay.HoldListeners(t.Context(), HoldAll)
			}()
			if !tt.unsettled() {
				t.Error("a message without an answer is not awaited")
			}
			settle(tt, request)
			select {
			case <-done:
			case <-time.After(bound):
				t.Error("the wait does not end")
			}
		})
	}
}

// A message that is larger than the memory for held bytes passes, and the next one is read again.
func TestHoldIsBounded(t *testing.T) {
	tt, _, _ := ofEnvoy(t)
	tt.relay.HoldListeners(t.Context(), HoldAll)
	big := listenerOf("in", "2", inbound)
	big.raw = wire.AppendField(big.raw, 9, make([]byte, 2*maxHeld))
	m := response{typeURL: listenerType, nonce: "3", resources: []resource{big}}.marshal()
	if got := reaches(t, tt, m, copyBuffer); got != "in@2 #3" {
		t.Error(got)
	}
	m = response{typeURL: listenerType, nonce: "4", resources: []resource{listenerOf("in", "3", inbound)}}.marshal()
	if got := reaches(t, tt, m, copyBuffer); got != "#4" {
		t.Error(got)
	}
}

// FuzzHold: whatever the control plane sends, no byte is lost or kept for longer than its message, and the result
// does not depend on how the bytes are divided into pieces.
func FuzzHold(f *testing.F) {
	listeners := wire.Frame(response{typeURL: listenerType, nonce: "3", resources: []resource{listenerOf("in", "2", inbound)}}.marshal())
	f.Add(slices.Concat(frame(dataFrame, 0, 1, listeners[:9]), frame(dataFrame, padded, 1, slices.Concat([]byte{2}, listeners[9:], []byte{0, 0})), frame(headersFrame, endStream, 1, nil)), uint8(1))
	f.Add(slices.Concat(frame(dataFrame, 0, 1, append(listeners, listeners[:9]...)), frame(dataFrame, 0, 3, listeners)), uint8(3))
	f.Fuzz(func(t *testing.T, raw []byte, size uint8) {
		run := func(size int) (out []byte, held int, failed bool) {
			tt, _, _ := ofEnvoy(t)
			tt.relay.HoldListeners(t.Context(), HoldAll)
			for piece := range slices.Chunk(raw, size) {
				p, err := tt.responses.read(piece)
				out, failed = append(out, p...), failed || err != nil || tt.responses.err != nil
			}
			return out, len(slices.Concat(tt.responses.held...)), failed
		}
		all, held, failed := run(max(1, len(raw)))
		pieces, heldPieces, failedPieces := run(max(1, int(size)))
		if len(all)+held != len(raw) || len(pieces)+heldPieces != len(raw) {
			t.Errorf("%d and %d bytes forwarded, %d and %d held, of %d", len(all), len(pieces), held, heldPieces, len(raw))
		}
		if !failed && !failedPieces && (!bytes.Equal(all, pieces) || held != heldPieces) || failed != failedPieces {
			t.Errorf("%q (%d held, %t) at once, %q (%d held, %t) in pieces of %d", all, held, failed, pieces, heldPieces, failedPieces, size)
		}
	})
}

// The tests notice each mutant of what an Envoy that leaves gets.
func TestMutantsOfHold(t *testing.T) {
	mutants.Run(t, "TestHold|TestHoldFromTheFirstBytes|TestHoldPassesTheFirstListeners|TestHoldAwaitsEarlierListeners|TestHoldIsBounded", map[string]mutants.Mutant{
		"nothing is held":                        {File: "hold.go", From: `t.holdsField(h, p.typeURL, f)`, To: `false`},
		"every type is held":                     {File: "hold.go", From: `typeURL != listenerType`, In: "case typeURL != listenerType:", To: `false`},
		"outbound is held when the pod stops":    {File: "hold.go", From: `isOutbound(raw)`, In: "return !isOutbound(raw)", To: `false`},
		"outbound changes in a replacement":      {File: "hold.go", From: `h == HoldAll`, To: `false`},
		"clusters are removed":                   {File: "hold.go", From: `typeURL == clusterType && f.Number == removedField`, To: `false`},
		"a new Envoy gets no listeners":          {File: "hold.go", From: `!use.accepted && len(use.initial) == 0`, To: `false`},
		"an Envoy that connects again gets them": {File: "hold.go", From: `len(use.initial) == 0`, To: `true`},
		"a message in transit is not awaited":    {File: "hold.go", From: `len(t.responses.partial) > 0 && !t.responses.editable()`, To: `false`},
		"a message in transit is changed":        {File: "hold.go", From: `!d.editable()`, To: `false`},
		"a message in Envoy is not awaited":      {File: "hold.go", From: `p.typeURL == listenerType && len(p.resources)+len(p.removed) > 0`, To: `false`},
		"the first bytes pass":                   {File: "hold.go", From: `between`, In: "|| between ||", To: `false`},
		"memory has no bound":                    {File: "hold.go", From: `size > maxHeld`, To: `false`},
		"Envoy gets what is counted from it":     {File: "hold.go", From: `d.set(tag, m[tag])`, To: ``},
	})
}
