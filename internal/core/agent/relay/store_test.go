package relay

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/base/wire"
)

func resourceOf(name, version string) resource {
	raw := wire.AppendField(wire.AppendField(nil, 1, version), 3, name)
	return resource{name, version, wire.AppendField(raw, 2, []byte("body of "+name+" "+version))}
}

// storeAt opens the store in a directory, and fails the test at any log line.
func storeAt(t testing.TB, dir string) *store {
	t.Helper()
	s := openStore(filepath.Join(dir, "accepted"), "proxy", slog.New(slog.NewTextHandler(unexpected{t}, nil)))
	t.Cleanup(s.close)
	return s
}

// unexpected is a log that fails the test at any line.
type unexpected struct{ testing.TB }

func (u unexpected) Write(line []byte) (int, error) {
	u.Errorf("log: %s", line)
	return len(line), nil
}

// has formats the stored resources of a type.
func has(t *testing.T, s *store, typeURL string) string {
	t.Helper()
	var out []string
	for _, name := range s.names(typeURL) {
		r, ok := s.get(typeURL, name)
		if !ok || r.name != name || string(r.raw) != string(resourceOf(name, r.version).raw) {
			t.Errorf("%s: %+v, %t", name, r, ok)
		}
		out = append(out, name+"@"+r.version)
	}
	return strings.Join(out, " ")
}

func (s *store) accepted(typeURL string, fresh bool, initial map[string]string, resources ...resource) {
	s.accept(response{typeURL: typeURL, resources: resources}, fresh, initial)
}

// fill stores clusters a@2, endpoint a@1, and the settings for an unreachable control plane.
func fill(s *store) {
	s.accepted(clusterType, true, nil, resourceOf("a", "1"), resourceOf("b", "1"), resourceOf("c", "1"))
	s.accepted(clusterType, false, nil, resourceOf("a", "2"))
	s.accept(response{typeURL: clusterType, removed: []string{"b", "never there"}}, false, nil)
	s.accepted(endpointType, true, nil, resourceOf("a", "1"))
	s.forget(clusterType, []string{"c"})
	s.setAway([]byte("away"))
}

// Accepted resources outlast the agent, in a file that only its owner may read.
func TestStoreKeeps(t *testing.T) {
	dir := t.TempDir()
	s := storeAt(t, dir)
	fill(s)
	s.close()
	for range 2 { // the second file is written by a store that was read from the first
		s = storeAt(t, dir)
		if has(t, s, clusterType) != "a@2" || has(t, s, endpointType) != "a@1" || string(s.away) != "away" {
			t.Errorf("%s, %s, %q", has(t, s, clusterType), has(t, s, endpointType), s.away)
		}
		s.close()
	}
	info, err := os.Stat(s.path)
	if n, size := s.count(); err != nil || info.Mode().Perm() != 0o600 || n != 2 || size != info.Size() {
		t.Errorf("%v, %v; %d resources and %d bytes are counted", info, err, n, size)
	}
}

// A change reaches the file while the agent runs. When the last resource is removed, so is the
// file.
func TestStoreWritesByItself(t *testing.T) {
	s := storeAt(t, t.TempDir())
	timer := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.timer != nil && s.timer.Stop() // stopping the timer replaces the wait
	}
	fill(s)
	if !timer() {
		t.Fatal("no write is due")
	}
	s.write()
	if _, err := os.Stat(s.path); err != nil || timer() {
		t.Errorf("%v, or a write is due without a change", err)
	}
	s.forget(clusterType, []string{"a"})
	s.forget(endpointType, []string{"a"})
	if !timer() {
		t.Fatal("no write is due for a removal")
	}
	s.write()
	if _, err := os.Stat(s.path); err == nil {
		t.Error("there is a file of nothing")
	}
}

// The first accepted response of a type on a stream replaces the resources of an earlier Envoy.
func TestStoreOfANewEnvoy(t *testing.T) {
	s := storeAt(t, t.TempDir())
	s.accepted(clusterType, true, nil, resourceOf("a", "1"), resourceOf("b", "1"), resourceOf("c", "1"))
	s.accepted(listenerType, true, nil, resourceOf("l", "1"))
	if !s.complete() {
		t.Error("not complete")
	}
	s.accepted(clusterType, true, map[string]string{"a": "1", "b": "0"}, resourceOf("d", "1"))
	if got := has(t, s, clusterType); got != "a@1 d@1" {
		t.Errorf("the same Envoy again: %s", got)
	}
	s.accepted(clusterType, true, nil, resourceOf("e", "1"))
	if got := has(t, s, clusterType); got != "e@1" {
		t.Errorf("another Envoy: %s", got)
	}
}

