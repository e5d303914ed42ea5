package gather

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"outrider.dev/internal/doctor/evidence"
)

// consume reads everything in a set, as a diagnosis would.
func consume(t *testing.T, s *evidence.Set) {
	for _, p := range s.Pods {
		for _, c := range p.Containers {
			for _, l := range c.Logs {
				found, _, err := l.Scan(t.Context(), []evidence.Pattern{{Name: "refused", Any: []string{"refused", "timeout"}}})
				if err != nil {
					t.Fatal(err)
				}
				for _, h := range found {
					evidence.Show(h.Line.Text, false)
				}
			}
			for i, r := range c.Runs {
				if i > 0 && r.Number <= c.Runs[i-1].Number {
					t.Fatalf("runs %+v", c.Runs)
				}
			}
		}
	}
}

func FuzzObjects(f *testing.F) {
	for _, s := range []string{awesome, eventList, newerEvent, replicaSet, journal, `{"kind":"List","items":[{"kind":"Pod"},null]}`, "kind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a}, {name: a}]}",
		someStatuses, "kind: Pod\nspec: ...\nstatus:\n  containerStatuses:\n  - name: a\n    ...\n", "- {name: a, state: {}}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		b := newBundle(1 << 20)
		b.parse("x", "x.yaml", data)
		b.parse("x", "pod.yaml", []byte(awesome))
		pods, unused := b.finish(t.Context())
		consume(t, &evidence.Set{Pods: pods, Unused: unused})
	})
}

func FuzzArchive(f *testing.F) {
	f.Add([]byte{0x1f, 0x8b, 8, 0})
	var t testing.T
	f.Add(tarGz(&t, handmade()))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Read(t.Context(), Options{Stdin: bytes.NewReader(data), Files: 50, Unpack: 1 << 20, Entry: 1 << 18, Memory: 1 << 18}, "-")
		if err == nil {
			consume(t, s)
		}
	})
}

func FuzzLog(f *testing.F) {
	for _, s := range []string{currentLog, previousLog, proxyLog, "==== START logs for container app of pod shop/awesome-app ====\nx\n==== END logs for container app of pod shop/awesome-app ====\n", "a: 1\nb{x=\"y\"} 2\n", "\xff\x00\n", description} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		for name, text := range map[string][]byte{"pod.yaml": []byte(awesome), "app.log": data, "app.previous.log": data} {
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s, err := Read(t.Context(), Options{}, dir)
		if err != nil {
			t.Fatal(err)
		}
		consume(t, s)
	})
}
