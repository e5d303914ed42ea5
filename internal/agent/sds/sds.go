package sds

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
)

const (
	// MaxPath is how many bytes the path of a socket has at most: what struct sockaddr_un
	// holds, without the one that ends it (unix(7)).
	MaxPath = 107
	// maxStreams is how many there may be at a time. Envoy has one for each secret that its
	// configuration names, which are two.
	maxStreams = 64
	// maxRequest bounds a message, in bytes. Envoy's first one has all that it is (its node):
	// 20 to 60 kB, and the pod's labels.
	maxRequest = 1 << 20
)

// Options of a [Server].
type Options struct {
	Socket string       // path, required; made with mode 0600
	Log    *slog.Logger // required

	// Rejected is told of each secret that Envoy does not take. It must not wait.
	Rejected func(Rejection)
}

// A Rejection is Envoy's word that it cannot use a secret.
type Rejection struct {
	Names  []string // that the stream asked for: the one that came last, if Envoy cannot use two together
	Reason string   // Envoy's, one line
	Kept   bool     // Envoy had an earlier one, and goes on with that
}

// A Server tells secrets.
type Server struct {
	o        Options
	listener net.Listener
	free     chan struct{} // holds one for each stream that there may be

	mu       sync.Mutex
	secrets  map[string]versioned
	revision uint64        // counts changes
	changed  chan struct{} // closed by the next one
}

type versioned struct {
	Secret
	revision uint64
}

// Listen makes the socket, in the place of one that an earlier agent left. Who connects
// before [Server.Serve] waits.
func Listen(o Options) (*Server, error) {
	if len(o.Socket) == 0 || len(o.Socket) > MaxPath {
		return nil, fmt.Errorf("the socket of secrets: a path of %d bytes (%q); use 1 to %d", len(o.Socket), o.Socket, MaxPath)
	}
	l, err := listen(o.Socket)
	if err != nil {
		return nil, fmt.Errorf("the socket of secrets: %w", err)
	}
	return &Server{o: o, listener: l, free: make(chan struct{}, maxStreams), secrets: map[string]versioned{}, changed: make(chan struct{})}, nil
}

func listen(path string) (net.Listener, error) {
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("%s is there and no socket; remove it", path)
	default:
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	// bind makes the file with the socket's own mode (Linux): there is no moment at which
	// others could connect.
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) { failed = syscall.Fchmod(int(fd), 0o600) })
		return errors.Join(err, failed)
	}}
	return config.Listen(context.Background(), "unix", path)
}

// Serve answers until ctx ends, and then ends all streams and removes the socket.
func (s *Server) Serve(ctx context.Context) error {
	server := &http.Server{
		Handler: s, Protocols: new(http.Protocols), HTTP2: &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		MaxHeaderBytes: 64 << 10,
		ErrorLog:       slog.NewLogLogger(s.o.Log.Handler(), slog.LevelWarn),
	}
	server.Protocols.SetUnencryptedHTTP2(true)
	defer context.AfterFunc(ctx, func() { server.Close() })()
	if err := server.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("telling Envoy its secrets: %w", err)
	}
	return nil
}

// Close removes the socket of a server that was never told to serve.
func (s *Server) Close() error { return s.listener.Close() }

// Set makes the secret that name stands for. The same again is no change.
func (s *Server) Set(name string, secret Secret) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old, ok := s.secrets[name]; ok && bytes.Equal(old.body, secret.body) {
		return
	}
	s.revision++
	s.secrets[name] = versioned{secret, s.revision}
	close(s.changed)
	s.changed = make(chan struct{})
}

// named is a secret with its name.
type named struct {
	name string
	Secret
}

// news returns the secrets that names stand for, if one of them is newer than seen, and
// the revision of the newest; else a channel that is closed when there may be news.
func (s *Server) news(names []string, seen uint64) (secrets []named, newest uint64, later <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		if v, ok := s.secrets[name]; ok {
			secrets, newest = append(secrets, named{name, v.Secret}), max(newest, v.revision)
		}
	}
	if newest <= seen {
		return nil, seen, s.changed
	}
	return secrets, newest, nil
}
