package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A meshKind is how another mesh's proxy is reached and how it ends.
type meshKind struct {
	outbound, inbound int
	status            []string // addresses at which its agent answers
	terminate         func(wrapped, optionSet)
}

// meshes are the meshes whose proxies the role wrapper can be.
//
// Sources: istio pkg/envoy/agent.go (terminate), pkg/envoy/admin.go and pkg/istio-agent's handler of /drain: the inbound
// listeners drain, then the agent sleeps for terminationDrainDuration, or with EXIT_ON_ZERO_ACTIVE_CONNECTIONS for
// MINIMUM_DRAIN_DURATION and until Envoy has no connection, and kills Envoy. linkerd2-proxy linkerd/app (drain) and
// linkerd/signal: at SIGTERM it accepts nothing more, and ends when its connections have ended.
var meshes = map[string]meshKind{
	"istio": {15001, 15006, []string{":15020", ":15021"}, func(e wrapped, o optionSet) {
		e.admin("/drain_listeners?inboundonly&graceful&skip_exit")
		time.Sleep(o.stop)
		for o.onZero && e.connections() > 0 {
			time.Sleep(time.Second)
		}
	}},
	"linkerd": {4140, 4143, []string{":4191"}, func(e wrapped, _ optionSet) {
		e.admin("/drain_listeners")
		for e.connections() > 0 {
			time.Sleep(100 * time.Millisecond)
		}
	}},
}

// wrapped is a running Envoy.
type wrapped struct{ process *exec.Cmd }

const wrappedAdmin = "http://127.0.0.1:15000"

// admin calls an endpoint of Envoy that changes something.
func (wrapped) admin(path string) {
	resp, err := http.Post(wrappedAdmin+path, "", nil)
	if err == nil {
		resp.Body.Close()
	}
	emit("admin", "path", path, "error", err)
}

// connections counts the connections of Envoy's listeners.
func (wrapped) connections() (n int) {
	resp, err := http.Get(wrappedAdmin + "/stats?filter=^listener.*downstream_cx_active$")
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if k, err := strconv.Atoi(value); err == nil && !strings.Contains(name, "admin") && !strings.Contains(name, "worker_") {
			n += k
		}
	}
	return n
}

// wrap runs Envoy as another mesh's agent does, without any part of Outrider.
func wrap(o optionSet) {
	kind, known := meshes[o.like]
	if !known {
		must(fmt.Errorf("no mesh %q", o.like))
	}
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	emit("started")
	time.Sleep(o.after)
	e := wrapped{exec.Command(o.envoy, "--config-yaml", fmt.Sprintf(wrappedConfig, listenerOf("OUTBOUND", kind.outbound), listenerOf("INBOUND", kind.inbound)), "--log-level", "warning", "--concurrency", "1")}
	e.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	e.process.Stdout, e.process.Stderr = os.Stderr, os.Stderr
	must(e.process.Start())
	for e.live() != nil {
		time.Sleep(20 * time.Millisecond)
	}
	quit := make(chan struct{}, 1)
	mux := http.NewServeMux()
	ready := func(http.ResponseWriter, *http.Request) {} // also while it stops
	mux.HandleFunc("/healthz/ready", ready)
	mux.HandleFunc("/ready", ready)
	mux.HandleFunc("POST /drain", func(http.ResponseWriter, *http.Request) { e.admin("/drain_listeners?inboundonly&graceful&skip_exit") })
	mux.HandleFunc("POST /quitquitquit", func(http.ResponseWriter, *http.Request) { quit <- struct{}{} })
	for _, address := range kind.status {
		go func() { must(http.ListenAndServe(address, mux)) }()
	}
	emit("healthy")
	select {
	case <-terminated:
	case <-quit:
	}
	emit("stopping")
	kind.terminate(e, o)
	emit("done")
	_ = e.process.Process.Kill()
	_ = e.process.Wait()
}

func (wrapped) live() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, wrappedAdmin+"/ready", nil)
	must(err)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	return nil
}

func listenerOf(direction string, port int) string {
	return fmt.Sprintf(`{name: %s, traffic_direction: %s, address: {socket_address: {address: 0.0.0.0, port_value: %d}},
    listener_filters: [{name: original_dst, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.listener.original_dst.v3.OriginalDst}}],
    filter_chains: [{filters: [{name: tcp, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy, stat_prefix: %s, cluster: original}}]}]}`,
		strings.ToLower(direction), direction, port, strings.ToLower(direction))
}

const wrappedConfig = `
admin: {address: {socket_address: {address: 127.0.0.1, port_value: 15000}}}
static_resources:
  listeners:
  - %s
  - %s
  clusters:
  - {name: original, type: ORIGINAL_DST, lb_policy: CLUSTER_PROVIDED, connect_timeout: 5s}
`

// copySelf copies this program, for a container whose image lacks it.
func copySelf(to string) {
	from, err := os.Open("/proc/self/exe")
	must(err)
	f, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	must(err)
	_, err = io.Copy(f, from)
	must(err)
	must(f.Close())
}
