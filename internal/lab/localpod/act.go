package localpod

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/core/pod/kubelet"
	"outrider.dev/internal/lab/localpod/probe"
)

// do carries out an action of the kubelet, in a separate goroutine if it takes time.
func (p *Pod) do(a kubelet.Action) {
	switch a.Kind {
	case kubelet.CreateSandbox, kubelet.Pull: // already done
		e, _ := a.Answer(p.now(), true)
		p.work.Go(func() { p.send(news{event: e}) })
	case kubelet.Start:
		p.starting[a.Container] = true
		p.work.Go(func() { p.start(a) })
	case kubelet.RunHook, kubelet.RunProbe:
		of := p.running[a.Container]
		p.work.Go(func() { p.answer(a, of) })
	case kubelet.Stop:
		if c := p.running[a.Container]; c != nil {
			c.signal(c.spec.stopSignal())
		}
	case kubelet.Kill:
		if c := p.running[a.Container]; c != nil {
			c.signal(syscall.SIGKILL)
		}
	case kubelet.BackOff, kubelet.Publish, kubelet.End: // only for the journal
	}
}

// stopSignal returns SIGTERM, unless the container sets another signal.
func (s spec) stopSignal() syscall.Signal {
	if s.Lifecycle != nil && s.Lifecycle.StopSignal != nil {
		if sig := unix.SignalNum(string(*s.Lifecycle.StopSignal)); sig != 0 {
			return sig
		}
	}
	return syscall.SIGTERM
}

// start starts a container, waits for its end, and sends both events to the loop.
func (p *Pod) start(a kubelet.Action) {
	c, err := p.box.start(p.specs[a.Container], func(l string) { p.line(a.Container, l) })
	e, _ := a.Answer(p.now(), err == nil)
	if err != nil {
		p.send(news{event: e, detail: err.Error()})
		return
	}
	p.send(news{event: e, of: c})
	code := c.wait()
	p.send(news{event: kubelet.Event{At: p.now(), Kind: kubelet.Exited, Container: a.Container, Code: code}, of: c})
}

// answer runs a hook or a probe, and sends its result to the loop.
func (p *Pod) answer(a kubelet.Action, of *container) {
	ctx, timeout := p.life, a.Timeout
	if a.Kind == kubelet.RunProbe && timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	err := errNotRunning
	if of != nil {
		err = p.handle(ctx, a, of)
	}
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("no answer within %s: %w", timeout, err)
	}
	e, _ := a.Answer(p.now(), err == nil)
	n := news{event: e, of: of}
	if err != nil {
		n.detail = err.Error()
	}
	p.send(n)
}

// places maps hooks and probes to their paths in the container spec.
var places = map[kubelet.Which]string{kubelet.PostStart: "lifecycle.postStart", kubelet.PreStop: "lifecycle.preStop",
	kubelet.Startup: "startupProbe", kubelet.Liveness: "livenessProbe", kubelet.Readiness: "readinessProbe"}

// prober returns a prober that connects from the node's network, as a kubelet does: the pod's capture rules apply
// to its connections.
func (p *Pod) prober() probe.Prober {
	dial := func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		entered := p.node.Do(func() error {
			conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
			return nil
		})
		return conn, errors.Join(entered, err)
	}
	return probe.Prober{Dial: dial, Pod: p.facts.addrs[0].String(), Agent: fmt.Sprintf("kube-probe/1.%d", p.facts.Kube.Minor)}
}

func (p *Pod) handle(ctx context.Context, a kubelet.Action, of *container) error {
	c, place := of.spec.Container, places[a.Which]
	h := handlers(c)[place]
	isHook := a.Kind == kubelet.RunHook
	switch {
	case h.exec != nil:
		out, err := of.exec(ctx, p.box, h.exec.Command)
		if text := strings.TrimSpace(string(out)); err != nil && text != "" {
			return fmt.Errorf("%w: %s", err, text)
		}
		return err
	case h.http != nil:
		port, err := portOf(place, c, h.http.Port)
		if err != nil {
			return err
		}
		// Any response completes the HTTP request of a hook, while a probe checks its status. Source:
		// pkg/kubelet/lifecycle/handlers.go runHTTPHandler, pkg/probe/http/http.go.
		return p.prober().HTTP(ctx, h.http, port, !isHook)
	case h.tcp != nil && !isHook: // the kubelet refuses hooks of this kind
		port, err := portOf(place, c, h.tcp.Port)
		if err != nil {
			return err
		}
		return p.prober().TCP(ctx, h.tcp.Host, port)
	case h.grpc != nil:
		return p.prober().GRPC(ctx, int(h.grpc.Port), service(h.grpc))
	case h.sleep != nil:
		select {
		case <-time.After(time.Duration(h.sleep.Seconds) * time.Second):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return errors.New("no handler that can be run")
}

func service(g *corev1.GRPCAction) string {
	if g.Service == nil {
		return ""
	}
	return *g.Service
}
