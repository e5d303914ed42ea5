package agent

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"outrider.dev/test/agent/harness"
	"outrider.dev/test/process"
)

// A pod works without any inotify instance. A node has 128 of them per user, and all proxies of a node run as one
// user. On a real node each Envoy took two, and the Envoy of the 32nd pod could not start ("unable to initialize
// inotify"). In this test another process has taken them all.
func TestNoInotifyInstanceIsLeft(t *testing.T) {
	t.Parallel()
	w := harness.New(t)
	w.ProxyUser = 13371 // used by no other test
	w.Manifest("strict", strict)
	client, server := pair(w, func(c, s *harness.Pod) {
		c.Env, s.Env = []string{"SECRET_TTL=10s"}, []string{"SECRET_TTL=10s"}
		t.Logf("%d instances taken", takeInotify(t, w.ProxyUser))
	}, "--certificate-life", "10s")
	call := fresh(client.Pod, "http://"+vip+"/", "server HTTP/1.1")
	if err := call(); err != nil {
		t.Error(err)
	}
	for _, a := range []*harness.Agent{client, server} {
		first := ""
		process.Eventually(t, a.Pod.Name+"'s Envoy has a later certificate", func() bool {
			now := shownSerial(a)
			first = cmp.Or(first, now) // empty as long as Envoy has not answered
			return now != "" && now != first
		}, a, w.Plane())
	}
	if err := call(); err != nil {
		t.Errorf("with later certificates: %v", err)
	}
	for _, a := range []*harness.Agent{client, server} {
		// There is one stream for each secret: all parts of outriderd's configuration refer to a secret by the
		// same source, so Envoy subscribes once.
		process.Eventually(t, "two streams for secrets of "+a.Pod.Name, func() bool {
			return strings.Contains(a.Get(15000, "/clusters").Body, "/sds.sock::rq_active::2\n")
		}, a)
		for _, pid := range []int{a.PID(), a.Envoy()} {
			if n := inotifyOf(t, pid); n != 0 {
				t.Errorf("%s: process %d has %d inotify instances; want 0", a.Pod.Name, pid, n)
			}
		}
	}
}

// Envoy uses no inotify instance. The agent uses one for its token and roots, if one is free.
func TestEnvoyHasNoInotifyInstance(t *testing.T) {
	a := lone(t)
	if n := inotifyOf(t, a.Envoy()); n != 0 {
		t.Errorf("Envoy has %d inotify instances, want none", n)
	}
	t.Logf("the agent has %d", inotifyOf(t, a.PID()))
}

// takeInotify takes all inotify instances of a user until the test ends, and returns their number.
func takeInotify(t *testing.T, user uint32) (n int) {
	t.Helper()
	// The raw system call changes the user of this thread only.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	become := func(user uintptr) {
		const same = ^uintptr(0)
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, same, user, same); errno != 0 {
			t.Fatal(errno)
		}
	}
	become(uintptr(user))
	defer become(0)
	for {
		fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
		if errors.Is(err, unix.EMFILE) {
			return n
		}
		if err != nil {
			t.Fatal(err)
		}
		n++
		t.Cleanup(func() { unix.Close(fd) })
	}
}

// inotifyOf counts the inotify instances of a process.
func inotifyOf(t *testing.T, pid int) (n int) {
	t.Helper()
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if to, _ := os.Readlink(filepath.Join(dir, f.Name())); strings.Contains(to, "inotify") {
			n++
		}
	}
	return n
}

var serialLine = regexp.MustCompile(`"serial_number": "([0-9a-f]+)"`)

// shownSerial returns the serial number of Envoy's certificate from its admin interface.
func shownSerial(a *harness.Agent) string {
	// The first serial numbers belong to the trusted roots. The serial number of Envoy's certificate follows under
	// cert_chain.
	_, chain, _ := strings.Cut(a.Get(15000, "/certs").Body, `"cert_chain"`)
	if found := serialLine.FindStringSubmatch(chain); found != nil {
		return found[1]
	}
	return ""
}
