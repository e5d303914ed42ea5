package gate

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/core/agent/state"
	"outrider.dev/startup"
	"outrider.dev/test/ns"
	"outrider.dev/test/process"
)

func shell(script string) []string { return []string{"sh", "-c", script} }

// The command's environment, streams, exit status and left-over processes are the same as without a gate.
func TestTheCommandIsAsWithoutAGate(t *testing.T) {
	tests := map[string]struct {
		command []string
		stdin   string
		code    int
		want    string
	}{
		"its exit status":             {command: shell("exit 7"), code: 7},
		"the signal that ended it":    {command: shell("kill -KILL $$"), code: 137},
		"what is written to it":       {command: []string{"cat"}, stdin: "hello", want: "hello"},
		"its own name":                {command: shell("echo $0"), want: "sh\n"},
		"no such program":             {command: []string{"/no/such/program"}, code: 127},
		"no such program in PATH":     {command: []string{"no-such-program"}, code: 127},
		"a file that is no program":   {command: []string{"/etc/passwd"}, code: 126},
		"it leads its group":          {command: shell(`test $(ps -o pgid= -p $$) = $$ && echo yes`), want: "yes\n"},
		"its limit of open files":     {command: shell("ulimit -Sn"), want: without(t, "ulimit -Sn")},
		"no descriptor of the gate's": {command: shell(descriptors), want: without(t, descriptors)},
		"nothing of its group stays":  {command: shell("sleep 100 & echo $!"), want: "*"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := newPod(t)
			code, out := p.output(spec{Name: "app", Command: tt.command}, tt.stdin)
			if code != tt.code || tt.want != "*" && out != tt.want {
				t.Errorf("status %d, output %q, want %d, %q\n%s", code, out, tt.code, tt.want, p.all["app"].Log())
			}
			if tt.want == "*" {
				var pid int
				fmt.Sscan(out, &pid)
				if pid == 0 {
					t.Fatalf("no process in %q", out)
				}
				process.AwaitEnd(t, pid) // the process may not have ended yet after the signal
			}
			if seen, err := p.watch.Read("app"); seen.Phase != state.Ended || seen.Code != tt.code || err != nil {
				t.Errorf("its state is %+v, %v", seen, err)
			}
		})
	}
}

const descriptors = "ls /proc/self/fd | wc -l"

// without returns the output of a script that runs without a gate.
func without(t *testing.T, script string) string {
	t.Helper()
	out, err := exec.Command("sh", "-c", script).Output()
	check(t, err)
	return string(out)
}

func TestEverySignalReachesTheCommand(t *testing.T) {
	p := newPod(t)
	for s := syscall.Signal(1); s <= lastSignal; s++ {
		if slices.Contains(kept, s) {
			continue
		}
		t.Run(fmt.Sprint(int(s), unix.SignalName(s)), func(t *testing.T) {
			script := fmt.Sprintf(`trap 'exit 42' %d; echo >&3; while :; do sleep 0.01; done`, s)
			c := p.start(spec{Name: "app", Notify: "fd", Command: []string{"bash", "-c", script}})
			p.healthy("app")
			p.signal(c, s)
			if code := p.ended(c); code != 42 {
				t.Errorf("status %d, want the command's\n%s", code, c.Log())
			}
		})
	}
}

func TestARestartGatesAgain(t *testing.T) {
	p := newPod(t)
	cache := p.start(spec{Name: "cache", Notify: "fd"}, "healthy=0s")
	after := []string{"cache is healthy"}
	app := p.start(spec{Name: "app", After: after})
	p.runs("app")
	p.signal(cache, unix.SIGKILL)
	p.ended(cache)
	p.signal(app, unix.SIGTERM)
	p.ended(app)
	p.start(spec{Name: "app", After: after})
	p.waits("app")
	p.start(spec{Name: "cache", Notify: "fd"}, "healthy=0s")
	p.runs("app")
	if n := p.until("app", state.Seen.Runs).Starts; n != 2 {
		t.Errorf("app has started %d times", n)
	}
}