// The store removes an unusable file, or one of another proxy, and logs it. It does not follow a
// link.
func TestFilesThatAreIgnored(t *testing.T) {
	dir := t.TempDir()
	s := storeAt(t, dir)
	fill(s)
	s.close()
	good, err := os.ReadFile(s.path)
	if err != nil {
		t.Fatal(err)
	}
	write := func(content []byte) func(string) error {
		return func(path string) error { return os.WriteFile(path, content, 0o600) }
	}
	of := func(format string, message []byte) func(string) error {
		return write(append(binary.LittleEndian.AppendUint32([]byte(format), crc32.Checksum(message, castagnoli)), message...))
	}
	damaged := bytes.Clone(good)
	damaged[len(damaged)-10] ^= 1
	many := wire.AppendField(wire.AppendField(nil, fieldKey, "proxy"), fieldType, clusterType)
	for n := range maxStore/overhead + 1 {
		many = wire.AppendField(many, fieldPut, wire.AppendField(nil, 3, fmt.Sprintf("%06d", n)))
	}
	for name, tt := range map[string]struct {
		put  func(path string) error
		want string
	}{
		"damaged":               {write(damaged), "damaged"},
		"cut off":               {write(good[:len(good)-1]), "damaged"},
		"empty":                 {write(nil), "format"},
		"of the former format":  {write([]byte("outrider relay 2\n12345678")), "format"},
		"of a format to come":   {of("outrider relay 4\n", nil), "format"},
		"of another proxy":      {of(storeFormat, wire.AppendField(nil, fieldKey, "another")), "another proxy"},
		"not a message":         {of(storeFormat, []byte{0x0a, 99}), ""},
		"too much":              {of(storeFormat, make([]byte, maxStore+1)), errFull.Error()},
		"too many":              {of(storeFormat, many), errFull.Error()},
		"a link to a good file": {func(path string) error { return os.Symlink(s.path, path) }, unix.ELOOP.Error()},
		"a pipe":                {func(path string) error { return unix.Mkfifo(path, 0o600) }, "regular"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "accepted")
			if err := tt.put(path); err != nil {
				t.Fatal(err)
			}
			var log strings.Builder
			s := openStore(path, "proxy", slog.New(slog.NewTextHandler(&log, nil)))
			if n, _ := s.count(); n != 0 || s.away != nil || s.used != 0 {
				t.Errorf("%d resources, %q, %d bytes", n, s.away, s.used)
			}
			if !strings.Contains(log.String(), "is ignored") || !strings.Contains(log.String(), tt.want) {
				t.Errorf("the log has no %q: %s", tt.want, log.String())
			}
			if _, err := os.Lstat(path); err == nil {
				t.Error("the file is left")
			}
		})
	}
	if now, err := os.ReadFile(s.path); !bytes.Equal(now, good) {
		t.Errorf("the link's file has changed, %v", err)
	}
}

// A store that is too large, or that meets an unreadable message, gives up with a reason and
// removes its file. It starts again with a new Envoy.
func TestStoreEnds(t *testing.T) {
	var log strings.Builder
	path := filepath.Join(t.TempDir(), "accepted")
	s := openStore(path, "proxy", slog.New(slog.NewTextHandler(&log, nil)))
	defer s.close()
	s.accepted(clusterType, true, nil, resourceOf("a", "1"))
	s.write()
	huge := resource{"huge", "1", wire.AppendField(wire.AppendField(nil, 3, "huge"), 2, noise(maxStore))}
	s.accepted(clusterType, false, nil, huge, resourceOf("b", "1"))
	s.giveUp(fmt.Errorf("again"))
	if strings.Count(log.String(), "is not kept") != 1 || !strings.Contains(log.String(), errFull.Error()) || has(t, s, clusterType) != "" {
		t.Errorf("%s, %s", log.String(), has(t, s, clusterType))
	}
	s.close()
	if _, err := os.Stat(path); err == nil {
		t.Error("the previous file is left")
	}
	s.accepted(clusterType, true, map[string]string{"a": "1"}, resourceOf("b", "2"))
	if got := has(t, s, clusterType); got != "" {
		t.Errorf("a part is kept: %s", got)
	}
	s.accepted(clusterType, true, nil, resourceOf("c", "1"))
	if got := has(t, s, clusterType); got != "c@1" {
		t.Errorf("a new Envoy: %s", got)
	}
}

// If no file can be written, the log says so, and a starting Envoy still gets the stored resources.
func TestStoreWithoutAFile(t *testing.T) {
	var log strings.Builder
	s := openStore(filepath.Join(t.TempDir(), "missing", "accepted"), "proxy", slog.New(slog.NewTextHandler(&log, nil)))
	fill(s)
	s.close()
	if n, size := s.count(); n != 2 || size != 0 || !strings.Contains(log.String(), "for an agent that is restarted") {
		t.Errorf("%d resources, %d bytes of a file, log: %s", n, size, log.String())
	}
}
