// Package secretserver serves a test's Envoy its secrets, as the agent does.
package secretserver

import (
	"context"
	"log/slog"
	"testing"

	"outrider.dev/internal/core/agent/identity"
)

// Serve serves secrets on a socket until the test ends; there are none at first. Envoy's
// rejections go to rejected, if that is not nil.
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
