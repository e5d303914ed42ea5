// Package roots provides trusted roots that a test can change, in place of a certificate authority.
package roots

import "sync"

// Roots implements the methods for roots of [outrider.dev/internal/core/controlplane/ca.Authority].
type Roots struct {
	mu      sync.Mutex
	pem     string
	changed chan struct{}
}

// New returns roots from PEM or any other text.
func New(pem string) *Roots { return &Roots{pem: pem, changed: make(chan struct{})} }

func (r *Roots) RootsPEM() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return []byte(r.pem)
}

func (r *Roots) Changed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

// Set changes the roots, and notifies watchers.
func (r *Roots) Set(pem string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.changed)
	r.pem, r.changed = pem, make(chan struct{})
}
