package main

import (
	"bytes"
	"errors"
	"log/slog"
	"math"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

func TestCollectorKeepsToTheContainersLimit(t *testing.T) {
	limit, percent := debug.SetMemoryLimit(-1), debug.SetGCPercent(100)
	t.Cleanup(func() { debug.SetMemoryLimit(limit); debug.SetGCPercent(percent) })
	t.Setenv("GOGC", "")
	unknown := func() (uint64, error) { return 0, errors.New("no such file") }
	for name, tt := range map[string]struct {
		container memlimit.Provider
		want      int64
		log       string
	}{
		"a limit":  {memlimit.Limit(1000 << 20), 800 << 20, ""},
		"no limit": {func() (uint64, error) { return 0, memlimit.ErrNoLimit }, math.MaxInt64, ""},
		"unknown":  {unknown, math.MaxInt64, "no such file"},
	} {
		debug.SetMemoryLimit(math.MaxInt64)
		var log bytes.Buffer
		limitMemory(slog.New(slog.NewTextHandler(&log, nil)), tt.container)
		if got := debug.SetMemoryLimit(-1); got != tt.want || (tt.log == "") != (log.Len() == 0) || !strings.Contains(log.String(), tt.log) {
			t.Errorf("%s: limit %d, log %q; want %d and %q", name, got, log.String(), tt.want, tt.log)
		}
	}
	if got := debug.SetGCPercent(100); got != collectAt {
		t.Errorf("GOGC is %d, want %d", got, collectAt)
	}
	t.Setenv("GOGC", "77")
	debug.SetGCPercent(77)
	if limitMemory(slog.New(slog.DiscardHandler), memlimit.Limit(1<<30)); debug.SetGCPercent(100) != 77 {
		t.Error("GOGC of the environment does not win")
	}
}
