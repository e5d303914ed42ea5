package controlplane

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"outrider.dev/internal/base/latest"
)

// A replica that is to end still answers reviews until others know of it, on kept and on new connections, and closes each
// connection after an answer. Then it ends.
func TestReviewsAfterTheEndBegan(t *testing.T) {
	state := t.TempDir()
	ctx, end := context.WithCancel(t.Context())
	ready, done := make(chan Addresses, 1), make(chan error, 1)
	began, known := make(chan struct{}), make(chan struct{})
	go func() {
		done <- Run(ctx, Options{
			Folder: t.TempDir(), State: state, Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0", Webhook: "127.0.0.1:0",
			Ready:    func(a Addresses) { ready <- a },
			Stopping: func(ctx context.Context) { close(began); latest.Wait(ctx, known) },
		})
	}()
	var at Addresses
	select {
	case at = <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	config := clientTLS(t, state)
	config.NextProtos = []string{"http/1.1"} // as the API server
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
	defer client.CloseIdleConnections()
	closed := func() bool {
		t.Helper()
		r, err := client.Post("https://"+at.Webhook+"/inject", "application/json", strings.NewReader(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","kind":{"version":"v1","kind":"Pod"},"namespace":"shop","operation":"CREATE","object":{}}}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if r.StatusCode != http.StatusOK {
			t.Errorf("a review: %s", r.Status)
		}
		return r.Close
	}
	if closed() {
		t.Error("a connection is closed while the replica serves")
	}
	end()
	<-began
	for range 2 { // by the kept connection, and by a new one
		if !closed() {
			t.Error("a connection is kept, though the replica is to end")
		}
	}
	close(known)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// The end of a replica that does not serve yet does not wait for anybody.
func TestTheEndBeforeServing(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	end()
	err := Run(ctx, Options{Folder: t.TempDir(), State: t.TempDir(), Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0", Stopping: func(context.Context) { t.Error("it waits") }})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the reason for which nothing was opened", err)
	}
}
