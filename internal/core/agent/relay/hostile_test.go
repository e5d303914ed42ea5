package relay

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"outrider.dev/internal/base/wire"
)

// The agent's memory and its files on the pod's volume are bounded, whatever a control plane sends.
func TestHostileControlPlane(t *testing.T) {
	const (
		sent   = 128 << 20
		piece  = 1 << 20
		memory = 64 << 20
		volume = 32 << 20 // size limit of the volume
	)
	filled := func(pattern string) []byte { return bytes.Repeat([]byte(pattern), piece/len(pattern)) }
	message := func(m []byte) []byte { return frame(dataFrame, 0, 1, wire.Frame(m)) }
	nonce := func(i int) string { return fmt.Sprintf("%09d", i) }
	zeros, random := make([]byte, piece), noise(piece)
	ofType := slices.Clip(wire.AppendField(nil, 4, clusterType))
	claim := append([]byte{0}, binary.BigEndian.AppendUint32(nil, 2*piece)...)
	for name, tt := range map[string]struct {
		send func(i int) []byte
		ack  bool
	}{
		"one message": {send: func(i int) []byte {
			head := binary.BigEndian.AppendUint32([]byte{0}, 1<<30)
			return frame(dataFrame, 0, 1, append(head[:5*max(0, 1-i)], zeros...))
		}},
		"a message on each stream":  {send: func(i int) []byte { return frame(dataFrame, 0, uint32(2*i+1), append(claim, zeros...)) }},
		"resources without a name":  {send: func(int) []byte { return message(filled("\x12\x00")) }},
		"removed names":             {send: func(int) []byte { return message(filled("\x32\x01a")) }},
		"messages that are ignored": {send: func(i int) []byte { return message(wire.AppendField(ofType, 5, nonce(i))) }},
		"nonces":                    {send: func(i int) []byte { return message(wire.AppendField(ofType, 5, nonce(i)+string(zeros))) }},
		"stand-ins":                 {send: func(i int) []byte { return message(wire.AppendField(nil, wire.AwayField, zeros)) }},
		"large ones that are accepted, each with one that is not": {ack: true, send: func(i int) []byte {
			p := response{typeURL: clusterType, nonce: nonce(i), resources: []resource{{raw: wire.AppendField(nil, 3, random)}}}
			return frame(dataFrame, 0, 1, append(wire.Frame(p.marshal()), wire.Frame(wire.AppendField(ofType, 5, "not"+nonce(i)))...))
		}},
		"resources that are accepted": {ack: true, send: func(i int) []byte {
			r := resourceOf(nonce(i), "1")
			r.raw = wire.AppendField(r.raw, 9, random)
			return message(response{typeURL: clusterType, nonce: nonce(i), resources: []resource{r}}.marshal())
		}},
		"small resources that are accepted": {ack: true, send: func(i int) []byte {
			p := response{typeURL: clusterType, nonce: nonce(i)}
			for n := range 1000 {
				p.resources = append(p.resources, resource{raw: wire.AppendField(nil, 3, nonce(1000*i+n))})
			}
			return message(p.marshal())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			relay, err := Listen(Options{
				Socket: filepath.Join(dir, "ads"), Address: "127.0.0.1:1", Store: filepath.Join(dir, "accepted"), Key: "proxy",
				Changed: func(State) {}, Log: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				t.Fatal(err)
			}
			defer relay.listener.Close()
			defer relay.store.close()
			tee := newTee(relay)
			tee.requests.read(make([]byte, prefaceSize))
			request := func(m []byte) { tee.requests.read(frame(dataFrame, 0, 1, wire.Frame(m))) }
			request(requestOf(clusterType, "", nil, nil))
			used := func() (heap, files int64) {
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				all, _ := os.ReadDir(dir)
				for _, f := range all {
					if info, err := f.Info(); err == nil {
						files += info.Size()
					}
				}
				return int64(m.HeapAlloc), files
			}
			before, _ := used()
			var most, mostFiles, total int64
			for i, until := 0, int64(sent); total < until; i++ {
				raw := tt.send(i)
				tee.responses.read(raw)
				if tt.ack {
					request(requestOf(clusterType, nonce(i), nil, nil))
				}
				if total += int64(len(raw)); total>>22 != (total-int64(len(raw)))>>22 {
					heap, files := used()
					most, mostFiles = max(most, heap-before), max(mostFiles, files)
				}
				if relay.store.off { // the relay has given up: the test sends only a little more
					until = min(until, total+piece)
				}
			}
			t.Logf("%d KiB of memory, %d KiB of files", most>>10, mostFiles>>10)
			if most > memory || mostFiles > volume/2 {
				t.Errorf("%d bytes of memory, %d of files, want at most %d and %d", most, mostFiles, memory, volume/2)
			}
		})
	}
}

// noise returns bytes that cannot be compressed.
func noise(n int) []byte {
	raw := make([]byte, n)
	rand.NewChaCha8([32]byte{}).Read(raw)
	return raw
}

// If a connection ends before Envoy's ACK, the resources are still stored: Envoy reports their versions on its
// next connection.
func TestACKIsLost(t *testing.T) {
	for name, local := range map[string]bool{"by the control plane": false, "while that is away": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			envoy, plane := r.begin()
			plane.send(response{typeURL: clusterType, nonce: "4", resources: []resource{resourceOf("b", "1"), resourceOf("c", "1")}}.marshal())
			envoy.want("Cluster b@1 c@1 #4")
			if local {
				r.down()
			} else {
				r.relay.mu.Lock()
				r.relay.away.Grace = bound
				r.relay.mu.Unlock()
				plane.end()
			}
			for envoy.next() != nil {
			}
			envoy = r.envoy()
			envoy.send(requestOf(clusterType, "", []string{"*", "x"}, map[string]string{"a": "1", "b": "1"}))
			if local {
				envoy.want("Cluster x@away #local-1")
			} else {
				r.stream().next()
			}
			if got := has(t, r.relay.store, clusterType); got != "a@1 b@1" {
				t.Errorf("%s is kept, want what Envoy has", got)
			}
		})
	}
}
