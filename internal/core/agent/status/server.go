// Package status is the agent's HTTP server. It reports whether the proxy is ready and why not, and how the
// start went; it serves metrics and the app's probes for the kubelet; and it accepts commands from within the
// pod.
//
// Its ports are the first to open, so that a client gets an answer instead of a refused
// connection. A request with ?wait= is held until the proxy is ready, and answered at that event.
// A table in access.go defines who may call which path. Paths that change something or show
// internals are only for the pod itself (the loopback interface). On the unix socket, other users
// may only get the proxy's readiness.
package status

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/agent/readiness"
)

// Options of a Server. The zero value of a field selects its default.
type Options struct {
	Board   *readiness.Board // required
	Journal *Journal         // required

	// Full checks the applications' health while a client waits for the level full; default:
	// no check, only the board's state.
	Full *readiness.Inquiry

	Ports    []uint16 // TCP ports on all addresses; default: status and readiness
	Socket   string   // path of a unix socket for the pod's containers; default none
	StateDir string   // directory that gets [StateFile] at each change; default none

	Drain   func(context.Context) error // POST /drain; default: no such endpoint
	Replace func()                      // POST /replace, which announces that only this container will stop; default: no such endpoint
	Quit    func()                      // POST /quitquitquit; default: no such endpoint

	Metrics []Metric // of the agent, in addition to the server's own
	Envoy   string   // URL of Envoy's metrics; default none
	// Workload is this pod's workload, for the labels of Envoy's statistics of requests.
	Workload Workload
	App      []Target // the app's metrics

	Probes Probes
	// Node contains the addresses of the pod's node, from which the kubelet connects.
	// MetricsFrom contains the networks that may get the metrics; nil: all.
	Node, MetricsFrom []netip.Prefix

	Log *slog.Logger // default: none

	header time.Duration // default headerLimit
}

// Limits of one client.
const (
	headerLimit = 5 * time.Second  // to send a request's header
	bodyLimit   = 10 * time.Second // to send all of it
	answerLimit = time.Minute      // to read the answer
	idleLimit   = time.Minute      // between two requests
	headerSize  = 16 << 10
)

// A Server answers on the status ports and the unix socket.
type Server struct {
	o         Options
	http      *http.Server
	listeners []net.Listener
	scrapes   scrapes
	conns     *connLimiter
	waits     *slotLimiter // held requests
	scraping  *slotLimiter
	refused   firsts // clients whose probes were refused
}

// Listen opens the ports and the socket. If one fails, it closes all.
func Listen(o Options) (*Server, error) {
	if o.Board == nil || o.Journal == nil {
		return nil, errors.New("options Board and Journal: both are required")
	}
	if len(o.Ports) == 0 {
		o.Ports = []uint16{contract.StatusPort, contract.ReadinessPort}
	}
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	s := &Server{o: o, conns: newConnLimiter(), waits: newSlotLimiter(heldLimit, 0), scraping: newSlotLimiter(scrapeSlots, scrapesEach)}
	s.http = &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: cmp.Or(o.header, headerLimit), ReadTimeout: bodyLimit, WriteTimeout: answerLimit, IdleTimeout: idleLimit,
		MaxHeaderBytes: headerSize, ConnState: s.follow,
		ErrorLog: slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug), // debug only: for example a port scanner's TLS hello
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, peerKey{}, s.peerOf(c))
		},
	}
	for _, p := range o.Ports {
		ln, err := net.Listen("tcp", ":"+strconv.Itoa(int(p)))
		if err != nil {
			s.close()
			return nil, fmt.Errorf("status port %d: %w", p, err)
		}
		s.listeners = append(s.listeners, ln)
	}
	if o.Socket != "" {
		ln, err := listenUnix(o.Socket)
		if err != nil {
			s.close()
			return nil, fmt.Errorf("status socket: %w", err)
		}
		s.listeners = append(s.listeners, ln)
	}
	return s, nil
}

// listenUnix opens a unix socket. It replaces one that an earlier agent left behind.
func listenUnix(path string) (net.Listener, error) {
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() != fs.ModeSocket {
		return nil, fmt.Errorf("%s exists and is not a socket", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o666); err != nil { // peerOf checks the user of each client
		ln.Close()
		return nil, err
	}
	return ln, nil
}

func (s *Server) close() {
	for _, ln := range s.listeners {
		ln.Close()
	}
}

// Addresses returns the addresses on which s listens.
func (s *Server) Addresses() []net.Addr {
	out := make([]net.Addr, len(s.listeners))
	for i, ln := range s.listeners {
		out[i] = ln.Addr()
	}
	return out
}

// Serve answers until ctx ends, and then closes the ports and the socket. The caller should end ctx last,
// because the kubelet's probes arrive here until the pod is gone.
func (s *Server) Serve(ctx context.Context) error {
	defer s.http.Close()
	defer s.close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	state := make(chan struct{})
	go func() {
		defer close(state)
		s.keepState(ctx)
	}()
	failed := make(chan error, len(s.listeners))
	for _, ln := range s.listeners {
		go func() { failed <- s.http.Serve(ln) }()
	}
	var err error
	select {
	case err = <-failed:
		err = fmt.Errorf("status server: %w", err)
	case <-ctx.Done():
	}
	cancel()
	<-state
	return err
}

type peerKey struct{}

func credentials(c *net.UnixConn) (*unix.Ucred, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) { cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	return cred, errors.Join(err, failed)
}

func peerFrom(r *http.Request) peer {
	p, _ := r.Context().Value(peerKey{}).(peer)
	return p
}

// keepState writes the state file at each change, and removes the file at the end.
func (s *Server) keepState(ctx context.Context) {
	if s.o.StateDir == "" {
		<-ctx.Done()
		return
	}
	path := filepath.Join(s.o.StateDir, StateFile)
	defer os.Remove(path)
	for status := range s.o.Board.Subscribe(ctx, readiness.Outbound) {
		if err := replaceJSON(path, status); err != nil {
			s.o.Log.Warn("state file not written", "path", path, "err", err)
		}
	}
}
