// Package replicas reads the versions of a control plane's replicas and the proxies that are connected to them. It
// sends requests to each replica, through ports that are forwarded from this machine.
package replicas

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/controlplane/debugapi"
	"outrider.dev/internal/ops/kubeclient"
)

// Selector is the label selector for all objects of the control plane.
const Selector = "app=outriderd"

// RevisionLabel is the label that the chart sets on the pods of a revision.
const RevisionLabel = contract.Prefix + "revision"

// patience is the time limit of the requests to one replica, so that a replica that does not respond does not block
// the requests to other replicas.
const patience = 15 * time.Second

// A Set sends requests to the replicas in a namespace. Only one goroutine at a time may use it.
type Set struct {
	Core      kubernetes.Interface
	Namespace string
	Forward   func(ctx context.Context, namespace, pod string, port int) (address string, stop func(), err error)

	forwarded map[string]forward
}

// In returns the set of replicas in a namespace of a cluster.
func In(c *kubeclient.Client, namespace string) *Set {
	return &Set{Core: c.Core, Namespace: namespace, Forward: c.Forward}
}

// A forward is a forwarded port.
type forward struct {
	address string
	stop    func()
	err     error
}

// Close ends the forwarded ports.
func (s *Set) Close() {
	for _, f := range s.forwarded { // any order: each is independent
		if f.stop != nil {
			f.stop()
		}
	}
	s.forwarded = nil
}

// Pods returns the pods of running replicas, sorted by name.
func (s *Set) Pods(ctx context.Context) ([]corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	l, err := s.Core.CoreV1().Pods(s.Namespace).List(ctx, metav1.ListOptions{LabelSelector: Selector})
	if err != nil {
		return nil, fmt.Errorf("listing pods in %s: %w", s.Namespace, err)
	}
	running := slices.DeleteFunc(l.Items, func(p corev1.Pod) bool {
		return p.DeletionTimestamp != nil || p.Status.Phase != corev1.PodRunning
	})
	slices.SortFunc(running, func(a, b corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	return running, nil
}

// Address returns a local address that is forwarded to a port of a replica, until [Set.Close].
func (s *Set) Address(ctx context.Context, pod string, port int) (string, error) {
	key := fmt.Sprint(pod, ":", port)
	f, ok := s.forwarded[key]
	if !ok {
		f.address, f.stop, f.err = s.Forward(ctx, s.Namespace, pod, port)
		if s.forwarded == nil {
			s.forwarded = map[string]forward{}
		}
		s.forwarded[key] = f
	}
	return f.address, f.err
}

// Monitoring returns the URL of a replica's HTTP server.
func (s *Set) Monitoring(ctx context.Context, pod string) (string, error) {
	address, err := s.Address(ctx, pod, contract.MonitoringPort)
	return (&url.URL{Scheme: "http", Host: address}).String(), err
}

// Get requests a page of a replica's HTTP server. It fails if the status is not 200, or if the page has more than
// limit bytes.
func (s *Set) Get(ctx context.Context, pod, path string, limit int64) (body []byte, header http.Header, err error) {
	address, err := s.Monitoring(ctx, pod)
	if err != nil {
		return nil, nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address+path, nil)
	if err != nil {
		return nil, nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, nil, fmt.Errorf("asking %s: %w", pod, err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, nil, fmt.Errorf("%s answers GET %s with %s", pod, path, res.Status)
	}
	body, err = io.ReadAll(io.LimitReader(res.Body, limit+1))
	if err == nil && int64(len(body)) > limit {
		err = fmt.Errorf("%s answers GET %s with more than %d bytes", pod, path, limit)
	}
	return body, res.Header, err
}

// Version returns the version of a replica.
func (s *Set) Version(ctx context.Context, pod string) (v contract.Version, err error) {
	body, _, err := s.Get(ctx, pod, "/version", 1<<16)
	if err != nil {
		return v, err
	}
	if err := json.Unmarshal(body, &v); err != nil || v.Version == "" {
		return v, fmt.Errorf("the version of %s cannot be read", pod)
	}
	return v, nil
}

// Proxies returns the proxies that are connected to a replica.
func (s *Set) Proxies(ctx context.Context, pod string) ([]debugapi.Proxy, error) {
	address, err := s.Monitoring(ctx, pod)
	if err != nil {
		return nil, err
	}
	return debugapi.Source{Address: address}.Proxies(ctx)
}

// A Replica is the report of one replica. If Problem is set, the other fields may be empty.
type Replica struct {
	Name     string           `json:"replica"`
	Revision string           `json:"revision,omitempty"`
	Version  contract.Version `json:"version"`
	Problem  string           `json:"problem,omitempty"` // error of a request to the replica

	Proxies []debugapi.Proxy `json:"-"`
}

// ErrNone means that no replica runs.
var ErrNone = errors.New("no replica of outriderd runs")

// All returns the reports of all replicas. It fails if no replica runs or ctx ends; the failure of one replica is in
// the Problem of its report.
func (s *Set) All(ctx context.Context) ([]Replica, error) {
	pods, err := s.Pods(ctx)
	if err != nil {
		return nil, err
	}
	if len(pods) == 0 {
		return nil, fmt.Errorf("%w in namespace %s", ErrNone, s.Namespace)
	}
	var out []Replica
	for _, p := range pods {
		r := Replica{Name: p.Name, Revision: p.Labels[RevisionLabel]}
		if err := s.ask(ctx, &r); err != nil {
			r.Problem = err.Error()
		}
		out = append(out, r)
	}
	return out, ctx.Err()
}

func (s *Set) ask(ctx context.Context, r *Replica) (err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if r.Version, err = s.Version(ctx, r.Name); err != nil {
		return err
	}
	all, err := s.Proxies(ctx, r.Name)
	if err != nil {
		return err
	}
	for _, p := range all {
		r.Proxies = append(r.Proxies, p.Of(r.Name, r.Version))
	}
	return nil
}

// Proxies returns the proxies of all replicas, sorted by ID.
func Proxies(all []Replica) []debugapi.Proxy {
	out := []debugapi.Proxy{}
	for _, r := range all {
		out = append(out, r.Proxies...)
	}
	slices.SortStableFunc(out, func(a, b debugapi.Proxy) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// Newest returns the newest connection of each proxy, by the proxy's name.
func Newest(all []debugapi.Proxy) map[string]*debugapi.Proxy {
	out := map[string]*debugapi.Proxy{}
	for _, p := range all {
		if is := out[p.Name()]; is == nil || p.Since.After(is.Since) {
			out[p.Name()] = &p
		}
	}
	return out
}

// Select returns the proxies of the pods in a namespace that match labels, a selector in kubectl's syntax. An empty
// namespace means all.
func (s *Set) Select(ctx context.Context, all []debugapi.Proxy, namespace, labels string) ([]debugapi.Proxy, error) {
	if labels == "" {
		return InNamespace(all, namespace), nil
	}
	l, err := s.Core.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: labels})
	if err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	names := map[string]bool{}
	for _, p := range l.Items {
		names[p.Name+"."+p.Namespace] = true
	}
	return slices.DeleteFunc(slices.Clone(all), func(p debugapi.Proxy) bool { return !names[p.Name()] }), nil
}

// InNamespace returns the proxies of a namespace. An empty namespace means all.
func InNamespace(all []debugapi.Proxy, namespace string) []debugapi.Proxy {
	return slices.DeleteFunc(slices.Clone(all), func(p debugapi.Proxy) bool { return namespace != "" && p.Namespace != namespace })
}
