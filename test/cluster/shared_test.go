package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestBuildsAreSharedByCheckouts(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	checkout := func() program { return program{output: filepath.Join(t.TempDir(), "v1.34", "kube")} }
	has := func(inputs string, want bool) string {
		t.Helper()
		path, found, err := checkout().shared(inputs)
		if err != nil || found != want {
			t.Errorf("a build of %q: %t, %v", inputs, found, err)
		}
		return path
	}
	for i := range sharedBuilds + 1 {
		file := has(fmt.Sprint(i), false)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o755); err != nil {
			t.Fatal(err)
		}
		os.Chtimes(file, time.Time{}, time.Unix(int64(1000+i), 0))
		os.Chtimes(has("0", true), time.Time{}, time.Unix(int64(2000+i), 0)) // marks the build as used
		prune(filepath.Dir(file))
	}
	has("0", true)
	has("1", false)
	has("2", true)
	output := checkout().output
	for range 2 {
		if err := link(has("0", true), output); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(output); err != nil {
		t.Error(err)
	}
}
