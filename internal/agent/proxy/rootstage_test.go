package proxy

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"outrider.dev/test/ns"
)

// asWhat makes the test program the first process of a container.
const asWhat = "ROOTSTAGE_TEST_AS"

func TestMain(m *testing.M) {
	switch os.Getenv(asWhat) {
	case "":
		os.Exit(m.Run())
	case "container":
		fail(narrow(os.Args[1]))
	case "writer", "reader":
		if err := firstProcess(os.Getenv(asWhat) == "writer"); err != nil {
			fail(err)
		}
	case "stage":
		fmt.Println(capabilities("CapEff", "/proc/thread-self/status"))
		fail(Become(User{UID: 1337, GID: 1338, Groups: []int{2000, 1500, 2000}}, os.Args[1], os.Args[1:], nil))
	}
}

func fail(err error) {
	fmt.Println(err)
	os.Exit(1)
}

// narrow runs this program as a runtime runs a container of root: with these capabilities
// in all sets, inheritable ones too, and with groups that an image gave.
func narrow(set string) error {
	runtime.LockOSThread()
	bounds, err := strconv.ParseUint(set, 16, 64)
	if err != nil {
		return err
	}
	for c := uintptr(0); unix.Prctl(unix.PR_CAPBSET_READ, c, 0, 0, 0) == nil; c++ {
		if bounds&(1<<c) == 0 {
			if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
				return err
			}
		}
	}
	if err := unix.Setgroups([]int{0, 6, 20}); err != nil {
		return err
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	low := uint32(bounds)
	data := [2]unix.CapUserData{{Effective: low, Permitted: low, Inheritable: low}}
	if err := unix.Capset(&header, &data[0]); err != nil {
		return err
	}
	for c := uintptr(0); c < 32; c++ {
		if bounds&(1<<c) != 0 {
			if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, c, 0, 0); err != nil {
				return err
			}
		}
	}
	return unix.Exec("/proc/self/exe", append(os.Args[:1:1], os.Args[2:]...), []string{asWhat + "=stage"})
}

func capabilities(name, file string) string {
	text, _ := os.ReadFile(file)
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// The four that the stage is given: SETGID, SETUID, SETPCAP, NET_ADMIN.
const four = 1<<unix.CAP_SETGID | 1<<unix.CAP_SETUID | 1<<unix.CAP_SETPCAP | 1<<unix.CAP_NET_ADMIN

func inContainer(t *testing.T, set uint64, argv ...string) (pid int, out string, err error) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", append([]string{fmt.Sprintf("%x", set)}, argv...)...)
	cmd.Env = []string{asWhat + "=container"}
	raw, err := cmd.Output()
	return cmd.Process.Pid, string(raw), err
}

