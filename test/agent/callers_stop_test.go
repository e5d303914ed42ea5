package agent

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"outrider.dev/test/agent/harness"
	"outrider.dev/test/process"
)

// An application that closes all its connections at SIGTERM gets it from its gate only when the requests in flight are
// answered and their clients have left, but after terminationDrainDuration at the latest. One that nothing has called
// gets it at once.
func TestSigtermWaitsForCallers(t *testing.T) {
	t.Parallel()
	w := harness.New(t)
	w.Service("server", vip, "server", append([]string{"http-late 83", "late 84"}, ports...)...)
	w.Serve()
	c := w.Pod("client")
	s := w.Pod("server")
	app(s)
	w.Known(1, 2)
	client := c.Agent()
	client.Ready()
	// start starts the server's agent with a drain time, and its application behind a gate. The application's server
	// ends with the command of the gate, in the middle of its answers.
	late := func(port string) error {
		c := harness.NewClient(c.Namespace, harness.AppUser)
		defer c.Close()
		return c.Do("POST", "http://"+vip+":"+port+"/late", "").Want("late")
	}
	arrived, answer := make(chan struct{}), make(chan struct{}, 2)
	start := func(t *testing.T, drain time.Duration) (a *harness.Agent, stop func(), over chan struct{}, exit func()) {
		web := http.NewServeMux()
		web.HandleFunc("/late", func(w http.ResponseWriter, _ *http.Request) {
			arrived <- struct{}{}
			<-answer
			io.WriteString(w, "late")
		})
		rude := &http.Server{Handler: web}
		for _, port := range []string{":83", ":84"} {
			go rude.Serve(harness.Listen(w, s.Namespace, harness.AppUser, port))
		}
		s.Env = []string{`PROXY_CONFIG={"terminationDrainDuration": "` + drain.String() + `"}`, "ISTIO_META_APP_CONTAINERS=app"}
		a = s.Agent()
		a.Ready()
		fifo := filepath.Join(s.Dir, "terminated")
		os.Remove(fifo)
		if err := syscall.Mkfifo(fifo, 0o666); err != nil {
			t.Fatal(err)
		}
		os.Chmod(fifo, 0o666)
		gate := s.Gate("--after", "outrider-proxy is healthy", "--", "sh", "-c", `trap 'echo > `+fifo+`; exit 0' TERM; echo runs; sleep infinity & wait`)
		process.Eventually(t, "the application runs behind its gate", func() bool { return strings.Contains(gate.Log(), "runs") }, gate, a)
		over = make(chan struct{})
		go func() {
			os.ReadFile(fifo) // returns when the command has its signal
			rude.Close()
			close(over)
		}()
		stop = func() {
			gate.Signal(syscall.SIGTERM)
			a.Signal(syscall.SIGTERM)
		}
		exit = func() {
			t.Helper()
			if status := a.Exit(); status != 0 || why(a) != "all applications have ended" {
				t.Errorf("status %d, %q", status, why(a))
			}
			t.Log(left(a))
		}
		return a, stop, over, exit
	}

	w.Run("never called", func(t *testing.T) {
		_, stop, over, exit := start(t, time.Hour)
		stop()
		<-over
		exit()
	})

	w.Run("a request is answered", func(t *testing.T) {
		a, stop, over, exit := start(t, time.Hour)
		call := func() <-chan error {
			got := make(chan error, 1)
			go func() { got <- late("83") }()
			select {
			case <-arrived:
			case <-over:
				t.Fatal("the application has ended while clients called")
			}
			return got
		}
		before, began := call(), time.Now()
		stop()
		a.Logs(draining)
		after := call() // new clients may come until they have learned that the pod stops
		answer <- struct{}{}
		answer <- struct{}{}
		if err := errors.Join(<-before, <-after); err != nil {
			t.Error(err)
		}
		<-over
		if took := time.Since(began); took < time.Second {
			t.Errorf("clients had %s to learn that the pod stops", took)
		}
		exit()
	})

	// On a port that declares no protocol these are bytes for the server's Envoy.
	for port, outcome := range map[string]string{"83": "requests in flight at the end of the drain time", "84": "clients have kept connections without HTTP requests"} { // any order: one after the other
		w.Run("a request is not answered in time, port "+port, func(t *testing.T) {
			a, stop, over, exit := start(t, time.Second)
			go late(port)
			<-arrived
			stop()
			<-over
			answer <- struct{}{}
			exit()
			if got := left(a); got != outcome {
				t.Errorf("the wait for clients ended because %s, want: %s", got, outcome)
			}
		})
	}
}

// An application that has closed its listener has its proxy refuse new connections, long before the drain time is
// over: a client takes them elsewhere, and would get a 503 from the proxy. A native sidecar knows from its preStop hook
// that the pod stops, long before its SIGTERM.
func TestStopRefusesWhereNothingListens(t *testing.T) {
	t.Parallel()
	w := harness.New(t)
	w.Serve()
	stops := map[string]func(*harness.Agent){
		"regular": func(a *harness.Agent) {
			a.Signal(syscall.SIGTERM)
			a.Logs(draining)
		},
		"native": func(a *harness.Agent) {
			if got := a.Get(15020, "/app-lifecycle/outrider-proxy/prestopz"); got.Status != http.StatusOK {
				t.Errorf("the preStop hook: %v", got)
			}
		},
	}
	outside := harness.Dialer(w.Machine("outside").Namespace, 0)
	for name, stop := range stops { // any order: pods of their own
		s := w.Pod(name)
		s.Env = []string{`PROXY_CONFIG={"drainDuration": "1h", "terminationDrainDuration": "1h"}`, fmt.Sprintf("OUTRIDER_ORDERED_STOP=%t", name == "native")}
		s.Args = []string{"--grace", "1h"}
		a := s.Agent()
		a.Ready()
		l := harness.Listen(w, s.Namespace, int(s.User), ":83") // in TPROXY mode applications may have the proxy's user
		call := func() error {
			c, err := outside(t.Context(), "tcp", s.Address.String()+":83")
			if err == nil {
				c.Close()
			}
			return err
		}
		stop(a)
		for range 500 { // for longer than the agent takes to look
			if err := call(); err != nil {
				t.Fatalf("%s, while the application listens: %v", name, err)
			}
		}
		l.Close()
		process.Eventually(t, name+": a connection is refused", func() bool { return errors.Is(call(), syscall.ECONNREFUSED) }, a)
	}
}

// left returns the result of the wait for clients from the agent's log.
func left(a *harness.Agent) string {
	_, rest, _ := strings.Cut(a.Log(), `"msg":"clients have left","outcome":"`)
	text, _, _ := strings.Cut(rest, `"`)
	return text
}
