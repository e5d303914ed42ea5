package state

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/startup"
	"outrider.dev/test/ns"
	"outrider.dev/test/process"
)

// role names the environment variable that makes the test binary play a container.
const role = "OUTRIDER_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(role) == "" {
		os.Exit(m.Run())
	}
	// In the role "write", the process publishes that it is healthy, and stays.
	w, err := Open(Place{Container: os.Args[1], States: os.Args[2], Own: filepath.Join(os.Args[2], os.Args[1])}, Record{Phase: Running, Healthy: true})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	defer w.Close()
	fmt.Println("published")
	time.Sleep(time.Minute)
}

// volume makes a directory in memory with a subdirectory for each container, as the kubelet does.
func volume(t *testing.T, containers ...string) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "states")
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, c := range containers {
		if err := os.Mkdir(filepath.Join(dir, c), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func at(dir, container string) Place {
	return Place{Container: container, Sandbox: "s", States: dir, Own: filepath.Join(dir, container)}
}

func publish(t *testing.T, p Place, r Record) *Writer {
	t.Helper()
	w, err := Open(p, r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

func see(t *testing.T, dir, container string) Seen {
	t.Helper()
	s, err := Read(dir, "s", container)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// changed waits for an event of the watch.
func changed(t *testing.T, w *Watch) {
	t.Helper()
	select {
	case <-w.C:
	case <-time.After(time.Minute):
		t.Fatal("the watch has no event")
	}
}

func TestAStateCountsWhileItsWriterLives(t *testing.T) {
	dir := volume(t, "app")
	if s := see(t, dir, "app"); s.Known {
		t.Errorf("known before it published anything: %+v", s)
	}
	w := publish(t, at(dir, "app"), Record{Phase: Running, Healthy: true})
	if s := see(t, dir, "app"); !s.Alive || !s.Healthy {
		t.Errorf("its writer lives, and it is %+v", s)
	}
	if err := w.Update(func(r *Record) { r.Healthy = false }); err != nil {
		t.Fatal(err)
	}
	if s := see(t, dir, "app"); !s.Alive || s.Healthy {
		t.Errorf("it became unhealthy, and is %+v", s)
	}
	w.Close()
	if s := see(t, dir, "app"); s.Alive || !s.Status().Failed {
		t.Errorf("its writer let go, and it is %+v", s)
	}
}

func TestTheNextIncarnationKnowsWhatIsTrueOfTheSandbox(t *testing.T) {
	dir := volume(t, "app")
	w := publish(t, at(dir, "app"), Record{Phase: Running})
	if err := w.Update(func(r *Record) { r.Phase, r.Starts, r.Completed = Ended, 2, true }); err != nil {
		t.Fatal(err)
	}
	w.Close()
	next := publish(t, at(dir, "app"), Record{Phase: Waiting})
	if r := next.Record(); r.Starts != 2 || !r.Completed || r.Phase != Waiting {
		t.Errorf("in the same sandbox: %+v", r)
	}
	next.Close()
	elsewhere := at(dir, "app")
	elsewhere.Sandbox = "another"
	if r := publish(t, elsewhere, Record{Phase: Waiting}).Record(); r.Starts != 0 || r.Completed {
		t.Errorf("in another sandbox: %+v", r)
	}
	if s := see(t, dir, "app"); s.Known {
		t.Errorf("the record of another sandbox counts here: %+v", s)
	}
}

func TestTwoWritersOfOneState(t *testing.T) {
	dir := volume(t, "app")
	publish(t, at(dir, "app"), Record{Phase: Running})
	if _, err := Open(at(dir, "app"), Record{Phase: Waiting}); !errors.Is(err, ErrAlive) {
		t.Errorf("the second one: %v, want %v", err, ErrAlive)
	}
}

// Whatever a container puts into its own directory, its readers do not hang, do not read files
// elsewhere, and do not take a dead writer for a living one.
func TestWhatStandsInThePlaceOfAState(t *testing.T) {
	const healthy = `{"version":1,"container":"%s","sandbox":"s","phase":"running","healthy":true}`
	tests := map[string]struct {
		put       func(dir, file string) error
		wantError bool
	}{
		"a file that no process holds": {func(_, file string) error { return os.WriteFile(file, fmt.Appendf(nil, healthy, "evil"), 0o644) }, false},
		"the record of another container": {func(dir, file string) error {
			return os.Link(filepath.Join(dir, "good", recordFile), file)
		}, true},
		"a link to the record of another": {func(_, file string) error { return os.Symlink("../good/"+recordFile, file) }, true},
		"a pipe":                          {func(_, file string) error { return unix.Mkfifo(file, 0o644) }, true},
		"a directory":                     {func(_, file string) error { return os.Mkdir(file, 0o755) }, true},
		"a file without an end":           {func(_, file string) error { return os.WriteFile(file, make([]byte, recordLimit+1), 0o644) }, true},
		"rubbish":                         {func(_, file string) error { return os.WriteFile(file, []byte("healthy"), 0o644) }, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			dir := volume(t, "good", "evil")
			publish(t, at(dir, "good"), Record{Phase: Running, Healthy: true})
			if err := tt.put(dir, filepath.Join(dir, "evil", recordFile)); err != nil {
				t.Fatal(err)
			}
			s, err := Read(dir, "s", "evil")
			if s.Healthy && s.Alive || s.Runs() || (err != nil) != tt.wantError {
				t.Errorf("seen as %+v, error %v", s, err)
			}
		})
	}
}

// A process that may only read a record can take a shared lock on it, or a lock by flock(2).
// Neither makes a dead writer seem alive or hinders the next writer.
func TestAReaderCannotForgeALock(t *testing.T) {
	dir := volume(t, "app")
	publish(t, at(dir, "app"), Record{Phase: Running, Healthy: true}).Close()
	f, err := os.Open(filepath.Join(dir, "app", recordFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := lock(f); err == nil {
		t.Error("a write lock through a descriptor that can only read")
	}
	if err := awaitUnlocked(f); err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	if s := see(t, dir, "app"); s.Alive {
		t.Errorf("a dead writer lives: %+v", s)
	}
	publish(t, at(dir, "app"), Record{Phase: Waiting})
}

func TestTheDeathOfAProcessIsAnEvent(t *testing.T) {
	dir := volume(t, "app", "me")
	watch, err := NewWatch(Place{Container: "me", States: dir, Own: filepath.Join(dir, "me")})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	cmd := exec.Command("/proc/self/exe", "app", dir)
	cmd.Env = append(os.Environ(), role+"=write", "GORACE=atexit_sleep_ms=0")
	p := process.Start(t, cmd, process.Options{})
	changed(t, watch)
	if s, err := watch.See("app"); !s.Alive || !s.Healthy || err != nil {
		t.Fatalf("it published, and is %+v, %v", s, err)
	}
	p.Kill()
	changed(t, watch)
	if s, err := watch.See("app"); s.Alive || !s.Status().Failed || err != nil {
		t.Errorf("it was killed, and is %+v, %v", s, err)
	}
}

// A reader during a change sees the previous record or the new one, and always a living
// writer.
func TestAChangeNeverLooksLikeADeath(t *testing.T) {
	dir := volume(t, "app")
	w := publish(t, at(dir, "app"), Record{Phase: Running})
	var done sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		done.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if s, err := Read(dir, "s", "app"); !s.Alive || err != nil {
					t.Errorf("while it lives: %+v, %v", s, err)
					return
				}
			}
		})
	}
	for i := range 3000 {
		if err := w.Update(func(r *Record) { r.Starts = i }); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	done.Wait()
}

func TestEveryBellRings(t *testing.T) {
	dir := volume(t, "app", "one", "two", "three")
	// A bell without an owner, and a file in its place that is no bell, are skipped.
	if err := os.Symlink("/dev/log", filepath.Join(dir, "three", bellFile)); err != nil {
		t.Fatal(err)
	}
	var all []*Watch
	for _, name := range []string{"one", "two"} {
		w, err := NewWatch(at(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		all = append(all, w)
	}
	w := publish(t, at(dir, "app"), Record{Phase: Waiting})
	for _, watch := range all {
		changed(t, watch)
	}
	if err := w.Update(func(r *Record) { r.Phase = Running }); err != nil {
		t.Fatal(err)
	}
	for _, watch := range all {
		changed(t, watch)
	}
}

func TestAStateThatCannotBeWritten(t *testing.T) {
	dir := volume(t, "app")
	w := publish(t, at(dir, "app"), Record{Phase: Running, Healthy: true})
	if err := os.RemoveAll(filepath.Join(dir, "app", recordFile)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "app")); err != nil {
		t.Fatal(err)
	}
	err := w.Update(func(r *Record) { r.Healthy = false })
	if err == nil || !strings.Contains(err.Error(), "publishing the state of app") {
		t.Errorf("Update: %v", err)
	}
	if _, err := Open(Place{States: dir, Own: dir}, Record{Phase: Running}); err == nil {
		t.Error("a state without a name")
	}
}

func TestASandboxIsANetworkNamespaceOfThisBoot(t *testing.T) {
	one, err := Sandbox()
	if err != nil {
		t.Fatal(err)
	}
	if two, err := Sandbox(); one != two || err != nil || len(one) < 36 {
		t.Errorf("%q and %q, %v", one, two, err)
	}
	ns.RequireRoot(t)
	other := make(chan string)
	go func() { // never unlocked, so the thread ends with the goroutine
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			other <- err.Error()
			return
		}
		s, _ := Sandbox()
		other <- s
	}()
	if s := <-other; s == one || !strings.HasPrefix(s, one[:36]) {
		t.Errorf("in another namespace: %q, here %q", s, one)
	}
}

func TestAJournalIsBounded(t *testing.T) {
	dir := volume(t, "app")
	w := publish(t, at(dir, "app"), Record{Phase: Waiting})
	const lines = 5000
	for i := range lines {
		w.Note(startup.IsStarted, i, "after cache is healthy, as the plan has it")
	}
	got, err := Journal(dir, "app")
	if err != nil || len(got) == 0 || len(got) > lines || got[len(got)-1].Incarnation != lines-1 {
		t.Fatalf("%d entries, %v", len(got), err)
	}
	for i, e := range got[1:] {
		if e.Incarnation != got[i].Incarnation+1 {
			t.Fatalf("entry %d follows %d", e.Incarnation, got[i].Incarnation)
		}
	}
	if err := os.Remove(filepath.Join(dir, "app", journalFile)); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "app", journalFile), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Journal(dir, "app"); err == nil {
		t.Error("a pipe is read as a journal")
	}
}
