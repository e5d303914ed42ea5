// Package secretserver serves secrets to a test's Envoy, as the agent does.
package secretserver

import (
	"context"
	"log/slog"
	"testing"

	"outrider.dev/internal/core/agent/identity"
)

// Serve starts a secret server on a socket, without secrets at first. The server runs until the test ends. It passes
// Envoy's rejections to the function rejected, unless the function is nil.
func Serve(t testing.TB, socket string, rejected func(identity.Rejection)) *identity.SecretServer {
	t.Helper()
	s, err := identity.ListenSecrets(identity.SecretOptions{Socket: socket, Log: slog.New(slog.DiscardHandler), Rejected: rejected})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s
}
