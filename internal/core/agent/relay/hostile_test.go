package relay

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/base/wire"
	"outrider.dev/test/process"
	"outrider.dev/test/tier"
)

// Whatever a control plane sends, the agent's memory and the pod's volume are bounded.
func TestHostileControlPlane(t *testing.T) {
	const (
		sent   = 128 << 20
		piece  = 1 << 20
		memory = 64 << 20
		volume = 32 << 20 // its size limit
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
				if relay.store.file == nil { // given up: not much more is sent
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

// An agent that is killed at any moment leaves all that was accepted: also while it rewrites the
// file.
func TestKilledWhileWriting(t *testing.T) {
	const child, resources = "OUTRIDER_TEST_STORE", 20
	if path := os.Getenv(child); path != "" {
		s := openStore(path, "proxy", func(err error) { fmt.Println(err) })
		for n := 0; ; n++ {
			r := resourceOf("changes", fmt.Sprint(n))
			r.raw = wire.AppendField(r.raw, 9, noise(300<<10))
			s.accepted(endpointType, false, nil, r)
			fmt.Print(".")
		}
	}
	s, path := storeOf(t)
	p := response{typeURL: clusterType}
	for n := range resources {
		p.resources = append(p.resources, resource{raw: wire.AppendField(resourceOf(fmt.Sprint(n), "1").raw, 9, noise(100<<10)), name: fmt.Sprint(n), version: "1"})
	}
	s.accept(p, true, nil)
	s.close()
	kills := tier.Times(5, 20)
	t.Logf("%d kills, 20 with OUTRIDER_NIGHTLY=1", kills)
	for range kills {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilledWhileWriting$")
		cmd.Env = append(os.Environ(), child+"="+path)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := process.StartBound(cmd); err != nil {
			t.Fatal(err)
		}
		said := make([]byte, 1+rand.IntN(30))
		_, err = io.ReadFull(out, said)
		cmd.Process.Kill()
		cmd.Wait()
		if err != nil || strings.Trim(string(said), ".") != "" {
			t.Fatalf("%q, %v", said, err)
		}
		s := openStore(path, "proxy", func(err error) { t.Error(err) })
		if n, _ := s.count(); n != resources+1 {
			t.Errorf("%d resources are kept, want %d", n, resources+1)
		}
		s.close()
	}
}

// What is in the file's place is never written to, and never waited for.
func TestFilesInThePlace(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"a link":                    func(path string) error { return os.Symlink("victim", path) },
		"a link for the new file":   func(path string) error { return os.Symlink("victim", path+".new") },
		"a pipe":                    func(path string) error { return unix.Mkfifo(path, 0o600) },
		"a pipe for the new file":   func(path string) error { return unix.Mkfifo(path+".new", 0o600) },
		"a file of another version": func(path string) error { return os.WriteFile(path, []byte("outrider relay 1\n"), 0o600) },
		"a large file": func(path string) error {
			return os.WriteFile(path, bytes.Repeat([]byte("x"), maxFile+1), 0o600)
		},
		"a record of a large message":    func(path string) error { return bomb(t, path, 1, maxMessage+1) },
		"many records of large messages": func(path string) error { return bomb(t, path, maxMessages/maxResponse+1, maxResponse) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "accepted")
			victim := filepath.Join(filepath.Dir(path), "victim")
			content, _ := os.ReadFile(goodFile(t))
			if err := os.WriteFile(victim, content, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := make(path); err != nil {
				t.Fatal(err)
			}
			s := openStore(path, "proxy", func(err error) { t.Errorf("given up: %v", err) })
			defer s.close()
			if got := has(t, s, clusterType); got != "" {
				t.Errorf("%s is kept", got)
			}
			s.accepted(clusterType, true, nil, resourceOf("b", "1"))
			if got := has(t, s, clusterType); got != "b@1" {
				t.Errorf("%s is kept, want b@1", got)
			}
			if now, err := os.ReadFile(victim); err != nil || !bytes.Equal(now, content) {
				t.Errorf("the link's file has %d bytes, %v; want %d", len(now), err, len(content))
			}
		})
	}
	path := filepath.Join(t.TempDir(), "accepted")
	if err := os.MkdirAll(filepath.Join(path, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	var why []error
	openStore(path, "proxy", func(err error) { why = append(why, err) })
	if len(why) != 1 {
		t.Errorf("a directory: %v, want one error", why)
	}
}

// bomb writes a good file, and records that decompress to a size.
func bomb(t *testing.T, path string, records, size int) error {
	raw, _ := os.ReadFile(goodFile(t))
	record := pack(wire.AppendField(nil, 9, make([]byte, size-5)))
	return os.WriteFile(path, append(raw, bytes.Repeat(record, records)...), 0o600)
}

// Costs divide a record by size, not by how well each resource compresses: what is left of it may
// be more than was counted. The file is bounded all the same.
func TestFileIsBoundedThoughCountedLow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "accepted")
	var why []error
	s := openStore(path, "proxy", func(err error) { why = append(why, err) })
	defer s.close()
	const records, each = 300, 40 << 10
	random := noise(records * each)
	for n := range records {
		zeros, kept := resourceOf("zeros", "1"), resourceOf(fmt.Sprint(n), "1")
		zeros.raw = wire.AppendField(zeros.raw, 9, make([]byte, recordSize-each-1000))
		kept.raw = wire.AppendField(kept.raw, 9, random[n*each:][:each])
		s.accepted(clusterType, false, nil, zeros, kept)
	}
	counted := s.live
	large := resourceOf("large", "1")
	large.raw = wire.AppendField(large.raw, 9, noise(3<<20))
	s.accepted(clusterType, false, nil, large)
	if counted+int64(len(large.raw)) > maxStore || len(why) != 1 || !errors.Is(why[0], errFull) {
		t.Errorf("%d bytes are counted, %d in the file, %v, want %v", counted, s.size, why, errFull)
	}
}

// noise is bytes that cannot be compressed.
func noise(n int) []byte {
	raw := make([]byte, n)
	rand.NewChaCha8([32]byte{}).Read(raw)
	return raw
}

// goodFile is a store with a cluster a.
func goodFile(t *testing.T) (path string) {
	s, path := storeOf(t)
	s.accepted(clusterType, true, nil, resourceOf("a", "1"))
	s.close()
	return path
}

// With a full disk Envoy's stream goes on, and the log says why nothing is kept.
func TestFullDisk(t *testing.T) {
	r := newRig(t)
	envoy, plane := r.begin()
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	store := r.relay.store
	var why []error
	store.mu.Lock()
	store.file.Close()
	store.file, store.failed = full, func(err error) { why = append(why, err) }
	store.mu.Unlock()
	for _, nonce := range []string{"4", "5"} {
		plane.send(response{typeURL: clusterType, nonce: nonce, resources: []resource{resourceOf("b", nonce)}}.marshal())
		envoy.want("Cluster b@" + nonce + " #" + nonce)
		envoy.send(requestOf(clusterType, nonce, nil, nil))
		plane.next()
	}
	if len(why) != 1 || !strings.Contains(why[0].Error(), syscall.ENOSPC.Error()) {
		t.Errorf("%v, want one error with %q", why, syscall.ENOSPC)
	}
	if n, _ := r.relay.Kept(); n != 0 {
		t.Errorf("%d resources are kept", n)
	}
}

// Of a large message, which is compressed, the resources are kept that Envoy has, though a newer
// message replaced one beside them.
func TestACKOfALargeMessageIsLost(t *testing.T) {
	r := newRig(t)
	tee := newTee(r.relay)
	tee.requests.read(make([]byte, prefaceSize))
	request := func(stream uint32, m []byte) { tee.requests.read(frame(dataFrame, 0, stream, wire.Frame(m))) }
	send := func(nonce string, resources ...resource) {
		p := response{typeURL: clusterType, nonce: nonce, resources: resources}
		tee.responses.read(frame(dataFrame, 0, 1, wire.Frame(p.marshal())))
	}
	request(1, requestOf(clusterType, "", nil, nil))
	large := resourceOf("large", "1")
	large.raw = wire.AppendField(large.raw, 9, noise(recordSize))
	send("1", resourceOf("a", "1"), resourceOf("b", "1"), large)
	if len(tee.pending["1"].packed) != 2 {
		t.Errorf("%d parts, want 2", len(tee.pending["1"].packed))
	}
	send("2", resourceOf("a", "2"))
	request(3, requestOf(clusterType, "", nil, map[string]string{"a": "2", "b": "1"}))
	if got := has(t, r.relay.store, clusterType); got != "a@2 b@1" {
		t.Errorf("%s is kept, want what Envoy has", got)
	}
}

// What Envoy has is kept though the connection ended before its ACK: the next one says so.
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
