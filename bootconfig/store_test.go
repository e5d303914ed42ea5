package bootconfig

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// writerEnv is set in the processes that TestAKilledWriterLeavesAGoodFile starts as writers.
const writerEnv = "BOOTCONFIG_TEST_WRITER"

func TestMain(m *testing.M) {
	if at := os.Getenv(writerEnv); at != "" {
		writeForEver(os.Getenv(writerEnv+"_PATH"), at)
	}
	os.Exit(m.Run())
}

// writeForEver writes one document after the other. It kills its own process while it writes the third
// document, at the given step (at). If there is no such step, it continues until the test kills it.
func writeForEver(path, at string) {
	s := newStore(path, "", 1<<20)
	for n := 1; ; n++ {
		s.step = func(step string) {
			if n == 3 && step == at {
				p, err := os.FindProcess(os.Getpid())
				if err != nil {
					panic(err)
				}
				p.Kill()
				select {} // wait until the kill signal arrives
			}
		}
		if err := s.save(record{header{From: "writer", Fetched: time.Now()}, good(n)}); err != nil {
			panic(err)
		}
		if n == 3 {
			fmt.Println("three are written")
		}
	}
}

func writer(t *testing.T, path, at string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), writerEnv+"="+at, writerEnv+"_PATH="+path)
	return cmd
}

// valid loads the file at the path, checks that its document is valid, and returns N.
func valid(t *testing.T, path string) int {
	t.Helper()
	r, err := newStore(path, "", 1<<20).load()
	if err != nil {
		t.Fatalf("what is left cannot be read: %v", err)
	}
	o, err := Options[settings]{Provider: script(hang), Validate: settings.Validate}.complete()
	if err != nil {
		t.Fatal(err)
	}
	v, err := o.value(r.document)
	if err != nil {
		t.Fatalf("what is left is bad: %v", err)
	}
	return v.N
}

func temps(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, ".*.tmp-*"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestAKilledWriterLeavesAGoodFile(t *testing.T) {
	tests := []struct {
		at    string
		want  int
		temps int
	}{
		{"created", 2, 1}, {"half written", 2, 1}, {"written", 2, 1}, {"set aside", 2, 1}, {"renamed", 3, 0},
	}
	for _, tt := range tests {
		t.Run(tt.at, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "last")
			out, err := writer(t, path, tt.at).CombinedOutput()
			if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.Exited() {
				t.Fatalf("the writer was not killed: %v\n%s", err, out)
			}
			if got := valid(t, path); got != tt.want {
				t.Errorf("document %d is left; want %d", got, tt.want)
			}
			if got := temps(t, dir); len(got) != tt.temps {
				t.Errorf("temporary files %q; want %d", got, tt.temps)
			}
			// The next Open removes temporary files, and starts with the remaining document.
			c := open(t, Options[settings]{Provider: script(hang), LastGood: path, Validate: settings.Validate})
			if got := c.Get().N; got != tt.want {
				t.Errorf("the next start has %d; want %d", got, tt.want)
			}
			if got := temps(t, dir); len(got) != 0 {
				t.Errorf("the next start leaves %q", got)
			}
		})
	}
}

// Writers that share a file are killed at random moments while another process reads it.
func TestWritersThatAreKilledAtAnyMoment(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "last")
	for round := range 10 {
		a, b := writer(t, path, "never"), writer(t, path, "never")
		for _, cmd := range []*exec.Cmd{a, b} {
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if _, err := out.Read(make([]byte, 1)); err != nil { // three documents are written
				t.Fatal(err)
			}
		}
		for range round + 1 { // reading for a varying time changes the moment of the kill
			if n := valid(t, path); n < 1 {
				t.Fatalf("document %d", n)
			}
		}
		for _, cmd := range []*exec.Cmd{a, b} {
			cmd.Process.Kill()
			cmd.Wait()
		}
		valid(t, path)
	}
	if err := newStore(path, "", 1<<20).clean(); err != nil {
		t.Fatal(err)
	}
	if got := temps(t, dir); len(got) != 0 {
		t.Errorf("left behind: %q", got)
	}
}

func TestATemporaryFileOfALivingWriterStays(t *testing.T) {
	dir := t.TempDir()
	s := newStore(filepath.Join(dir, "last"), "", 1<<20)
	s.step = func(step string) {
		if step != "half written" {
			return
		}
		if err := newStore(s.path, "", 1<<20).clean(); err != nil {
			t.Error(err)
		}
		if got := temps(t, dir); len(got) != 1 {
			t.Errorf("temporary files %q; want the one that is being written", got)
		}
	}
	if err := s.save(record{document: good(1)}); err != nil {
		t.Fatal(err)
	}
	if got := valid(t, s.path); got != 1 {
		t.Errorf("document %d", got)
	}
}

