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

// healthPath is the path of the container's readiness probe, else of its startup probe. A
// liveness probe is no measure of health.
func (p Probes) healthPath(container string) (path string, ok bool) {
	for _, kind := range []string{"readyz", "startupz"} {
		path = contract.ProbePath + container + "/" + kind
		if _, ok = p.byPath[path]; ok {
			return path, true
		}
	}
	return "", false
}

// Containers are those with a readiness or startup probe, sorted.
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

// asAgent is the User-Agent of a probe that the agent makes by itself.
const asAgent = kubeProbe + "outrider"

// Probe makes a container's readiness probe, else its startup probe, once and within the
// probe's own time. Nil is success.
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
	// Without the addresses, of which the own is another one each time.
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	return result(code, err)
}

// limited ends with the probe's own time, by default a second.
func (p probe) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	d := time.Duration(max(p.TimeoutSeconds, 1)) * time.Second
	return context.WithTimeoutCause(ctx, d, fmt.Errorf("no answer within %s", d))
}

// result is what the kubelet makes of an answer: a redirect is as good as a success.
func result(code int, err error) error {
	if err == nil && (code < 200 || code >= 400) {
		err = fmt.Errorf("status %d", code)
	}
	return err
}

// made calls p.Made for a probe of a container's health.
func (p Probes) made(path string, err error) {
	if p.Made == nil {
		return
	}
	name := container(path)
	if known, ok := p.healthPath(name); ok && known == path {
		p.Made(name, err)
	}
}