func TestWhatAGateDoesWhenItHasWaitedLongEnough(t *testing.T) {
	tests := map[string]struct {
		after string
		code  int
	}{
		"it gives up":         {"cache is healthy, within 50ms", GaveUp},
		"it goes on":          {"cache is healthy, within 50ms or continue", 0},
		"it is without a one": {"cache is healthy, optional, within 50ms", GaveUp},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := newPod(t)
			if code, _ := p.output(spec{Name: "app", After: []string{tt.after}, Command: []string{"true"}}, ""); code != tt.code {
				t.Errorf("status %d, want %d", code, tt.code)
			}
		})
	}
}

func TestAnOptionalDependencyThatDies(t *testing.T) {
	p := newPod(t)
	cache := p.start(spec{Name: "cache"})
	p.runs("cache")
	p.start(spec{Name: "app", After: []string{"cache is healthy, optional"}, SecondLook: time.Hour})
	p.waits("app")
	p.signal(cache, unix.SIGKILL)
	p.runs("app")
}

func TestADependencyThatCameBack(t *testing.T) {
	restart := func(t *testing.T, app spec, do ...string) (*pod, *container) {
		p := newPod(t)
		cache := p.start(spec{Name: "cache", Notify: "fd"}, "healthy=0s")
		app.Notify = "fd"
		c := p.start(app, append(do, "healthy=0s")...)
		p.healthy("app")
		p.signal(cache, unix.SIGKILL)
		p.ended(cache)
		p.start(spec{Name: "cache", Notify: "fd"}, "healthy=0s")
		p.healthy("cache")
		return p, c
	}
	t.Run("the command is notified by the chosen signal", func(t *testing.T) {
		p, _ := restart(t, spec{Name: "app", NotifySignal: unix.SIGHUP, After: []string{"cache is healthy, on restart notify"}}, "hup=yes")
		process.Eventually(t, "app is notified", func() bool { return strings.Contains(p.log(), "app notified") }, p.all["app"])
		b, err := os.ReadFile(filepath.Join(p.place("app").Own, BackFile))
		if string(b) != "cache\n" || err != nil {
			t.Errorf("the file holds %q, %v", b, err)
		}
	})
	t.Run("without a chosen signal it is notified by the file", func(t *testing.T) {
		p, _ := restart(t, spec{Name: "app", After: []string{"cache is healthy, on restart notify"}})
		process.Retry(t, func() error {
			_, err := os.Stat(filepath.Join(p.place("app").Own, BackFile))
			return err
		}, p.all["app"])
		p.healthy("app")
	})
	t.Run("the container is restarted", func(t *testing.T) {
		p, c := restart(t, spec{Name: "app", After: []string{"cache is healthy, on restart restart"}})
		if code := p.ended(c); code != FollowsOther {
			t.Errorf("status %d, want %d", code, FollowsOther)
		}
	})
	t.Run("one that would not start again lives on", func(t *testing.T) {
		p, c := restart(t, spec{Name: "app", Restart: startup.Never, After: []string{"cache is healthy, on restart restart"}})
		p.healthy("app")
		p.signal(c, unix.SIGTERM)
		if code := p.ended(c); code != 0 {
			t.Errorf("status %d, want the command's", code)
		}
	})
}