// After a rollback, the old program finds its own document. A corrupt file is kept, so that a person can examine
// it. The number of files does not grow.
func TestOtherSchemasAndCorruptFilesAreKeptAside(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "last")
	old, tomorrow := newStore(path, "1", 1<<20), newStore(path, "2", 1<<20)
	save := func(s *store, n int) {
		t.Helper()
		if err := s.save(record{header{Fetched: time.Now()}, good(n)}); err != nil {
			t.Fatal(err)
		}
	}
	loads := func(s *store, n int, why string) {
		t.Helper()
		r, err := s.load()
		switch {
		case why == "" && (err != nil || string(r.document) != string(good(n))):
			t.Errorf("schema %s: %q, %v; want document %d", s.schema, r.document, err, n)
		case why != "" && (err == nil || !strings.Contains(err.Error(), why)):
			t.Errorf("schema %s: error %v; want %q", s.schema, err, why)
		}
	}
	save(old, 1)
	loads(tomorrow, 0, `schema "1"; this program reads schema "2"`)
	save(tomorrow, 2)
	loads(tomorrow, 2, "")
	loads(old, 1, "") // after a roll-back
	for n := range 5 {
		save(old, 10+n)
		save(tomorrow, 20+n)
	}
	loads(old, 14, "")
	loads(tomorrow, 24, "")

	corrupt := func(change func([]byte) []byte) {
		t.Helper()
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, change(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	corrupt(func(data []byte) []byte { data[len(data)-3] ^= 1; return data })
	loads(tomorrow, 0, "checksum is another")
	save(tomorrow, 30)
	corrupt(func(data []byte) []byte { return data[:len(data)-1] })
	loads(tomorrow, 0, "its header says")
	save(tomorrow, 31)
	corrupt(func(data []byte) []byte { return []byte(strings.Replace(string(data), `"format":1`, `"format":9`, 1)) })
	loads(tomorrow, 0, "format 9")
	save(tomorrow, 32)
	loads(tomorrow, 32, "")

	var names []string
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has the mode %v; documents can contain secrets", e.Name(), info.Mode())
		}
	}
	if got, want := strings.Join(names, " "), "last last.corrupt last.other"; got != want {
		t.Errorf("files %s; want %s", got, want)
	}
}

// A document that another process fetched later is not replaced by an earlier one of this process.
func TestALaterDocumentOfAnotherProcessStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "last")
	a, b := newStore(path, "", 1<<20), newStore(path, "", 1<<20)
	now := time.Now()
	if err := a.save(record{header{Fetched: now.Add(-time.Minute)}, good(2)}); err != nil {
		t.Fatal(err)
	}
	if err := b.save(record{header{Fetched: now.Add(-time.Hour)}, good(1)}); err != nil {
		t.Fatal(err)
	}
	if got := valid(t, path); got != 2 {
		t.Errorf("document %d is kept; want 2", got)
	}
	// A document from the future, of a process whose clock was ahead, must not prevent all later writes.
	if err := a.save(record{header{Fetched: now.Add(24 * time.Hour)}, good(3)}); err != nil {
		t.Fatal(err)
	}
	if err := b.save(record{header{Fetched: time.Now()}, good(4)}); err != nil {
		t.Fatal(err)
	}
	if got := valid(t, path); got != 4 {
		t.Errorf("document %d is kept; want 4", got)
	}
}

// A failed write is reported, and retried until it succeeds, while everything else continues. The obstacle is a
// file in place of the folder, because a file mode does not prevent root from writing.
func TestADiskThatCannotBeWrittenIsReported(t *testing.T) {
	dir := t.TempDir()
	obstacle := filepath.Join(dir, "folder")
	if err := os.WriteFile(obstacle, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := newStore(filepath.Join(obstacle, "last"), "", 1<<20)
	reports, done := make(chan error), make(chan struct{})
	go func() {
		s.run(t.Context(), func(err error) { reports <- err })
		close(done)
	}()
	s.keep(record{document: good(1)})
	if err := <-reports; !strings.Contains(err.Error(), "keeping the last good document") {
		t.Errorf("reported %v", err)
	}
	signal(s.wake) // as the server's next answer does
	if err := <-reports; !errors.As(err, new(*fs.PathError)) {
		t.Errorf("reported %v", err)
	}
	if err := os.Remove(obstacle); err != nil {
		t.Fatal(err)
	}
	signal(s.wake)
	for s.next.Load() != nil {
		time.Sleep(time.Millisecond)
	}
	if got := valid(t, s.path); got != 1 {
		t.Errorf("document %d", got)
	}
}

// Close right after a change does not lose the change.
func TestCloseWritesWhatIsToBeWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "last")
	for n := range 20 {
		c := open(t, Options[settings]{Provider: serve("", good(n)), LastGood: path, Validate: settings.Validate, Timeout: time.Minute}) // Close waits for the disk for as long
		var once sync.Once
		changed := make(chan struct{})
		c.OnChange(func(s Snapshot[settings]) {
			if s.Source == FromProvider {
				once.Do(func() { close(changed) })
			}
		})
		if err := c.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			<-changed
		}
		c.Close()
		if got := valid(t, path); got != n {
			t.Fatalf("document %d is kept; want %d", got, n)
		}
	}
}
