package supervise

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ticks is USER_HZ, the unit of times in /proc: 100 a second on every Linux that Go runs on.
const ticks = 100

// StartTime returns the time at which a process started, to a hundredth of a second. process is a pid or
// "self"; "1" gives the start of the container.
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

// StartTicks returns the time at which a process started, in hundredths of a second since boot. Together with
// the pid it identifies a process until the next boot; execve changes neither. If the process does not exist,
// the error is an [os.ErrNotExist].
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

// parseStartTicks returns field 22 of /proc/PID/stat (proc_pid_stat(5)).
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

// A Thread is the name and the state of a thread, as /proc shows them.
type Thread struct {
	Name  string // at most 15 bytes
	State byte   // 'R': it runs, or waits for a processor; 'S': it sleeps; 'D': it waits for a disk; 'T': it is stopped
}

// Awake reports whether the thread runs, waits for a processor or waits for a disk.
func (t Thread) Awake() bool { return t.State == 'R' || t.State == 'D' }

// Threads returns the threads of a process.
func Threads(pid int) (all []Thread, err error) {
	dir := fmt.Sprintf("/proc/%d/task", pid)
	tasks, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, task := range tasks {
		raw, err := os.ReadFile(filepath.Join(dir, task.Name(), "stat"))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // it has ended
		}
		if err != nil {
			return nil, err
		}
		t, err := parseThread(string(raw))
		if err != nil {
			return nil, fmt.Errorf("%s/%s/stat: %w", dir, task.Name(), err)
		}
		all = append(all, t)
	}
	return all, nil
}

// Progress returns the processor time of a process's first thread, and whether that thread is awake. A value
// that /proc does not show is 0 or false.
func Progress(pid int) (ran time.Duration, awake bool) {
	dir := fmt.Sprintf("/proc/%d/task/%[1]d", pid)
	if raw, err := os.ReadFile(filepath.Join(dir, "stat")); err == nil {
		t, err := parseThread(string(raw))
		awake = err == nil && t.Awake()
	}
	if raw, err := os.ReadFile(filepath.Join(dir, "schedstat")); err == nil {
		spent, _, _ := strings.Cut(string(raw), " ") // nanoseconds on a processor; the time spent waiting and the number of time slices follow
		n, _ := strconv.ParseInt(spent, 10, 64)
		ran = time.Duration(n)
	}
	return ran, awake
}

// parseThread reads "TID (name) state ...".
func parseThread(stat string) (Thread, error) {
	fields := statFields(stat)
	_, name, ok := strings.Cut(stat, "(")
	end := strings.LastIndexByte(name, ')')
	if !ok || end < 0 || len(fields) == 0 || len(fields[0]) != 1 {
		return Thread{}, errors.New("want a number, a name in parentheses and a state")
	}
	return Thread{Name: name[:end], State: fields[0][0]}, nil
}

// statFields returns the fields of /proc/PID/stat from the third on: the state, the parent and
// so on. The name before them may contain spaces and parentheses.
func statFields(stat string) []string {
	return strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
}
