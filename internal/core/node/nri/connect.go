package nri

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/log"
	"github.com/containerd/nri/pkg/stub"
)

// DefaultSocket is the socket on which containerd and CRI-O listen for plugins.
const DefaultSocket = api.DefaultSocketPath

// index determines the order in which the runtime calls its plugins. The plugin is called late, so that the gate
// wraps a command that another plugin has set.
const index = "95"

// Pauses before the plugin reconnects: short at first, because a restarted runtime may create
// containers at once.
const (
	retryBase = 20 * time.Millisecond
	retryMax  = time.Second
)

// logged is the number of attempts, roughly those of a minute, after which a failure is logged again.
const logged = 60

// registration limits how long a runtime may take to register the plugin. containerd 2.2 registers none
// while it stops a container, which may take the container's whole grace period.
const registration = 2 * time.Minute

// Run keeps the plugin connected to the runtime, under a name, until ctx ends. It reports each change of the
// connection to a function. If conn is nil, it dials the socket; a connection from the runtime is used only
// once.
func (p *Plugin) Run(ctx context.Context, name, socket string, conn net.Conn, connected func(bool)) error {
	pause := retryBase
	for attempts := 0; ; attempts++ {
		served, err := p.serve(ctx, name, socket, conn, connected)
		if ctx.Err() != nil {
			return nil
		}
		if conn != nil {
			return err
		}
		if served {
			pause, attempts = retryBase, 0
		}
		if attempts%logged == 0 {
			p.Log.Warn("not connected to the container runtime", "socket", socket, "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		pause = min(2*pause, retryMax)
	}
}

// serve connects once, and returns after the connection has ended.
func (p *Plugin) serve(ctx context.Context, name, socket string, conn net.Conn, connected func(bool)) (served bool, err error) {
	if conn == nil {
		d := net.Dialer{Timeout: registration}
		if conn, err = d.DialContext(ctx, "unix", socket); err != nil {
			return false, err
		}
	}
	defer conn.Close()
	closed := make(chan struct{})
	all := make(chan struct{})
	synced := &synchronized{Plugin: p, done: sync.OnceFunc(func() { close(all) })}
	s, err := stub.New(synced, stub.WithPluginName(name), stub.WithPluginIdx(index), stub.WithConnection(conn),
		stub.WithLogger(quiet{}), stub.WithOnClose(sync.OnceFunc(func() { close(closed) })))
	if err != nil {
		return false, err
	}
	started := make(chan error, 1)
	// Start cannot be cancelled, and would wait for a runtime that is gone. In that case its goroutine
	// is abandoned, with the connection closed.
	go func() { started <- s.Start(context.WithoutCancel(ctx)) }()
	timer := time.NewTimer(registration)
	defer timer.Stop()
	for waiting := 2; waiting > 0; waiting-- {
		select {
		case err := <-started:
			if err != nil {
				return false, err
			}
			p.limit.Store(int64(s.RequestTimeout()))
			started = nil
		case <-all:
			all = nil
		case <-closed:
			return false, errors.New("the runtime closed the connection before it had sent its containers: its log says why; containers with long environments keep plugins out (docs/node.md)")
		case <-timer.C:
			return false, errors.New("the runtime did not register the plugin")
		case <-ctx.Done():
			return false, nil
		}
	}
	p.Log.Info("connected to the container runtime", "plugin", name)
	connected(true)
	defer connected(false)
	select {
	case <-closed:
		return true, errors.New("the runtime closed the connection")
	case <-ctx.Done():
		s.Stop()
		return true, nil
	}
}

// synchronized is a plugin that reports when the runtime has sent it all containers. From then on the runtime
// calls it for each new container.
type synchronized struct {
	*Plugin
	done func()
}

// Synchronize calls the plugin's own method, and reports once for each connection.
func (s *synchronized) Synchronize(ctx context.Context, pods []*api.PodSandbox, containers []*api.Container) ([]*api.ContainerUpdate, error) {
	defer s.done()
	return s.Plugin.Synchronize(ctx, pods, containers)
}

// quiet drops the library's log, because the plugin logs its own events.
type quiet struct{}

func (quiet) Debugf(context.Context, string, ...any) {}
func (quiet) Infof(context.Context, string, ...any)  {}
func (quiet) Warnf(context.Context, string, ...any)  {}
func (quiet) Errorf(context.Context, string, ...any) {}

var _ log.Logger = quiet{}