func TestStopOrder(t *testing.T) {
	t.Run("a command is kept for its dependents", func(t *testing.T) {
		p := newPod(t)
		cache := p.start(spec{Name: "cache", Notify: "fd"}, "healthy=0s")
		app := p.start(spec{Name: "app", After: []string{"cache is healthy"}}, "stops=150ms")
		p.runs("app")
		for _, c := range []*container{cache, app} {
			p.signal(c, unix.SIGTERM)
		}
		p.until("cache", func(s state.Seen) bool { return s.Stopping })
		p.until("app", state.Seen.Gone)
		p.ended(cache)
		if !ends(p, "app").Before(ends(p, "cache")) {
			t.Errorf("cache ended before app\n%s", p.timeline())
		}
	})
	t.Run("a second signal is passed on at once", func(t *testing.T) {
		p := newPod(t)
		cache := p.start(spec{Name: "cache", Notify: "fd"}, "healthy=0s")
		p.start(spec{Name: "app", After: []string{"cache is healthy"}, PreStop: true})
		p.runs("app")
		p.signal(cache, unix.SIGTERM)
		p.until("cache", func(s state.Seen) bool { return s.Stopping })
		p.signal(cache, unix.SIGTERM)
		p.ended(cache)
		p.runs("app")
	})
	t.Run("not for longer than the grace period", func(t *testing.T) {
		p := newPod(t)
		cache := p.start(spec{Name: "cache", Notify: "fd", StopGrace: 200 * time.Millisecond}, "healthy=0s")
		p.start(spec{Name: "app", After: []string{"cache is healthy"}, PreStop: true})
		p.runs("app")
		p.signal(cache, unix.SIGTERM)
		p.ended(cache)
		p.runs("app")
	})
	t.Run("not for the part of the grace period that its preStop hook has used", func(t *testing.T) {
		p := newPod(t)
		p.proxy(state.Record{Stopping: true, StopBegan: time.Now().Add(-time.Hour)})
		cache := p.start(spec{Name: "cache", Notify: "fd", StopGrace: time.Hour, PreStop: true}, "healthy=0s")
		p.start(spec{Name: "app", After: []string{"cache is healthy"}}, "stops=1h")
		p.runs("app")
		p.signal(cache, unix.SIGTERM)
		p.ended(cache)
		p.runs("app")
	})
	t.Run("a command is kept while clients call it through a proxy that stops", func(t *testing.T) {
		p := newPod(t)
		proxy := p.proxy(state.Record{Called: true, Stopping: true})
		app := p.start(spec{Name: "app", Notify: "fd", StopGrace: time.Hour}, "healthy=0s")
		p.runs("app")
		p.signal(app, unix.SIGTERM)
		p.until("app", func(s state.Seen) bool { return s.Stopping })
		time.Sleep(150 * time.Millisecond) // a gate that does not wait has passed the signal on by then
		gone := time.Now()
		check(t, proxy.Update(func(r *state.Record) { r.Called = false }))
		p.ended(app)
		if ends(p, "app").Before(gone) {
			t.Errorf("the command got its signal while clients called\n%s", p.timeline())
		}
	})
	t.Run("not if that proxy dies", func(t *testing.T) {
		p := newPod(t)
		proxy := p.proxy(state.Record{Called: true, Stopping: true})
		app := p.start(spec{Name: "app", Notify: "fd", StopGrace: time.Hour}, "healthy=0s")
		p.runs("app")
		p.signal(app, unix.SIGTERM)
		p.until("app", func(s state.Seen) bool { return s.Stopping })
		proxy.Close()
		p.ended(app)
	})
	t.Run("not for longer than half of the grace period", func(t *testing.T) {
		p := newPod(t)
		p.proxy(state.Record{Called: true, Stopping: true})
		app := p.start(spec{Name: "app", Notify: "fd", StopGrace: 200 * time.Millisecond}, "healthy=0s")
		p.runs("app")
		p.signal(app, unix.SIGTERM)
		p.ended(app)
	})
	t.Run("not if the container alone is to be restarted", func(t *testing.T) {
		p := newPod(t)
		p.proxy(state.Record{Called: true})
		cache := p.start(spec{Name: "cache", Notify: "fd", StopGrace: time.Hour}, "healthy=0s")
		p.start(spec{Name: "app", After: []string{"cache is healthy"}})
		p.runs("app")
		p.signal(cache, unix.SIGTERM)
		p.ended(cache)
		p.runs("app")
	})
}

