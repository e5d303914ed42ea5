package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// Reboot is a request to a running cluster, like each name of [Restarts]. See [Control].
const Reboot = "reboot"

// Restarts lists the programs that can be killed and started again.
var Restarts = []string{"containerd", "kubelet", "kube-apiserver"}

// controlSocket is reachable only from inside.
const controlSocket = ownDir + "/control.sock"

// requestLimit is the time limit of a request, many times the usual duration on two busy cores.
const requestLimit = 3 * time.Minute

func listen() (net.Listener, error) { return net.Listen("unix", controlSocket) }

// serve answers requests, one at a time. It returns when the listener fails.
func (p *programs) serve(l net.Listener) error {
	requests := map[string]func(context.Context) error{Reboot: p.reboot}
	for _, name := range Restarts {
		requests[name] = func(ctx context.Context) error { return p.restart(ctx, name) }
	}
	return http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request, ok := requests[strings.TrimPrefix(r.URL.Path, "/")]
		if !ok || r.Method != http.MethodPost {
			http.NotFound(w, r)
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		// A client that disconnects must not leave the node half restarted.
		ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(r.Context()), requestLimit, fmt.Errorf("not done after %v", requestLimit))
		defer cancel()
		ctx, fail := context.WithCancelCause(ctx)
		defer fail(nil)
		p.ended = fail
		if err := request(ctx); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}))
}

// Control sends a request to the cluster in which this process runs, and returns when the request is completed.
func Control(request string) error {
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", controlSocket)
	}}}
	resp, err := client.Post("http://node/"+request, "", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(strings.TrimSpace(string(text)))
	}
	return err
}
