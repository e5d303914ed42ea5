package status

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"outrider.dev/internal/base/contract"
)

// healthPath returns the path of the container's readiness probe or, without one, of its
// startup probe. A liveness probe does not count: its success does not mean that the
// container is ready.
func (p Probes) healthPath(container string) (path string, ok bool) {
	for _, kind := range []string{"readyz", "startupz"} {
		path = contract.ProbePath + container + "/" + kind
		if _, ok = p.byPath[path]; ok {
			return path, true
		}
	}
	return "", false
}

// Containers returns the names of the containers with a readiness or startup probe, sorted.
func (p Probes) Containers() []string {
	var out []string
	for path := range p.byPath {
		name := container(path)
		if known, ok := p.healthPath(name); ok && known == path {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

func container(path string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(path, contract.ProbePath), "/")
	return name
}

// asAgent is the User-Agent of the agent's own probes.
const asAgent = kubeProbe + "outrider"

// Probe makes a container's readiness probe or, without one, its startup probe. It tries once,
// within the probe's own timeout, and returns nil on success.
func (p Probes) Probe(ctx context.Context, container string) error {
	path, ok := p.healthPath(container)
	if !ok {
		return fmt.Errorf("%s has no readiness or startup probe", container)
	}
	probe := p.byPath[path]
	ctx, cancel := probe.limited(ctx)
	defer cancel()
	code, _, err := p.try(ctx, path, probe, asAgent)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	// Remove the addresses from the error: the local port differs each time.
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	return result(code, err)
}

// limited returns a context with the probe's own timeout, by default a second.
func (p probe) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	d := time.Duration(max(p.TimeoutSeconds, 1)) * time.Second
	return context.WithTimeoutCause(ctx, d, fmt.Errorf("no answer within %s", d))
}

// result judges an answer as the kubelet does: a redirect is a success.
func result(code int, err error) error {
	if err == nil && (code < 200 || code >= 400) {
		err = fmt.Errorf("status %d", code)
	}
	return err
}

// made calls p.Made if the path is a container's healthPath.
func (p Probes) made(path string, err error) {
	if p.Made == nil {
		return
	}
	name := container(path)
	if known, ok := p.healthPath(name); ok && known == path {
		p.Made(name, err)
	}
}
