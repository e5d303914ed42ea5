package process

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// A recorder is a test that is to fail.
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

// failureOf is how a wait fails.
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

// A value may be another one at first. The failure has the last difference.
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

// What a process did before its end counts, even if it was looked at afterwards.
func TestWhatHappenedBeforeTheEndIsSeen(t *testing.T) {
	p := Start(t, exec.Command("true"), Options{})
	<-p.Done()
	Eventually(t, "a condition that holds", func() bool { return true }, p)
}

// TestMain starts a child that leaves a grandchild, for TestAKilledTestLeavesNothing.
func TestMain(m *testing.M) {
	if os.Getenv("OUTRIDER_CHILD") == "" {
		os.Exit(m.Run())
	}
	p := Start(&recorder{}, exec.Command("sleep", "300"), Options{Log: os.Getenv("OUTRIDER_CHILD")})
	fmt.Println(p.PID())
	select {}
}

func TestAKilledTestLeavesNothing(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), "OUTRIDER_CHILD="+t.TempDir()+"/sleep.log")
	test := Start(t, cmd, Options{})
	var pid int
	Eventually(t, "the number of a child", func() bool {
		n, _ := fmt.Sscan(test.Log(), &pid)
		return n == 1
	}, test)
	test.Kill()
	AwaitEnd(t, pid)
}

func (r *recorder) Helper()        {}
func (r *recorder) Cleanup(func()) {}
