package ready

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"outrider.dev/ready"
	"outrider.dev/test/ns"
	"outrider.dev/test/process"
)

// A wait holds the options for a process that waits with the library.
type wait struct {
	On       []string
	Proxy    bool
	At       []string // addresses at which Proxy looks for the proxy
	Full     bool
	For      time.Duration
	Continue bool
	DNS      string // address of a name server, instead of the machine's
	Dirs     string // directories of state files
}

// variable is the environment variable with the options of a waiting process, a wait as JSON.
const variable = "OUTRIDER_TEST_WAIT"

func TestMain(m *testing.M) {
	text := os.Getenv(variable)
	if text == "" {
		os.Exit(m.Run())
	}
	var w wait
	if err := json.Unmarshal([]byte(text), &w); err != nil {
		fmt.Println("error:", err)
		os.Exit(2)
	}
	if err := w.run(os.Stdout); err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	fmt.Println("ok")
}

func (w wait) run(out io.Writer) error {
	if w.DNS != "" {
		net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, w.DNS)
		}}
	}
	options := []ready.Option{ready.Log(slog.New(slog.NewTextHandler(out, nil)))}
	if len(w.On) > 0 {
		options = append(options, ready.On(w.On...))
	}
	if w.Proxy {
		options = append(options, ready.Proxy(w.At...))
	}
	if w.Full {
		options = append(options, ready.Full)
	}
	if w.For > 0 {
		options = append(options, ready.For(w.For))
	}
	if w.Continue {
		options = append(options, ready.Continue)
	}
	if w.Dirs != "" {
		options = append(options, ready.StateDirs(w.Dirs+"/own", w.Dirs+"/state"))
	}
	return ready.Wait(context.Background(), options...)
}

// A waiting is a process that waits with the library.
type waiting struct {
	*process.Process
	t    *testing.T
	read int // number of log bytes that until has read
}

// begin starts a process that runs a wait, in a network namespace or, if that is nil, in the namespace of the test.
// The process has the environment of the test, without the variables that indicate a mesh, and in addition the
// variables env.
func begin(t *testing.T, in *ns.Namespace, w wait, env ...string) *waiting {
	t.Helper()
	text, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append([]string{variable + "=" + string(text), "PATH=" + os.Getenv("PATH")}, slices.DeleteFunc(env, func(e string) bool { return e == "" })...)
	o := process.Options{}
	if in != nil {
		o.In = in.Do
	}
	return &waiting{Process: process.Start(t, cmd, o), t: t}
}

// until waits for the next log line that contains all words.
func (p *waiting) until(words ...string) {
	p.t.Helper()
	process.Eventually(p.t, fmt.Sprintf("a line with %q", words), func() bool {
		log := p.Log()
		for line := range strings.Lines(log[p.read:]) {
			if !strings.HasSuffix(line, "\n") {
				return false // the line is not complete yet
			}
			p.read += len(line)
			if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
				return true
			}
		}
		return false
	}, p)
}
