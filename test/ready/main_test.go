package ready

import (
	"bufio"
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
)

// A wait is what the process does.
type wait struct {
	On       []string
	Proxy    bool
	At       []string // of Proxy
	Full     bool
	For      time.Duration
	Continue bool
	DNS      string // address of a name server, instead of the machine's
	Dirs     string // of states
}

// variable has the wait of a process that is one.
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

// A process is a wait that runs.
type process struct {
	t     *testing.T
	lines *bufio.Scanner
	all   []string
}

// begin starts a wait in a namespace, or where the test is for nil. Its environment is that of the test without what
// may say that there is a mesh, and what is given.
func begin(t *testing.T, in *ns.Namespace, w wait, env ...string) *process {
	t.Helper()
	text, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append([]string{variable + "=" + string(text), "PATH=" + os.Getenv("PATH")}, slices.DeleteFunc(env, func(e string) bool { return e == "" })...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	start := func() { err = cmd.Start() }
	if in == nil {
		start()
	} else {
		in.Do(start)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // its last line has said how it ended, or until has failed the test
	})
	return &process{t: t, lines: bufio.NewScanner(out)}
}

// until reads to a line that has the words.
func (p *process) until(words ...string) {
	p.t.Helper()
	for p.lines.Scan() {
		line := p.lines.Text()
		p.all = append(p.all, line)
		has := true
		for _, w := range words {
			has = has && strings.Contains(line, w)
		}
		if has {
			return
		}
		if line == "ok" || strings.HasPrefix(line, "error:") {
			break
		}
	}
	p.t.Fatalf("no line has %q:\n%s", words, strings.Join(p.all, "\n"))
}
