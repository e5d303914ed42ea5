package readiness

import (
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A pulse is the main thread of a process as the kernel schedules it. Envoy's runs ten
// times a second for its timers alone. To look costs a hundredth of a question.
type pulse struct {
	fd   int // of /proc/PID/schedstat; -1: nothing is known
	last beats
}

type beats struct {
	at    time.Time
	busy  time.Duration // on a processor, or in the queue for one
	times uint64        // that it was put on one
}

// openPulse begins to look. proc is /proc.
func openPulse(proc string, pid int) *pulse {
	p := &pulse{fd: -1}
	if pid > 0 {
		if fd, err := unix.Open(filepath.Join(proc, strconv.Itoa(pid), "schedstat"), unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
			p.fd = fd
		}
	}
	p.look()
	return p
}

// Close ends it.
func (p *pulse) Close() {
	if p.fd >= 0 {
		unix.Close(p.fd)
		p.fd = -1
	}
}

// look reports whether the thread has run since the last look, and rested too: so it is
// neither stopped nor stuck, and does not turn in circles. If it has not run at all, still
// is when that was seen to begin; else it is zero.
func (p *pulse) look() (well bool, still time.Time) {
	now, ok := p.read()
	if !ok {
		p.last = beats{}
		return false, time.Time{}
	}
	before := p.last
	p.last = now
	switch {
	case before.at.IsZero() || now.times == 0:
		return false, time.Time{}
	case now.times == before.times:
		p.last.at = before.at
		return false, before.at
	}
	return now.busy-before.busy < now.at.Sub(before.at)/2, time.Time{}
}

// read takes the three numbers of proc_pid_schedstat(5): the time on a processor in
// nanoseconds, that in a queue, and how often it was put on one. A kernel that does not
// count them shows zeros.
func (p *pulse) read() (beats, bool) {
	var raw [128]byte
	n, err := unix.Pread(p.fd, raw[:], 0)
	if err != nil || n <= 0 {
		return beats{}, false
	}
	f := strings.Fields(string(raw[:n]))
	if len(f) != 3 {
		return beats{}, false
	}
	ran, err := strconv.ParseInt(f[0], 10, 64)
	queued, err2 := strconv.ParseInt(f[1], 10, 64)
	times, err3 := strconv.ParseUint(f[2], 10, 64)
	return beats{time.Now(), time.Duration(ran + queued), times}, err == nil && err2 == nil && err3 == nil
}
