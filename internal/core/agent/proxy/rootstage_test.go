package proxy

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/test/ns"
	"outrider.dev/test/process"
)

// asWhat names the environment variable that makes the test binary the first process of a container.
const asWhat = "ROOTSTAGE_TEST_AS"

func TestMain(m *testing.M) {
	switch os.Getenv(asWhat) {
	case "":
		os.Exit(m.Run())
	case "writer", "reader":
		if err := firstProcess(os.Getenv(asWhat) == "writer"); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
}

// A record is valid only in the network namespace and during the life of its writer.
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

	sleep := process.Start(t, exec.Command("sleep", "infinity"), process.Options{})
	other := r
	other.PID = sleep.PID()
	other.Began-- // an earlier start: the real one may be in the same hundredth of a second
	write(other)
	bad("another one has its number")
	sleep.Kill()
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

// A record of an earlier start of a container is not valid after a restart, although the first
// process has number 1 each time.
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
	time.Sleep(20 * time.Millisecond) // the kernel counts hundredths of a second (the kubelet pauses for 10 s)
	if out, ok := start("reader"); ok || !strings.Contains(out, "process 1, which wrote it, has ended, and another one has its number") {
		t.Errorf("%t, %q; want a failure", ok, out)
	}
}

// firstProcess plays the first process of a container with its own /proc. It writes a record
// if writes is true, and reads the record.
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