// The process starts with the pod's capabilities, in every set that execve may keep. After
// Become the kernel shows an unprivileged process with the same pid.
func TestBecomeLeavesNoPrivilege(t *testing.T) {
	ns.RequireRoot(t)
	pid, out, err := inContainer(t, four, "/bin/cat", "/proc/self/status")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	before, status, _ := strings.Cut(out, "\n")
	if want := fmt.Sprintf("%016x", four); before != want {
		t.Fatalf("it began with %s, want %s: the test shows nothing", before, want)
	}
	want := map[string]string{
		"Pid": strconv.Itoa(pid), "Uid": "1337 1337 1337 1337", "Gid": "1338 1338 1338 1338", "Groups": "1338 1500 2000", "NoNewPrivs": "1",
		"CapInh": "0000000000000000", "CapPrm": "0000000000000000", "CapEff": "0000000000000000", "CapBnd": "0000000000000000", "CapAmb": "0000000000000000",
	}
	got := map[string]string{}
	for line := range strings.Lines(status) {
		name, value, _ := strings.Cut(line, ":")
		if _, ok := want[name]; ok {
			got[name] = strings.Join(strings.Fields(value), " ")
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Without a capability that Become needs, nothing is run.
func TestBecomeRunsNothingAfterAFailure(t *testing.T) {
	ns.RequireRoot(t)
	for name, missing := range map[string]uint64{"SETPCAP": 1 << unix.CAP_SETPCAP, "SETGID": 1 << unix.CAP_SETGID, "SETUID": 1 << unix.CAP_SETUID} {
		_, out, err := inContainer(t, four&^missing, "/bin/echo", "it runs")
		if err == nil || strings.Contains(out, "it runs") || !strings.Contains(out, "takes "+name) {
			t.Errorf("without %s: %v, %q; want a failure that names it", name, err, out)
		}
	}
	_, out, err := inContainer(t, four, "/no/such/program")
	if err == nil || !strings.Contains(out, "running /no/such/program: no such file") {
		t.Errorf("%v, %q", err, out)
	}
}

// A record is valid in the network namespace and for the life of the process that wrote it.
func TestStageRecord(t *testing.T) {
	file := filepath.Join(t.TempDir(), "record")
	bad := func(why string) {
		t.Helper()
		if r, err := ReadStageRecord(file); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%+v, %v; want an error with %q", r, err, why)
		}
	}
	bad("there is no")
	r, err := NewStageRecord("v1:abc")
	if err != nil {
		t.Fatal(err)
	}
	write := func(r StageRecord) {
		t.Helper()
		if err := r.Write(file); err != nil {
			t.Fatal(err)
		}
	}
	write(r)
	if got, err := ReadStageRecord(file); err != nil || got != r {
		t.Errorf("%+v, %v; want %+v", got, err, r)
	}
	if info, err := os.Stat(file); err != nil || info.Mode() != 0o644 {
		t.Errorf("%v, %v; want one that all may read", info.Mode(), err)
	}
	for _, text := range []string{"", "{", "[]", `{"pid":"x"}`} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		bad(file)
	}

	sleep := exec.Command("/bin/sleep", "600")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	other := r
	other.PID = sleep.Process.Pid
	other.Began-- // the test began before, but maybe in the same hundredth
	write(other)
	bad("another one has its number")
	sleep.Process.Kill()
	sleep.Wait()
	bad("has ended")
	other = r
	other.Sandbox = strings.Replace(r.Sandbox, "/", "0/", 1)
	write(other)
	bad("it is of sandbox")
	for _, n := range []int{0, -1} {
		other = r
		other.PID = n
		write(other)
		bad("has ended")
	}
}

// After a new sandbox of the pod the volumes are the old ones, and the rules are gone.
func TestStageRecordOfAnotherNetwork(t *testing.T) {
	n := ns.New(t)
	file := filepath.Join(t.TempDir(), "record")
	r, err := NewStageRecord("")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Write(file); err != nil {
		t.Fatal(err)
	}
	n.Do(func() {
		if _, err := ReadStageRecord(file); err == nil || !strings.Contains(err.Error(), "it is of sandbox") {
			t.Errorf("%v; want another sandbox", err)
		}
	})
	if _, err := ReadStageRecord(file); err != nil {
		t.Errorf("here: %v", err)
	}
}

// The first process of a container has number 1 at every start; a record of
// an earlier start is not valid for a later one.
func TestStageRecordOfAnEarlierStart(t *testing.T) {
	ns.RequireRoot(t)
	file := filepath.Join(t.TempDir(), "record")
	start := func(what string) (out string, ok bool) {
		cmd := exec.Command("/proc/self/exe", file)
		cmd.Env = []string{asWhat + "=" + what}
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
		raw, err := cmd.CombinedOutput()
		return string(raw), err == nil
	}
	if out, ok := start("writer"); !ok {
		t.Fatal(out)
	}
	time.Sleep(20 * time.Millisecond) // a kubelet's pause is 10 s; the kernel counts hundredths
	if out, ok := start("reader"); ok || !strings.Contains(out, "process 1, which wrote it, has ended, and another one has its number") {
		t.Errorf("%t, %q; want a failure", ok, out)
	}
}

// firstProcess is that of a container with a /proc of its own: it writes a record, and
// reads it, or reads only.
func firstProcess(writes bool) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return err
	}
	if writes {
		r, err := NewStageRecord("")
		if err != nil {
			return err
		}
		if r.PID != 1 {
			return fmt.Errorf("process %d, want 1", r.PID)
		}
		if err := r.Write(os.Args[1]); err != nil {
			return err
		}
	}
	_, err := ReadStageRecord(os.Args[1])
	return err
}
