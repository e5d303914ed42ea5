// Package roots has an authority's roots that a test changes.
package roots

import "sync"

// Roots are what [outrider.dev/internal/core/controlplane/ca.Authority] has of roots.
type Roots struct {
	mu      sync.Mutex
	pem     string
	changed chan struct{}
}

// New are roots in PEM, or any other text.
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

// Set changes the roots, and says so.
func (r *Roots) Set(pem string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.changed)
	r.pem, r.changed = pem, make(chan struct{})
}
