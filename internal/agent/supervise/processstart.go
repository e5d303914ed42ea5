package supervise

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

// StartTime returns when a process started, to a hundredth of a second: "self", or "1" for
// the container, of which it is the first process.
func StartTime(process string) (time.Time, error) {
	start, err := StartTicks(process)
	if err != nil {
		return time.Time{}, err
	}
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil {
		return time.Time{}, err
	}
	return time.Now().Add(-time.Duration(up.Nano()) + time.Duration(start)*(time.Second/ticks)), nil
}

// StartTicks returns when a process started, in hundredths of a second since boot. With the pid
// it identifies a process of this boot. execve changes neither. If the process does not
// exist, the error is an [os.ErrNotExist].
func StartTicks(process string) (uint64, error) {
	path := filepath.Join("/proc", process, "stat")
	raw, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	start, err := parseStartTicks(string(raw))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return start, nil
}

// parseStartTicks is field 22 of /proc/PID/stat (proc_pid_stat(5)).
func parseStartTicks(stat string) (uint64, error) {
	fields := statFields(stat)
	if len(fields) < 20 {
		return 0, fmt.Errorf("%d fields after the name; want 20 or more", len(fields))
	}
	n, err := strconv.ParseUint(fields[19], 10, 64)
	if err != nil || n > 1<<53 {
		return 0, fmt.Errorf("start time %q is no number of ticks", fields[19])
	}
	return n, nil
}

// statFields are those of /proc/PID/stat from the third on: the state, the parent and so on. The
// name before them may contain spaces and parentheses.
func statFields(stat string) []string {
	return strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
}
