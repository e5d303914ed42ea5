package proxy

import (
	"os"
	"path/filepath"
	"testing"
)

// FuzzStageRecord checks that a file is valid only if it is the record of a living process in
// this sandbox.
func FuzzStageRecord(f *testing.F) {
	own, err := NewStageRecord("rules of 127.0.0.1")
	if err != nil {
		f.Fatal(err)
	}
	path := filepath.Join(f.TempDir(), "record")
	if err := own.Write(path); err != nil {
		f.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"sandbox": "x", "pid": -1, "began": 18446744073709551615}`))
	f.Add([]byte(`{"pid": "../../1"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), "record")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := ReadStageRecord(path)
		if err == nil && (got.Sandbox != own.Sandbox || got.PID <= 0 || got.Began == 0) {
			t.Errorf("%q is valid, as %+v", text, got)
		}
	})
}
