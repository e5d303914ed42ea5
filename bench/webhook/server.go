package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/controlplane/ca"
	"outrider.dev/internal/controlplane/webhook"
	"outrider.dev/internal/pod/inject"
)

// hello is the first line of the server's output.
type hello struct {
	Address string `json:"address"`
	Bundle  []byte `json:"bundle"`
}

// serve answers until its input ends.
func serve(stdin io.Reader, stdout io.Writer) error {
	dir, err := os.MkdirTemp("", "bench-webhook-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	authority, err := ca.NewAuthority(ca.AuthorityOptions{Dir: dir})
	if err != nil {
		return err
	}
	id := ca.Identity{TrustDomain: "cluster.local", Namespace: "outrider-system", ServiceAccount: "outriderd"}
	serving, err := authority.NewServing(id, []string{"localhost"}, 0)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	w := webhook.New(webhook.Options{Namespaces: func(name string) (inject.Namespace, bool) {
		return inject.Namespace{Name: name, Labels: map[string]string{"istio-injection": "enabled"}}, true
	}})
	server := w.Server(serving.Certificate)
	mux := http.NewServeMux()
	mux.Handle(webhook.Path, w)
	mux.HandleFunc("/without-work", withoutWork)
	mux.HandleFunc("/profile", pprof.Profile)
	server.Handler = mux
	go server.ServeTLS(l, "", "")
	defer server.Close()
	if err := json.NewEncoder(stdout).Encode(hello{l.Addr().String(), authority.RootsPEM()}); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, stdin)
	return err
}

// withoutWork reads the body, as any webhook has to, and allows everything. With ?long its
// answer is as long as one with a patch.
func withoutWork(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	answer := `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"u","allowed":true}}`
	if r.URL.RawQuery == "long" {
		answer += padding
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
	io.WriteString(w, answer)
}

var padding = strings.Repeat(" ", 8000)

// A child is the server in its own process.
type child struct {
	hello
	process *exec.Cmd
	stdin   io.Closer
}

func start() (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{process: exec.Command(self, "-serve")}
	c.process.Env = append(os.Environ(), "GOMAXPROCS=1")
	c.process.Stderr = os.Stderr
	c.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if c.stdin, err = c.process.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.process.Start(); err != nil {
		return nil, err
	}
	if err := json.NewDecoder(out).Decode(&c.hello); err != nil {
		c.end()
		return nil, fmt.Errorf("the server did not start: %w", err)
	}
	return c, nil
}

func (c *child) end() {
	c.stdin.Close()
	c.process.Wait()
}

// spent is its processor time.
func (c *child) spent() time.Duration {
	var t unix.Timespec
	clock := int32(^c.process.Process.Pid)<<3 | 2 // MAKE_PROCESS_CPUCLOCK(pid, CPUCLOCK_SCHED)
	if err := unix.ClockGettime(clock, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
