package process

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// A recorder is a testing.TB that records a failure instead of failing the test.
type recorder struct {
	testing.TB
	failure string
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.failure = fmt.Sprintf(format, args...)
	panic(r)
}

func TestAWaitEndsWithItsProcess(t *testing.T) {
	t.Setenv("OUTRIDER_LOGS", t.TempDir())
	p := Start(t, exec.Command("sh", "-c", "echo the reason; exit 3"), Options{})
	begin := time.Now()
	failure := failureOf(t, func(t testing.TB) { Eventually(t, "an answer", func() bool { return false }, p) })
	if took := time.Since(begin); took > Patience/2 {
		t.Errorf("it waited %s for a process that had ended", took)
	}
	for _, want := range []string{"an answer", "exit status 3"} {
		if !strings.Contains(failure, want) {
			t.Errorf("the failure has no %q:\n%s", want, failure)
		}
	}
	log := regexp.MustCompile(`its log is in (\S+)`).FindStringSubmatch(failure)
	if log == nil {
		t.Fatalf("the failure names no log:\n%s", failure)
	}
	if raw, err := os.ReadFile(log[1]); err != nil || string(raw) != "the reason\n" {
		t.Errorf("the log has %q, %v", raw, err)
	}
}

// failureOf returns the message with which a wait fails.
func failureOf(t *testing.T, wait func(testing.TB)) (failure string) {
	t.Helper()
	r := &recorder{TB: t}
	defer func() {
		if e := recover(); e != nil && e != r {
			panic(e)
		}
		failure = r.failure
	}()
	wait(r)
	t.Fatal("the wait did not fail")
	return ""
}

// EventuallyEqual accepts values that differ at first. If the value never equals want, the failure message shows the
// last difference.
func TestAValueBecomesTheWantedOne(t *testing.T) {
	t.Setenv("OUTRIDER_LOGS", t.TempDir())
	p := Start(t, exec.Command("sleep", "300"), Options{})
	n := 0
	count := func() int { n++; return n }
	EventuallyEqual(t, "the third", 3, count, p)
	p.Kill()
	failure := failureOf(t, func(t testing.TB) { EventuallyEqual(t, "the third", 3, count, p) })
	for _, want := range []string{"the third", "3", "4", "signal: killed"} {
		if !strings.Contains(failure, want) {
			t.Errorf("the failure has no %q:\n%s", want, failure)
		}
	}
}

// A wait succeeds if a process has met the condition before it ended, even if the wait begins later.
func TestWhatHappenedBeforeTheEndIsSeen(t *testing.T) {
	p := Start(t, exec.Command("true"), Options{})
	<-p.Done()
	Eventually(t, "a condition that holds", func() bool { return true }, p)
}

// TestMain also plays two child processes of TestAKilledTestLeavesNothing: a test whose own child must not outlive
// that test and, if the program is called "go", the go command that runs the test.
func TestMain(m *testing.M) {
	log := os.Getenv("OUTRIDER_CHILD")
	switch {
	case log == "":
		os.Exit(m.Run())
	case filepath.Base(os.Args[0]) == "go":
		test := exec.Command("/proc/self/exe")
		test.Stdout = os.Stdout
		test.Run()
	default:
		p := Start(&recorder{}, exec.Command("sleep", "300"), Options{Log: log})
		bound := exec.Command("sleep", "300")
		if err := StartBound(bound); err != nil {
			panic(err)
		}
		fmt.Println(p.PID(), bound.Process.Pid)
		select {}
	}
}

func TestAKilledTestLeavesNothing(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := filepath.Join(t.TempDir(), "go")
	if err := os.Symlink(self, command); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{"the test": self, "its go command": command} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(path)
			cmd.Env = append(os.Environ(), "OUTRIDER_CHILD="+t.TempDir()+"/sleep.log")
			killed := Start(t, cmd, Options{})
			pids := make([]int, 2)
			Eventually(t, "the numbers of the children", func() bool {
				n, _ := fmt.Sscanln(killed.Log(), &pids[0], &pids[1])
				return n == 2
			}, killed)
			killed.Kill()
			for _, pid := range pids {
				AwaitEnd(t, pid)
			}
		})
	}
}

func (r *recorder) Helper()        {}
func (r *recorder) Cleanup(func()) {}

// When Envoy aborts, the failure message contains the reason, although a dump with long lines follows it in the log.
func TestTheReasonIsShown(t *testing.T) {
	reason := `{"level":"critical","component":"assert","message":"assert failure"}`
	log := strings.Repeat("a line of before\n", 1000) + reason + "\n" + strings.Repeat("#0: [0x1]\n", 61) + strings.Repeat("x", 12_000) + strings.Repeat("\ny", 7)
	if got := tail(log); !strings.Contains(got, reason) || len(got) > 5000 {
		t.Errorf("%d bytes:\n%s", len(got), got)
	}
}
