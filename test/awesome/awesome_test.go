package awesome

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"outrider.dev/test/ns"
)

// patience is when what has not happened on a busy machine will not.
const patience = 2 * time.Minute

func TestMain(m *testing.M) {
	flag.Parse()
	flag.Set("test.parallel", "8") // they wait most of their time
	status := m.Run()
	os.RemoveAll(installed.dir)
	os.Exit(status)
}

// installed is the folder with the applications, which TestMain removes.
var installed struct {
	once    sync.Once
	dir     string
	missing map[string]error
	err     error
}

// each runs a test in parallel for each language; a runtime that the machine has not is named.
func each(t *testing.T, test func(t *testing.T, command func(form string) []string)) {
	t.Parallel()
	ns.RequireRoot(t)
	i := &installed
	i.once.Do(func() {
		if i.dir, i.err = os.MkdirTemp("", "awesome-app.*"); i.err == nil {
			i.missing, i.err = Install("../..", i.dir)
		}
	})
	if i.err != nil {
		t.Fatal(i.err)
	}
	for _, language := range Languages {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			if err := i.missing[language]; err != nil {
				t.Skipf("no %s here: %v", language, err)
			}
			test(t, func(form string) []string { return Command(i.dir, language, form) })
		})
	}
}

// An app is a process of the application, in a namespace of its own with its centre.
type app struct {
	t    *testing.T
	in   *ns.Namespace
	log  string
	exit chan int
	stop context.CancelFunc
	http *http.Client
}

func start(t *testing.T, in *ns.Namespace, command []string, env ...string) *app {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	a := &app{t: t, in: in, log: filepath.Join(t.TempDir(), "log"), exit: make(chan int, 1), stop: stop}
	dial := func(ctx context.Context, network, address string) (c net.Conn, err error) {
		in.Do(func() { c, err = new(net.Dialer).DialContext(ctx, network, address) })
		return c, err
	}
	a.http = &http.Client{Timeout: patience, Transport: &http.Transport{DialContext: dial}}
	t.Cleanup(a.http.CloseIdleConnections)
	out, err := os.Create(a.log)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = append([]string{"REFRESH=1", "JDK_JAVA_OPTIONS=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}, env...), out, out
	in.Do(func() { err = cmd.Start() })
	out.Close()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		cmd.Wait()
		a.exit <- cmd.ProcessState.ExitCode()
		close(a.exit)
	}()
	t.Cleanup(a.kill)
	return a
}

// kill ends it and waits for that.
func (a *app) kill() {
	a.stop()
	for range a.exit {
	}
}

func (a *app) wrote() string {
	text, err := os.ReadFile(a.log)
	if err != nil {
		a.t.Error(err)
	}
	return string(text)
}

// get reads a page of it.
func (a *app) get(path string) (string, error) {
	response, err := a.http.Get("http://127.0.0.1:8080" + path)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	return string(body), err
}

// A setting is what /settings shows.
type setting struct {
	level, source string
	failing       bool
}

func (s setting) String() string {
	return fmt.Sprintf("level=%s source=%q failing=%v", s.level, s.source, s.failing)
}

func parse(page string) (s setting, err error) {
	for line := range strings.Lines(page) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch key {
		case "level":
			s.level = value
		case "source":
			s.source = value
		case "error":
			s.failing = value != ""
		default:
			return s, fmt.Errorf("/settings has the line %q", line)
		}
	}
	return s, nil
}

// until waits for a setting. On the way to it there is no other level than the one before and the
// one that is awaited; Then /healthz is well.
func (a *app) until(before string, want setting) {
	a.t.Helper()
	last := "it has not served"
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		select {
		case status := <-a.exit:
			a.t.Fatalf("it has ended with the status %d, and %s was expected:\n%s", status, want, a.wrote())
		default:
		}
		page, err := a.get("/settings")
		if err != nil {
			if !strings.Contains(err.Error(), "connection refused") || strings.Contains(a.wrote(), "awesome-app is ready") && last != "it has not served" {
				a.t.Fatalf("/settings: %v\n%s", err, a.wrote())
			}
			continue // its start
		}
		got, err := parse(page)
		if err != nil {
			a.t.Fatal(err)
		}
		if got == want {
			if health, err := a.get("/healthz"); health != "ok\n" {
				a.t.Errorf("/healthz: %q, %v", health, err)
			}
			return
		}
		if got.level != before && got.level != want.level {
			a.t.Fatalf("%s, between the level %s and %s:\n%s", got, before, want, a.wrote())
		}
		last = got.String()
	}
	a.t.Fatalf("%s, and %s was expected:\n%s", last, want, a.wrote())
}

// awaits waits for words in its log.
func (a *app) awaits(words string) {
	a.t.Helper()
	for end := time.Now().Add(patience); !strings.Contains(a.wrote(), words); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			a.t.Fatalf("its log has no %q:\n%s", words, a.wrote())
		}
	}
}

