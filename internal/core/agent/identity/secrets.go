package identity

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"

	"outrider.dev/internal/base/wire"
)

const (
	// MaxSocketPath is the maximum length of a socket's path in bytes: the size of struct
	// sockaddr_un's field, without the final zero (unix(7)).
	MaxSocketPath = 107
	// maxStreams bounds concurrent streams. Envoy opens one for each secret in its configuration,
	// which has two.
	maxStreams = 64
	// maxRequest bounds a message, in bytes. Envoy's first message contains its node, which has 20 to 60 kB
	// plus the pod's labels.
	maxRequest = 1 << 20
)

// SecretOptions configure a [SecretServer].
type SecretOptions struct {
	Socket string       // path, required; made with mode 0600
	Log    *slog.Logger // required

	// Rejected is called for each NACK. It must not block.
	Rejected func(Rejection)
}

// A Rejection reports a NACK: Envoy cannot use a secret.
type Rejection struct {
	Names  []string // the stream's subscription; if two secrets do not match, Envoy rejects the one that came last
	Reason string   // Envoy's message, in one line
	Kept   bool     // Envoy accepted an earlier version, and still uses it
}

// A SecretServer serves the Envoy of this pod its secrets over a Unix socket, by Envoy's secret
// discovery service (SDS).
//
// Files would need no server, but Envoy takes an inotify instance for each file that it watches,
// and a node has few of them for all its pods.
//
// It serves the state-of-the-world variant, StreamSecrets, on net/http's HTTP/2. A stream
// subscribes to secrets by name. It gets each secret as soon as it exists, and every new version.
// Envoy opens a stream for each name.
type SecretServer struct {
	o        SecretOptions
	listener net.Listener
	streams  chan struct{} // a semaphore: one value for each open stream

	mu      sync.Mutex
	secrets map[string]versioned
	version uint64        // of the latest change
	changed chan struct{} // closed by the next change
}

type versioned struct {
	Secret
	version uint64
}

// ListenSecrets makes the socket, and replaces one that an earlier agent left. A client that
// connects before [SecretServer.Serve] waits.
func ListenSecrets(o SecretOptions) (*SecretServer, error) {
	if len(o.Socket) == 0 || len(o.Socket) > MaxSocketPath {
		return nil, fmt.Errorf("SDS socket: a path of %d bytes (%q); use 1 to %d", len(o.Socket), o.Socket, MaxSocketPath)
	}
	l, err := wire.ListenUnix(o.Socket, 0o600)
	if err != nil {
		return nil, fmt.Errorf("SDS socket: %w", err)
	}
	return &SecretServer{o: o, listener: l, streams: make(chan struct{}, maxStreams), secrets: map[string]versioned{}, changed: make(chan struct{})}, nil
}

// Serve serves until ctx ends. Then it ends all streams and removes the socket.
func (s *SecretServer) Serve(ctx context.Context) error {
	server := &http.Server{
		Handler: s, Protocols: new(http.Protocols), HTTP2: &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		MaxHeaderBytes: 64 << 10,
		ErrorLog:       slog.NewLogLogger(s.o.Log.Handler(), slog.LevelWarn),
	}
	server.Protocols.SetUnencryptedHTTP2(true)
	defer context.AfterFunc(ctx, func() { server.Close() })()
	if err := server.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving secrets to Envoy: %w", err)
	}
	return nil
}

// Set sets the secret with a name. Setting the same secret again has no effect.
func (s *SecretServer) Set(name string, secret Secret) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old, ok := s.secrets[name]; ok && bytes.Equal(old.body, secret.body) {
		return
	}
	s.version++
	s.secrets[name] = versioned{secret, s.version}
	close(s.changed)
	s.changed = make(chan struct{})
}

// named is a secret with its name.
type named struct {
	name string
	Secret
}

// resources returns the secrets among names that exist, and the latest of their versions, if that is newer than
// sent. Otherwise it returns a channel that is closed by the next change.
func (s *SecretServer) resources(names []string, sent uint64) (secrets []named, version uint64, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		if v, ok := s.secrets[name]; ok {
			secrets, version = append(secrets, named{name, v.Secret}), max(version, v.version)
		}
	}
	if version <= sent {
		return nil, sent, s.changed
	}
	return secrets, version, nil
}
