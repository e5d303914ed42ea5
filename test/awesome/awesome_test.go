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
	"outrider.dev/test/process"
)

func TestMain(m *testing.M) {
	flag.Parse()
	flag.Set("test.parallel", "8") // the tests mostly wait
	status := m.Run()
	os.RemoveAll(installed.dir)
	os.Exit(status)
}

// installed is the folder with the applications, which are built once. TestMain removes it.
var installed struct {
	once    sync.Once
	dir     string
	missing map[string]error
	err     error
}

// each runs a test in parallel for each language, as a subtest. It skips the languages whose tools are missing on
// this machine.
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
				t.Skipf("needs %s, which make test-deps installs: %v", language, err)
			}
			test(t, func(form string) []string { return Command(i.dir, language, form) })
		})
	}
}

// An app is a process of the application. It shares a network namespace with its configuration server.
type app struct {
	*process.Process
	t    *testing.T
	http *http.Client
}

func start(t *testing.T, in *ns.Namespace, command []string, env ...string) *app {
	t.Helper()
	dial := func(ctx context.Context, network, address string) (c net.Conn, err error) {
		in.Do(func() { c, err = new(net.Dialer).DialContext(ctx, network, address) })
		return c, err
	}
	a := &app{t: t, http: &http.Client{Timeout: process.Patience, Transport: &http.Transport{DialContext: dial}}}
	t.Cleanup(a.http.CloseIdleConnections)
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append([]string{"REFRESH=1", "JDK_JAVA_OPTIONS=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}, env...)
	a.Process = process.Start(t, cmd, process.Options{In: in.Do})
	return a
}

// get reads a page of the application.
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

// A setting is the content of the application's /settings page.
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

// until waits until the application's setting equals the second argument. Until then, if the application serves at
// all, its level must be the first argument. Afterwards /healthz must succeed.
func (a *app) until(before string, want setting) {
	a.t.Helper()
	served := false
	process.EventuallyEqual(a.t, "the settings", want.String(), func() string {
		page, err := a.get("/settings")
		if err != nil {
			select {
			case <-a.Done():
				return "it has ended"
			default:
			}
			if !strings.Contains(err.Error(), "connection refused") || strings.Contains(a.Log(), "awesome-app is ready") && served {
				a.t.Fatalf("/settings: %v\n%s", err, a.Log())
			}
			return "it has not served" // it does not listen yet
		}
		served = true
		got, err := parse(page)
		if err != nil {
			a.t.Fatal(err)
		}
		if got.level != before && got.level != want.level {
			a.t.Fatalf("%s, between the level %s and %s:\n%s", got, before, want, a.Log())
		}
		time.Sleep(20 * time.Millisecond) // time between two looks at the application
		return got.String()
	}, a)
	if health, err := a.get("/healthz"); health != "ok\n" {
		a.t.Errorf("/healthz: %q, %v", health, err)
	}
}

// awaits waits until the application's log contains these words.
func (a *app) awaits(words string) {
	a.t.Helper()
	process.Eventually(a.t, words+" in its log", func() bool { return strings.Contains(a.Log(), words) }, a)
}

// The robust form starts with a faulty configuration server, uses the settings once the server returns them,
// and keeps them during every other fault, until the server returns new settings.
func TestRobust(t *testing.T) {
	each(t, func(t *testing.T, command func(string) []string) {
		for first, more := range map[string][]string{ // any order: the cases run in parallel
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
				if strings.Contains(a.Log(), "/settings") {
					t.Errorf("the log has requests, which are of the level DEBUG, and the level is INFO:\n%s", a.Log())
				}
				c.be(good("DEBUG"))
				a.until("INFO", setting{"DEBUG", "provider", false})
				a.get("/applied")
				a.awaits("/applied")
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

// A process that starts while the configuration server is unreachable uses the settings of the previous process.
func TestRestart(t *testing.T) {
	each(t, func(t *testing.T, command func(string) []string) {
		in := ns.New(t)
		c := newCentre(t, in)
		c.be(good("DEBUG"))
		file := filepath.Join(t.TempDir(), "last-good")
		env := []string{"CONFIG_URL=" + centreURL, "LAST_GOOD=" + file}
		a := start(t, in, command(Robust), env...)
		a.until("INFO", setting{"DEBUG", "provider", false})
		process.Eventually(t, file, func() bool { _, err := os.Stat(file); return err == nil }, a)
		a.Kill()
		c.be(nil)
		a = start(t, in, command(Robust), env...)
		a.until("DEBUG", setting{"DEBUG", "last good", true})
		a.Kill()

		// A file with truncated content is ignored.
		if err := os.WriteFile(file, []byte("level=LO"), 0o600); err != nil {
			t.Fatal(err)
		}
		a = start(t, in, command(Robust), env...)
		a.until("INFO", setting{"INFO", "embedded", true})
		a.awaits(file)
		a.Kill()

		// If the file of settings cannot be written, even by root, the application still uses the server's settings.
		file = "/proc/awesome-app-last-good"
		c.be(good("DEBUG"))
		a = start(t, in, command(Robust), "CONFIG_URL="+centreURL, "LAST_GOOD="+file)
		a.until("INFO", setting{"DEBUG", "provider", false})
		a.awaits(filepath.Base(file)) // part of the name of the temporary file that should replace it
	})
}

// Without the server's address the application fetches nothing. If an environment variable is invalid, it exits at
// once.
func TestVariables(t *testing.T) {
	each(t, func(t *testing.T, command func(string) []string) {
		in := ns.New(t)
		start(t, in, command(Robust)).until("INFO", setting{"INFO", "embedded", false})
		for _, wrong := range []string{"CONFIG_URL=ftp://centre", "REFRESH=0"} {
			name, _, _ := strings.Cut(wrong, "=")
			a := start(t, in, command(Robust), "CONFIG_URL="+centreURL, wrong)
			if status := a.Exit(); status != 2 || !strings.Contains(a.Log(), name) {
				t.Errorf("%s: status %d, want 2 and a line with the variable:\n%s", wrong, status, a.Log())
			}
		}
	})
}

// The fragile form runs with a working configuration server, and exits with a faulty one.
func TestFragile(t *testing.T) {
	each(t, func(t *testing.T, command func(string) []string) {
		in := ns.New(t)
		c := newCentre(t, in)
		c.be(good("DEBUG"))
		a := start(t, in, command(Fragile), "CONFIG_URL="+centreURL)
		a.until("DEBUG", setting{"DEBUG", "provider", false})
		a.Kill()
		for _, fault := range []string{"nothing listens", "status 500", "a level that is none"} {
			c.be(faults[fault])
			a := start(t, in, command(Fragile), "CONFIG_URL="+centreURL)
			if status := a.Exit(); status != 1 || strings.Contains(a.Log(), "awesome-app is ready") {
				t.Errorf("%s: status %d, want 1 before it is ready:\n%s", fault, status, a.Log())
			}
		}
	})
}