// end waits for its end, and returns the status.
func (a *app) end() int {
	a.t.Helper()
	select {
	case status := <-a.exit:
		return status
	case <-time.After(patience):
		a.t.Fatalf("it still runs:\n%s", a.wrote())
		return 0
	}
}

// The robust form starts beside a centre with a fault, takes the settings when they come, and keeps
// them through each other fault, until it takes the next ones.
func TestRobust(t *testing.T) {
	each(t, func(t *testing.T, command func(string) []string) {
		for first, more := range map[string][]string{ // any order: they run in parallel
			"nothing listens":              {"nothing listens", "silence", "a page instead of a document"},
			"silence":                      {"status 500", "a document that trickles in"},
			"a page instead of a document": {"a level that is none", "a document that is cut off", "a document without an end"},
		} {
			t.Run(first, func(t *testing.T) {
				t.Parallel()
				in := ns.New(t)
				c := newCentre(t, in)
				c.be(faults[first])
				a := start(t, in, command(Robust), "CONFIG_URL="+centreURL)
				a.until("INFO", setting{"INFO", "embedded", true})
				if strings.Contains(a.wrote(), "/settings") {
					t.Errorf("the log has requests, which are of the level DEBUG, and the level is INFO:\n%s", a.wrote())
				}
				c.be(good("DEBUG"))
				a.until("INFO", setting{"DEBUG", "provider", false})
				a.get("/applied")
				if !strings.Contains(a.wrote(), "/applied") {
					t.Errorf("the level DEBUG is in use, and the log has not the request:\n%s", a.wrote())
				}
				level, next := "DEBUG", "WARN"
				for _, fault := range more {
					c.be(faults[fault])
					a.until(level, setting{level, "provider", true})
					c.be(good(next))
					a.until(level, setting{next, "provider", false})
					level, next = next, level
				}
			})
		}
	})
}

// A process that is started anew while the centre is away has the settings of the one before.
func TestRestart(t *testing.T) {
	each(t, func(t *testing.T, command func(string) []string) {
		in := ns.New(t)
		c := newCentre(t, in)
		c.be(good("DEBUG"))
		file := filepath.Join(t.TempDir(), "last-good")
		env := []string{"CONFIG_URL=" + centreURL, "LAST_GOOD=" + file}
		a := start(t, in, command(Robust), env...)
		a.until("INFO", setting{"DEBUG", "provider", false})
		for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
			if _, err := os.Stat(file); err == nil {
				break
			} else if time.Now().After(end) {
				t.Fatal(err)
			}
		}
		a.kill()
		c.be(nil)
		a = start(t, in, command(Robust), env...)
		a.until("DEBUG", setting{"DEBUG", "last good", true})
		a.kill()

		// A file that is not what was written is passed over.
		if err := os.WriteFile(file, []byte("level=LO"), 0o600); err != nil {
			t.Fatal(err)
		}
		a = start(t, in, command(Robust), env...)
		a.until("INFO", setting{"INFO", "embedded", true})
		a.awaits(file)
		a.kill()

		// One that cannot be written, by root neither, is no reason to leave the centre's settings.
		file = "/proc/awesome-app-last-good"
		c.be(good("DEBUG"))
		a = start(t, in, command(Robust), "CONFIG_URL="+centreURL, "LAST_GOOD="+file)
		a.until("INFO", setting{"DEBUG", "provider", false})
		a.awaits(filepath.Base(file)) // part of the name of what is to replace it
	})
}

// Without an address nothing is fetched; a variable that cannot work ends the process at once.
func TestVariables(t *testing.T) {
	each(t, func(t *testing.T, command func(string) []string) {
		in := ns.New(t)
		start(t, in, command(Robust)).until("INFO", setting{"INFO", "embedded", false})
		for _, wrong := range []string{"CONFIG_URL=ftp://centre", "REFRESH=0"} {
			name, _, _ := strings.Cut(wrong, "=")
			a := start(t, in, command(Robust), "CONFIG_URL="+centreURL, wrong)
			if status := a.end(); status != 2 || !strings.Contains(a.wrote(), name) {
				t.Errorf("%s: status %d, want 2 and a line with the variable:\n%s", wrong, status, a.wrote())
			}
		}
	})
}

// The fragile form works beside a centre that works, and ends beside one that fails.
func TestFragile(t *testing.T) {
	each(t, func(t *testing.T, command func(string) []string) {
		in := ns.New(t)
		c := newCentre(t, in)
		c.be(good("DEBUG"))
		a := start(t, in, command(Fragile), "CONFIG_URL="+centreURL)
		a.until("DEBUG", setting{"DEBUG", "provider", false})
		a.kill()
		for _, fault := range []string{"nothing listens", "status 500", "a level that is none"} {
			c.be(faults[fault])
			a := start(t, in, command(Fragile), "CONFIG_URL="+centreURL)
			if status := a.end(); status != 1 || strings.Contains(a.wrote(), "awesome-app is ready") {
				t.Errorf("%s: status %d, want 1 before it is ready:\n%s", fault, status, a.wrote())
			}
		}
	})
}
