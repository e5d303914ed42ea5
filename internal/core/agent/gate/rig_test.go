package gate

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/agent/state"
	"outrider.dev/startup"
	"outrider.dev/test/process"
)

// The test binary plays the gates, and the commands that they run.
const (
	role     = "OUTRIDER_TEST_ROLE"
	gateSpec = "OUTRIDER_TEST_GATE"
	logFile  = "OUTRIDER_TEST_LOG"
)

func TestMain(m *testing.M) {
	name := os.Getenv(role)
	if name == "" {
		code := m.Run()
		if self.name != "" {
			os.Remove(self.name)
		}
		os.Exit(code)
	}
	os.Exit(roles[name](os.Args[1:]))
}

var roles map[string]func([]string) int

func init() { // in init, because roles and the functions in it refer to one another
	roles = map[string]func([]string) int{"gate": playGate, "work": playWork}
}

// A spec describes a gate; it is passed to another process as JSON.
type spec struct {
	Name           string
	Dir            string // the pod's directory; default: the paths of a real pod
	After          []string
	At             map[string]string
	Probe, Startup string
	PostStart      string
	Notify         string
	Restart        startup.Restart
	HelperOf       []string
	StopGrace      time.Duration
	PreStop        bool
	SecondLook     time.Duration
	Released       string // a file that grows with each call of Release
	Command        []string
	NotifySignal   syscall.Signal
}

func playGate([]string) int {
	var s spec
	must(json.Unmarshal([]byte(os.Getenv(gateSpec)), &s))
	o := Options{Command: s.Command, At: map[string]*url.URL{}, Restart: s.Restart, HelperOf: s.HelperOf, StopGrace: s.StopGrace, PreStop: s.PreStop, SecondLook: s.SecondLook, NotifySignal: s.NotifySignal}
	o.Place = state.Place{Container: s.Name}
	if s.Dir != "" {
		o.Place.States, o.Place.Own = filepath.Join(s.Dir, "state"), filepath.Join(s.Dir, "state", s.Name)
	}
	for _, text := range s.After {
		e, err := ParseAfter(s.Name, text)
		must(err)
		o.After = append(o.After, e)
	}
	for name, text := range s.At {
		u, err := ParseAddress(text)
		must(err)
		o.At[name] = u
	}
	var err error
	read := func(text string, into func(string)) {
		if text != "" {
			into(text)
			must(err)
		}
	}
	read(s.Probe, func(text string) { o.Probe, err = ParseProbe(text) })
	read(s.Startup, func(text string) { o.StartupProbe, err = ParseProbe(text) })
	read(s.PostStart, func(text string) { o.PostStart, err = ParseHook(text) })
	read(s.Notify, func(text string) { o.Notify, err = ParseNotify(text) })
	if s.Released != "" {
		o.Release = func() bool {
			f, err := os.OpenFile(s.Released, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o666)
			must(err)
			defer f.Close()
			_, err = f.Write([]byte("."))
			must(err)
			return true
		}
	}
	os.Unsetenv(gateSpec)
	os.Setenv(role, "work")
	o.Environ = os.Environ()
	o.Say, o.Explain = func(line string) { fmt.Fprintln(os.Stderr, "gate:", line) }, func(string) {}
	return Run(context.Background(), o)
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(99)
	}
}

// note appends a line to the log that all processes of a test share.
func note(format string, args ...any) {
	f, err := os.OpenFile(os.Getenv(logFile), os.O_WRONLY|os.O_APPEND, 0)
	must(err)
	defer f.Close()
	_, err = fmt.Fprintf(f, "%d %s\n", time.Now().UnixNano(), fmt.Sprintf(format, args...))
	must(err)
}

// playWork plays a container's command. Its arguments are NAME INCARNATION KEY=VALUE... The keys
// healthy, lives and stops give the time after which it gets healthy, ends by itself, and ends
// after SIGTERM.
func playWork(args []string) int {
	name, incarnation := args[0], args[1]
	term := make(chan os.Signal, 1)
	hup := make(chan os.Signal, 8)
	signal.Notify(term, unix.SIGTERM)
	note("%s pid %s %d", name, incarnation, os.Getpid())
	do := map[string]string{}
	for _, arg := range args[2:] {
		k, v, _ := strings.Cut(arg, "=")
		do[k] = v
	}
	duration := func(key string) <-chan time.Time {
		if do[key] == "" {
			return nil
		}
		d, err := time.ParseDuration(do[key])
		must(err)
		return time.After(d)
	}
	if _, ok := do["hup"]; ok {
		signal.Notify(hup, unix.SIGHUP)
	}
	code, _ := strconv.Atoi(do["code"])
	healthy, lives := duration("healthy"), duration("lives")
	for {
		select {
		case <-healthy:
			note("%s %s %s", name, startup.IsHealthy, incarnation)
			_, err := os.NewFile(3, "ready").Write([]byte("\n"))
			must(err)
		case <-hup:
			note("%s %s %s", name, startup.IsNotified, incarnation)
		case <-lives:
			return code
		case <-term:
			if d := duration("stops"); d != nil {
				<-d
			}
			return 0
		}
	}
}

