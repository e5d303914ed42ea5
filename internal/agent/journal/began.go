package journal

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ticks is USER_HZ, in which /proc counts: 100 on every Linux that Go runs on.
const ticks = 100

// Began is when a process began, to a hundredth of a second: "self", or "1" for the
// container, whose first process it is. proc is /proc.
func Began(proc, process string) (time.Time, error) {
	start, err := Ticks(proc, process)
	if err != nil {
		return time.Time{}, err
	}
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil {
		return time.Time{}, err
	}
	return time.Now().Add(-time.Duration(up.Nano()) + time.Duration(start)*(time.Second/ticks)), nil
}

// Ticks is when a process began, in hundredths of a second since the machine did: with its
// number the name of a process, which no later one of this boot has. execve changes
// neither. A process that is not there is an [os.ErrNotExist].
func Ticks(proc, process string) (uint64, error) {
	path := filepath.Join(proc, process, "stat")
	raw, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	start, err := startTicks(string(raw))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return start, nil
}

// startTicks is field 22 of /proc/PID/stat (proc_pid_stat(5)): after the name, which may
// hold anything, in its parentheses.
func startTicks(stat string) (uint64, error) {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return 0, fmt.Errorf("%d fields after the name; want 20 or more", len(fields))
	}
	n, err := strconv.ParseUint(fields[19], 10, 64)
	if err != nil || n > 1<<53 {
		return 0, fmt.Errorf("start time %q is no number of ticks", fields[19])
	}
	return n, nil
}