// From the stop signal until the command has ended, the gate releases parked connections again and
// again: another mesh's proxy that still drains undoes a release.
func TestParkingEndsWithTheStop(t *testing.T) {
	p := newPod(t)
	file := filepath.Join(p.dir, "released")
	released := func() int {
		raw, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		return len(raw)
	}
	app := p.start(spec{Name: "app", Notify: "fd", Released: file}, "healthy=0s", "stops=1h")
	p.healthy("app") // so that its handler of SIGTERM is installed
	if n := released(); n != 0 {
		t.Errorf("released %d times while it runs", n)
	}
	p.signal(app, unix.SIGTERM)
	process.Eventually(t, "it releases again and again since the stop began", func() bool { return released() >= 3 }, app)
}

func ends(p *pod, name string) time.Time {
	entries, err := state.Journal(filepath.Join(p.dir, "state"), name)
	check(p.t, err)
	return entries[len(entries)-1].Time
}

func TestHelpersEndWithTheJob(t *testing.T) {
	helper := spec{Name: "helper", HelperOf: []string{"main"}, Restart: startup.OnFailure}
	tests := map[string]struct {
		main  spec
		do    []string
		code  int
		kills bool
		over  bool
	}{
		"the main completed":                      {spec{Restart: startup.OnFailure}, []string{"lives=50ms"}, 0, false, true},
		"the main failed and is to be restarted":  {spec{Restart: startup.OnFailure}, []string{"lives=50ms", "code=3"}, 3, false, false},
		"the main failed for good":                {spec{Restart: startup.Never}, []string{"lives=50ms", "code=3"}, 3, false, true},
		"the main was killed for good":            {spec{Restart: startup.Never}, nil, 137, true, true},
		"the main was killed and is to come back": {spec{Restart: startup.OnFailure}, nil, 137, true, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := newPod(t)
			h := p.start(helper)
			p.runs("helper")
			tt.main.Name = "main"
			m := p.start(tt.main, tt.do...)
			if tt.kills {
				p.runs("main")
				p.signal(m, unix.SIGKILL)
			}
			if code := p.ended(m); code != tt.code {
				t.Errorf("the main's status is %d, want %d", code, tt.code)
			}
			if !tt.over {
				p.start(spec{Name: "main", Restart: startup.OnFailure}, "lives=10ms") // the kubelet's restart
			}
			if code := p.ended(h); code != 0 {
				t.Errorf("the helper's status is %d\n%s", code, h.Log())
			}
			if again := p.ended(p.start(helper)); again != 0 {
				t.Errorf("started once more the helper's status is %d", again)
			}
			if n := p.until("helper", func(s state.Seen) bool { return s.Phase == state.Ended }).Starts; n != 1 {
				t.Errorf("its command ran %d times, want once", n)
			}
		})
	}
}