// A pod is a set of containers with gates that run as processes of this machine.
type pod struct {
	t     testing.TB
	dir   string
	exe   string // a copy of the test binary that every user may run
	begun time.Time
	watch *state.Watch
	mu    sync.Mutex
	all   map[string]*container
	n     map[string]int // number of starts of each container
}

type container struct {
	*process.Process
	cmd *exec.Cmd
}

const harness = "zz-harness"

func newPod(t testing.TB) *pod {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "gate")
	if err != nil {
		dir, err = os.MkdirTemp("", "gate") // t.TempDir's names are too long for a socket
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	p := &pod{t: t, dir: dir, exe: filepath.Join(dir, "gate.test"), begun: time.Now(), all: map[string]*container{}, n: map[string]int{}}
	check(t, os.Chmod(dir, 0o755))
	check(t, os.Mkdir(filepath.Join(dir, "state"), 0o777))
	check(t, os.WriteFile(filepath.Join(dir, "log"), nil, 0o666))
	check(t, os.Chmod(filepath.Join(dir, "log"), 0o666))
	self.once.Do(func() { self.err = copyTo(filepath.Dir(dir)) })
	check(t, self.err)
	check(t, os.Link(self.name, p.exe))
	p.add(harness)
	p.watch, err = state.NewWatch(p.place(harness))
	check(t, err)
	t.Cleanup(func() { p.watch.Close() })
	return p
}

// self is a copy of the test binary on the pods' file system, where every user may run it.
var self struct {
	once sync.Once
	name string
	err  error
}

func copyTo(dir string) error {
	in, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.CreateTemp(dir, "gate.test")
	if err != nil {
		return err
	}
	self.name = out.Name()
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Chmod(0o755), out.Close())
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (p *pod) place(name string) state.Place {
	return state.Place{Container: name, States: filepath.Join(p.dir, "state"), Own: filepath.Join(p.dir, "state", name)}
}

// add makes a container's directory, as the kubelet does: every user may write there.
func (p *pod) add(name string) {
	own := p.place(name).Own
	if err := os.Mkdir(own, 0o777); err != nil && !os.IsExist(err) {
		p.t.Fatal(err)
	}
	check(p.t, os.Chmod(own, 0o777))
}

func (p *pod) environ(s spec) []string {
	text, err := json.Marshal(s)
	check(p.t, err)
	// Without GORACE, a test binary with the race detector waits a second at exit.
	return append(os.Environ(), role+"=gate", gateSpec+"="+string(text), logFile+"="+filepath.Join(p.dir, "log"), "GORACE=atexit_sleep_ms=0")
}

// work returns a command line that runs this test binary with playWork.
func (p *pod) work(name string, do ...string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.n[name]
	p.n[name]++
	return append([]string{p.exe, name, strconv.Itoa(n)}, do...)
}

// start runs a gate. If s has no Command, the gate runs playWork; its arguments are in do.
func (p *pod) start(s spec, do ...string) *container {
	p.t.Helper()
	s.Dir = p.dir
	p.add(s.Name)
	if s.Command == nil {
		s.Command = p.work(s.Name, do...)
	}
	cmd := exec.Command(p.exe)
	cmd.Env = p.environ(s)
	return p.launch(s.Name, cmd)
}

// proxy publishes the record of a proxy that runs.
func (p *pod) proxy(r state.Record) *state.Writer {
	p.t.Helper()
	p.add(contract.ProxyContainer)
	r.Phase = state.Running
	w, err := state.Open(p.place(contract.ProxyContainer), r)
	check(p.t, err)
	p.t.Cleanup(func() { w.Close() })
	return w
}

