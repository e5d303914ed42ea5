package main

import (
	"runtime"
	"testing"
)

func TestUsage(t *testing.T) {
	for name, args := range map[string][]string{
		"another architecture":           {"-arch", "riscv64"},
		"the same twice":                 {"-arch", runtime.GOARCH + "," + runtime.GOARCH},
		"no library of the other one":    {"-arch", "amd64,arm64", "-o", "oci:x"},
		"a tarball of both":              {"-arch", "amd64,arm64", "-libc", "x"},
		"an argument that is not a flag": {"bin"},
	} {
		if status := run(t.Context(), args); status != 2 {
			t.Errorf("%s: status %d, want 2", name, status)
		}
	}
	if status := run(t.Context(), []string{"-bin", t.TempDir(), "-o", t.TempDir()}); status != 1 {
		t.Errorf("no commands: status %d, want 1", status)
	}
}