// Gates work with the mounts and namespaces that the kubelet makes: the volume is read-only, the
// container's own directory is a bind mount, and each container has its own user, process
// namespace and mount namespace.
func TestInContainersAsTheKubeletMakesThem(t *testing.T) {
	ns.RequireRoot(t)
	p := newPod(t)
	container := func(name, uid string, s spec) *container {
		p.add(name)
		s.Name = name
		s.Command = append([]string{}, s.Command...)
		script := `set -e
mount --make-rprivate /
mkdir -p "$1/mnt$2/state" "$1/mnt$2/own"
mount --bind "$1/state" "$1/mnt$2/state"
mount -o remount,bind,ro "$1/mnt$2/state"
mount --bind "$1/state/$2" "$1/mnt$2/own"
mkdir -p /outrider
mount -t tmpfs -o mode=755 none /outrider
mkdir /outrider/state /outrider/own
mount --bind "$1/mnt$2/state" /outrider/state
mount -o remount,bind,ro /outrider/state
mount --bind "$1/mnt$2/own" /outrider/own
mount -o remount,ro /outrider
exec setpriv --pdeathsig keep --reuid "$3" --regid "$3" --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all "$4"`
		cmd := exec.Command("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script, "sh", p.dir, name, uid, p.exe)
		cmd.Env = append(p.environ(s), "PATH=/usr/bin:/bin:/usr/sbin:/sbin", "HOME=/nonexistent")
		return p.launch(name, cmd)
	}
	if _, err := os.Stat("/outrider"); os.IsNotExist(err) {
		check(t, os.Mkdir("/outrider", 0o755)) // mount point in the containers' namespaces
		t.Cleanup(func() { os.Remove("/outrider") })
	}
	cache := container("cache", "61001", spec{Notify: "socket", Command: shell(`
touch /outrider/own/mine && ! touch /outrider/state/app/theirs 2>/dev/null || exit 9
test $$ != 1 || exit 8
python3 -c 'import os, socket; socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"STATUS=up\nREADY=1", os.environ["NOTIFY_SOCKET"])' || exit 7
exec sleep 100`)})
	app := container("app", "61002", spec{After: []string{"cache is healthy"}, SecondLook: time.Hour, Command: shell(`
(sleep 0.05 & ) ; sleep 0.2
test -z "$(ps -eo stat= | grep Z)" || exit 9
kill -HUP 1; sleep 0.1 # PID 1 is deaf to what it does not handle
exit 5`)})
	code := p.ended(app)
	if code != 5 {
		t.Errorf("app's status is %d, want its command's\n%s\ncache:\n%s", code, app.Log(), cache.Log())
	}
}

func TestTheTerminalIsTheCommands(t *testing.T) {
	p := newPod(t)
	p.add("app")
	ptmx, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	check(t, err)
	defer ptmx.Close()
	check(t, unix.IoctlSetPointerInt(int(ptmx.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(ptmx.Fd()), unix.TIOCGPTN)
	check(t, err)
	tty, err := os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|unix.O_NOCTTY, 0)
	check(t, err)
	s := spec{Name: "app", Dir: p.dir, Command: shell(`trap 'echo interrupted; exit 5' INT
test -t 0 && test $(ps -o tpgid= -p $$) = $$ && echo foreground; read line; echo "got $line"; while :; do sleep 0.01; done`)}
	cmd := exec.Command(p.exe)
	cmd.Env = p.environ(s)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	c := p.launch("app", cmd)
	tty.Close()
	lines := bufio.NewReader(ptmx)
	expect := func(want string) {
		t.Helper()
		for {
			line, err := lines.ReadString('\n')
			if strings.TrimSpace(line) == want {
				return
			}
			if err != nil {
				t.Fatalf("no %q: %v", want, err)
			}
		}
	}
	expect("foreground")
	_, err = io.WriteString(ptmx, "hello\n")
	check(t, err)
	expect("got hello")
	_, err = ptmx.Write([]byte{3}) // Ctrl-C
	check(t, err)
	if code := p.ended(c); code != 5 {
		t.Errorf("status %d, want the command's", code)
	}
}

// A state that cannot be published, because the volume is full, is published later: the
// startup probe and the dependents rely on it.
func TestAStateIsPublishedLater(t *testing.T) {
	p := newPod(t)
	app := p.start(spec{Name: "app", After: []string{"cache is started"}}, "stops=0s")
	p.waits("app")
	own := p.place("app").Own
	check(t, os.Rename(own, own+"-away"))
	p.publish("cache")
	process.Eventually(t, "the command begins", func() bool { return strings.Contains(p.log(), "app pid 0") }, app)
	if seen, err := p.watch.Read("app"); seen.Runs() {
		t.Errorf("its state is %+v, %v", seen, err)
	}
	check(t, os.Rename(own+"-away", own))
	p.runs("app")
	p.signal(app, unix.SIGTERM)
	p.ended(app)
}