func (p *pod) launch(name string, cmd *exec.Cmd) *container {
	p.t.Helper()
	c := &container{process.Start(p.t, cmd, process.Options{}), cmd}
	p.mu.Lock()
	p.all[name] = c
	p.mu.Unlock()
	return c
}

// ended waits for the end of the gate and returns its status; 128+n for signal n.
func (p *pod) ended(c *container) int {
	p.t.Helper()
	c.Exit()
	return exitCode(c.cmd.ProcessState)
}

func (p *pod) signal(c *container, s syscall.Signal) {
	p.t.Helper()
	c.Signal(s)
}

// until waits until the condition wanted holds for a container's record, and returns the record.
func (p *pod) until(name string, wanted func(state.Seen) bool) state.Seen {
	p.t.Helper()
	over := time.After(process.Patience)
	for {
		seen, err := p.watch.See(name)
		check(p.t, err)
		if wanted(seen) {
			return seen
		}
		select {
		case <-p.watch.C:
		case <-over:
			p.t.Fatalf("%s is %+v, which was not wanted\n%s", name, seen, p.log())
		}
	}
}

func (p *pod) runs(name string) { p.t.Helper(); p.until(name, state.Seen.Runs) }
func (p *pod) healthy(name string) {
	p.t.Helper()
	p.until(name, func(s state.Seen) bool { return s.Status().Healthy })
}
func (p *pod) waits(name string) {
	p.t.Helper()
	p.until(name, func(s state.Seen) bool { return s.Alive && s.Phase == state.Waiting })
}

// event adds a line about the test's own actions to the log.
func (p *pod) event(format string, args ...any) {
	f, err := os.OpenFile(filepath.Join(p.dir, "log"), os.O_WRONLY|os.O_APPEND, 0)
	check(p.t, err)
	defer f.Close()
	_, err = fmt.Fprintf(f, "%d %s\n", time.Now().UnixNano(), fmt.Sprintf(format, args...))
	check(p.t, err)
}

func (p *pod) log() string {
	b, err := os.ReadFile(filepath.Join(p.dir, "log"))
	check(p.t, err)
	return string(b)
}

// timeline returns the events of the pod in order. Starts and ends come from the journals of the
// gates; the commands log that they are healthy, just before they notify their gates, and the
// test logs its kills. A command may log before its gate has written the start: the start is
// then moved to the time of that line.
func (p *pod) timeline() startup.Timeline {
	p.t.Helper()
	type run struct {
		container   string
		incarnation int
	}
	reported := map[run]time.Duration{}
	var out startup.Timeline
	for in := bufio.NewScanner(strings.NewReader(p.log())); in.Scan(); {
		w := strings.Fields(in.Text())
		at, err := strconv.ParseInt(w[0], 10, 64)
		check(p.t, err)
		ev := startup.Event{At: time.Duration(at - p.begun.UnixNano()), What: startup.What(w[1])}
		if len(w) > 3 {
			ev.Container, ev.What = w[1], startup.What(w[2])
			ev.Incarnation, err = strconv.Atoi(w[3])
			check(p.t, err)
		}
		if ev.What == startup.IsHealthy {
			reported[run{ev.Container, ev.Incarnation}] = ev.At
		}
		if ev.What != "pid" {
			out = append(out, ev)
		}
	}
	for name := range p.all {
		entries, err := state.Journal(filepath.Join(p.dir, "state"), name)
		check(p.t, err)
		for _, e := range entries {
			ev := startup.Event{Container: name, What: e.What, At: e.Time.Sub(p.begun), Incarnation: e.Incarnation, Detail: e.Detail}
			if at, ok := reported[run{name, e.Incarnation}]; ok && e.What == startup.IsStarted {
				ev.At = min(ev.At, at-1)
			}
			if e.What != startup.IsHealthy {
				out = append(out, ev)
			}
		}
	}
	return out.Sorted()
}

// output runs a gate to its end, and returns its status and its standard output.
func (p *pod) output(s spec, stdin string) (code int, stdout string) {
	p.t.Helper()
	s.Dir = p.dir
	p.add(s.Name)
	cmd := exec.Command(p.exe)
	cmd.Env = p.environ(s)
	cmd.Stdin = strings.NewReader(stdin)
	r, w, err := os.Pipe()
	check(p.t, err)
	cmd.Stdout = w
	c := p.launch(s.Name, cmd)
	w.Close()
	b, err := io.ReadAll(r)
	check(p.t, err)
	return p.ended(c), string(b)
}
