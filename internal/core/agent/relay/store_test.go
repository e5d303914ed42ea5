package relay

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"outrider.dev/internal/base/wire"
)

func resourceOf(name, version string) resource {
	raw := wire.AppendField(wire.AppendField(nil, 1, version), 3, name)
	return resource{name, version, wire.AppendField(raw, 2, []byte("body of "+name+" "+version))}
}

func storeOf(t testing.TB) (*store, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "accepted")
	return openStore(path, "proxy", func(err error) { t.Errorf("given up: %v", err) }), path
}

// has describes what a store has of a type.
func has(t *testing.T, s *store, typeURL string) string {
	t.Helper()
	var out []string
	for _, name := range s.names(typeURL, true, nil) {
		r, ok := s.get(typeURL, name)
		if !ok || r.name != name || string(r.raw) != string(resourceOf(name, r.version).raw) {
			t.Errorf("%s: %+v, %t", name, r, ok)
		}
		out = append(out, name+"@"+r.version)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func (s *store) accepted(typeURL string, fresh bool, initial map[string]string, resources ...resource) {
	s.accept(response{typeURL: typeURL, resources: resources}, fresh, initial)
}

// What Envoy accepts is kept over the end of an agent, at any moment of a write.
func TestStoreKeeps(t *testing.T) {
	s, path := storeOf(t)
	s.accepted(clusterType, true, nil, resourceOf("a", "1"), resourceOf("b", "1"), resourceOf("c", "1"))
	s.accepted(clusterType, false, nil, resourceOf("a", "2"))
	s.accept(response{typeURL: clusterType, removed: []string{"b", "never there"}}, false, nil)
	s.accepted(endpointType, true, nil, resourceOf("a", "1"))
	s.forget(clusterType, []string{"c"})
	s.setAway([]byte("away"))
	s.close()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := range len(raw) + 1 {
		if err := os.WriteFile(path, raw[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		s := openStore(path, "proxy", func(err error) { t.Errorf("given up: %v", err) })
		got := has(t, s, clusterType)
		if !slices.Contains([]string{"", "a@1 b@1 c@1", "a@2 b@1 c@1", "a@2 c@1", "a@2"}, got) {
			t.Errorf("%d of %d bytes: %s", cut, len(raw), got)
		}
		if cut == len(raw) && (got != "a@2" || has(t, s, endpointType) != "a@1" || string(s.away) != "away") {
			t.Errorf("all bytes: %s, %s, %q", got, has(t, s, endpointType), s.away)
		}
		s.accepted(clusterType, false, nil, resourceOf("z", "9"))
		s.close()
		s = openStore(path, "proxy", func(err error) { t.Errorf("given up: %v", err) })
		if again := has(t, s, clusterType); again != strings.TrimSpace(got+" z@9") {
			t.Errorf("%d of %d bytes: %s, and then %s", cut, len(raw), got, again)
		}
		s.close()
	}
	if err := os.WriteFile(path, append(raw[:len(raw)-1:len(raw)-1], raw[len(raw)-1]^1), 0o600); err != nil {
		t.Fatal(err)
	}
	s = openStore(path, "proxy", func(error) {})
	if s.away != nil || has(t, s, clusterType) != "a@2" {
		t.Errorf("a damaged record: %q, %s", s.away, has(t, s, clusterType))
	}
	s.close()
	other := openStore(path, "another proxy", func(err error) { t.Errorf("given up: %v", err) })
	if got := has(t, other, clusterType); got != "" {
		t.Errorf("another proxy's: %s", got)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	other.close()
}

// The first that Envoy accepts of a type on a stream replaces what an earlier Envoy had.
func TestStoreOfANewEnvoy(t *testing.T) {
	s, _ := storeOf(t)
	defer s.close()
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

// The file is bounded by what is kept, whatever is written.
func TestStoreIsRewritten(t *testing.T) {
	s, path := storeOf(t)
	big := func(name string, n int) resource {
		raw := wire.AppendField(wire.AppendField(nil, 1, fmt.Sprint(n)), 3, name)
		return resource{name, fmt.Sprint(n), wire.AppendField(raw, 2, noise(100<<10))}
	}
	s.setAway([]byte("away"))
	for n := range 50 {
		s.accepted(clusterType, n == 0, nil, big("a", n), big("b", n))
	}
	info, err := os.Stat(path)
	if err != nil || info.Size() > maxGarbage+600<<10 {
		t.Errorf("%d bytes, %v", info.Size(), err)
	}
	s.close()
	s = openStore(path, "proxy", func(err error) { t.Error(err) })
	defer s.close()
	if r, ok := s.get(clusterType, "b"); !ok || r.version != "49" || string(s.away) != "away" {
		t.Errorf("%q, %t, %q", r.version, ok, s.away)
	}
	if left, _ := filepath.Glob(path + "*"); len(left) != 1 {
		t.Errorf("files: %v", left)
	}
}

// A store that has too much, or a disk that is full, ends it with its reason; a new Envoy begins
// anew.
func TestStoreEnds(t *testing.T) {
	var why []error
	path := filepath.Join(t.TempDir(), "accepted")
	s := openStore(path, "proxy", func(err error) { why = append(why, err) })
	defer s.close()
	huge := resource{"huge", "1", wire.AppendField(wire.AppendField(nil, 3, "huge"), 2, noise(maxStore))}
	s.accepted(clusterType, true, nil, resourceOf("a", "1"), huge, resourceOf("b", "1"))
	if _, err := os.Stat(path); err == nil || len(why) != 1 || !strings.Contains(why[0].Error(), "more than") || has(t, s, clusterType) != "" {
		t.Errorf("%v, %v, %s", err, why, has(t, s, clusterType))
	}
	s.accepted(clusterType, true, map[string]string{"a": "1"}, resourceOf("b", "2"))
	if got := has(t, s, clusterType); got != "" {
		t.Errorf("a part is kept: %s", got)
	}
	s.accepted(clusterType, true, nil, resourceOf("c", "1"))
	if got := has(t, s, clusterType); got != "c@1" {
		t.Errorf("a new Envoy: %s", got)
	}
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	s.file.Close()
	s.file = full
	s.accepted(clusterType, false, nil, resourceOf("d", "1"))
	if len(why) != 2 || has(t, s, clusterType) != "" {
		t.Errorf("a full disk: %v, %s", why, has(t, s, clusterType))
	}
	nothing := openStore("", "proxy", func(err error) { t.Error(err) })
	nothing.accepted(clusterType, true, nil, resourceOf("a", "1"))
	if got := has(t, nothing, clusterType); got != "" {
		t.Errorf("without a file: %s", got)
	}
}
