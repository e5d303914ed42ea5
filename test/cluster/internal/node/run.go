package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"

	runtime "outrider.dev/test/cluster/containerd"
	"outrider.dev/test/cluster/internal/cgroup"
	"outrider.dev/test/cluster/internal/poll"
)

// Run brings the cluster up, reports every step to the starter, and then runs until it is killed.
func Run(configFile string) error {
	c, err := Load(configFile)
	if err != nil {
		return err
	}
	syscall.CloseOnExec(eventsFile)
	events := os.NewFile(eventsFile, "events")
	report := json.NewEncoder(events)

	ctx, cancel := context.WithCancelCause(context.Background())
	programs := &programs{config: c, ended: cancel, running: map[string]*process{}}
	if err := programs.bringUp(ctx, func(phase string) { report.Encode(Event{Phase: phase}) }); err != nil {
		report.Encode(Event{Error: err.Error()})
		return err
	}
	control, err := listen()
	if err != nil {
		report.Encode(Event{Error: err.Error()})
		return err
	}
	report.Encode(Event{Ready: true})
	events.Close()
	// From here on, the exit of a program is only logged: the cluster stays up, so that it can be examined.
	return programs.serve(control)
}

// bringUp starts everything in order. It reports each completed step.
func (p *programs) bringUp(ctx context.Context, completed func(phase string)) error {
	c := p.config
	var api *client
	steps := []struct {
		phase string
		do    func() error
	}{
		{"mounts, control groups and network made", func() (err error) {
			if err := cgroup.Create(c.Group); err != nil {
				return err
			}
			if err := cgroup.Join(c.Group, systemGroup); err != nil {
				return err
			}
			if err := prepareMounts(c); err != nil {
				return err
			}
			if err := prepareNetwork(ctx); err != nil {
				return err
			}
			p.mounts, err = mountsNow()
			return err
		}},
		{"etcd, containerd and kube-apiserver started", func() error {
			return errors.Join(p.start(systemGroup, etcd(c), apiServer(c)), p.start(nodeGroup, containerd(c)))
		}},
		{"images imported", func() error { return importImages(ctx, c.Images) }},
		{"kube-apiserver ready", func() (err error) {
			if api, err = newClient(c); err != nil {
				return err
			}
			return api.await(ctx, (*client).ready)
		}},
		{"controllers, scheduler and kubelet started", func() error {
			return errors.Join(p.start(systemGroup, controllerManager(c), scheduler(c)), p.start(nodeGroup, kubelet(c)))
		}},
		{"DNS started", func() error {
			for _, o := range objects {
				if err := api.await(ctx, func(api *client, ctx context.Context) error { return api.create(ctx, o) }); err != nil {
					return err
				}
			}
			return p.start(systemGroup, coreDNS(c))
		}},
		{"node ready", func() error { return api.await(ctx, (*client).nodeReady) }},
		// kube-proxy starts after its node exists; otherwise it would retry only after seconds.
		{"kube-proxy started", func() error { return p.start(nodeGroup, kubeProxy(c)) }},
		{"default service account made", func() error { return api.await(ctx, (*client).hasDefaultAccount) }},
		// A ready node does not imply that Services and DNS work: both are queried through a Service.
		{"Services answer", func() error { return poll.Until(ctx, 50*time.Millisecond, dialService) }},
		{"DNS answers", func() error { return poll.Until(ctx, 50*time.Millisecond, lookUp) }},
	}
	for _, s := range steps {
		if err := s.do(); err != nil {
			return fmt.Errorf("%s: not so: %w", s.phase, err)
		}
		completed(s.phase)
	}
	return nil
}

func importImages(ctx context.Context, tarballs []string) error {
	if err := awaitRuntime(ctx); err != nil {
		return err
	}
	for _, t := range tarballs {
		cmd := exec.CommandContext(ctx, "ctr", "images", "import", t)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("importing %s: %w: %s", t, err, out)
		}
	}
	return nil
}

func awaitRuntime(ctx context.Context) error {
	return poll.Until(ctx, 20*time.Millisecond, func(ctx context.Context) error { return runtime.Ready(ctx, Containerd) })
}

// dialService connects to the API server through its Service. The timeout is short: without kube-proxy's
// rules, a packet waits three seconds for the MAC address of a neighbour that does not exist.
func dialService(ctx context.Context) error {
	d := net.Dialer{Timeout: 200 * time.Millisecond}
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(APIService, "443"))
	if err == nil {
		conn.Close()
	}
	return err
}

// lookUp queries the DNS server through its Service.
func lookUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	r := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, net.JoinHostPort(DNSService, "53"))
	}}
	_, err := r.LookupHost(ctx, "kubernetes.default.svc."+Domain+".")
	return err
}
