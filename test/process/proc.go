package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Stopped reports whether a signal stopped a process, so that none of its threads runs.
func Stopped(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	for _, thread := range threads {
		if f := stat(thread); len(f) > 0 && f[0] != "T" {
			return false
		}
	}
	return len(threads) > 0
}

// stat returns the fields of the stat file of a process or thread, beginning with the state; nil if there is no such
// process or thread.
func stat(proc string) []string {
	raw, _ := os.ReadFile(proc + "/stat")
	return strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
}

// Spent returns the processor time that a process has used, with a resolution of 10 ms; 0 if there is no such process.
func Spent(pid int) time.Duration {
	f := stat(fmt.Sprintf("/proc/%d", pid))
	if len(f) < 13 {
		return 0
	}
	var user, system int64
	fmt.Sscan(f[11], &user)
	fmt.Sscan(f[12], &system)
	return time.Duration(user+system) * 10 * time.Millisecond
}
