// Package check finds out whether Outrider can be installed in a cluster, and whether an installed
// Outrider works.
//
// [Run] sends requests to the API server and the control plane, and changes nothing: pods are
// created as a dry run, unless [Options.Nodes] requests real ones. A check whose requests fail,
// because a permission is missing or a pod cannot be reached, is [Skipped] with the reason.
package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"outrider.dev/internal/ops/installation"
	"outrider.dev/internal/ops/kubeclient"
)

// A Result is the outcome of a check.
type Result string

// Results, from best to worst.
const (
	OK      Result = "ok"
	Warning Result = "warning" // it works, but something should be done
	Failed  Result = "failed"  // it does not work, at least for some pods
	Skipped Result = "skipped" // not known, because a request failed
)

// A Check is a check with its result.
type Check struct {
	ID     string `json:"id"` // stable
	Title  string `json:"title"`
	Object string `json:"object,omitempty"` // set if the check is made for several objects: NAMESPACE/POD, or a kind of nodes
	Result Result `json:"result"`
	Reason string `json:"reason"`
	Hint   string `json:"hint,omitempty"`
	Link   string `json:"link"` // link to the page that explains the check
}

// Pages is the URL below which each check has a page.
const Pages = "https://outrider.dev/docs/"

// Options of the checks.
type Options struct {
	Namespace string // namespace of the control plane
	Version   string // version of this command
	Before    bool   // check whether Outrider can be installed, instead of whether it works
	Release   installation.Release

	Nodes          bool   // also try capture, in a pod on a node of each kind
	NodesNamespace string // namespace of these pods; default: Namespace if it exists, else "default"
}

// patience is the time limit of a single check. It must be longer than the 10 s for which the API server waits for a
// webhook.
const patience = 30 * time.Second

// Run makes all checks, in order. If the API server does not respond, all others are skipped.
func Run(ctx context.Context, client *kubeclient.Client, o Options) []Check {
	probes := installed
	if o.Before {
		probes = before
	}
	s := newSurvey(client, o)
	defer s.close()
	out := make([]Check, 0, len(probes))
	for i, p := range probes {
		asked, cancel := context.WithTimeout(ctx, patience)
		a := p.ask(s, asked)
		cancel()
		out = append(out, p.check(a))
		if i == 0 && a.result == Failed { // the API server does not respond
			for _, p := range probes[1:] {
				out = append(out, p.check(skipped("the API server does not answer")))
			}
			return out
		}
	}
	out = append(out, s.objectsOfOtherMeshes(ctx)...)
	out = append(out, s.mistakenPolicies(ctx)...)
	if o.Nodes {
		out = append(out, s.kernels(ctx)...)
	}
	return out
}

// Failures returns the checks that failed.
func Failures(all []Check) []Check {
	return slices.DeleteFunc(slices.Clone(all), func(c Check) bool { return c.Result != Failed })
}

// Blocks reports whether an installation cannot work because this check failed. Checks about single namespaces,
// single nodes, objects of other meshes and policies do not block, because the rest of the mesh works.
func (c Check) Blocks() bool {
	return c.Result == Failed && !slices.Contains([]string{"pod-security", "cni", nodePlugins, kernel.id, otherMeshes.id, policies.id}, c.ID)
}

// A probe is a check that has not been made yet.
type probe struct {
	id, title string
	ask       func(*survey, context.Context) answer
}

func (p probe) check(a answer) Check {
	return Check{ID: p.id, Title: p.title, Result: a.result, Reason: a.reason, Hint: a.hint, Link: Pages + pageOf(p.id)}
}

// before and installed are the checks that are made once for a cluster. Each list begins with the check whether the
// API server responds. The checks that are made for many objects are kernel, otherMeshes, policies and those in
// [topics].
var (
	before = []probe{
		{"api-server", "the API server answers", (*survey).apiServer},
		{"kubernetes-version", "the version of Kubernetes is supported", (*survey).kubernetesVersion},
		{"permissions", "the caller may install", (*survey).rights},
		{"leftovers", "no part of another installation is in the way", (*survey).leftovers},
		{"crds", "the CustomResourceDefinitions that a mesh uses are installed", (*survey).definitions},
		{"pod-security", "namespaces with injection admit injected pods", (*survey).podSecurity},
		{"other-injectors", "no other injector selects the same pods", (*survey).otherInjectors},
		{"cni", "the pods' network does not bypass the capture", (*survey).cni},
		{"clock", "the clocks agree", (*survey).clock},
	}
	installed = []probe{
		{"api-server", "the API server answers", (*survey).apiServer},
		{"kubernetes-version", "the version of Kubernetes is supported", (*survey).kubernetesVersion},
		{"deployment", "the control plane is ready", (*survey).deployment},
		{"replicas", "the replicas have the same version", (*survey).replicas},
		{"crds", "the CustomResourceDefinitions that a mesh uses are installed", (*survey).definitions},
		{"root-certificates", "each namespace has the mesh's roots", (*survey).roots},
		{"webhook-ca", "the API server trusts the webhook's certificate", (*survey).webhookCA},
		{"certificates", "the certificates are valid for long enough", (*survey).certificates},
		{"webhook", "a pod is injected", (*survey).webhook},
		{"pod-security", "namespaces with injection admit injected pods", (*survey).podSecurity},
		{nodePlugins, "the nodes' plugins work", (*survey).nodePlugins},
		{"other-injectors", "no other injector selects the same pods", (*survey).otherInjectors},
		{"cni", "the pods' network does not bypass the capture", (*survey).cni},
		{"clock", "the clocks agree", (*survey).clock},
		{"proxies", "the proxies have the current configuration", (*survey).proxies},
		{"tls", "proxies are called by TLS 1.3", (*survey).tls},
		{"versions", "client, control plane and proxies have the same version", (*survey).versions},
	}
)

// An answer is the result of a probe, with the reason and a hint.
type answer struct {
	result       Result
	reason, hint string
}

func fine(format string, args ...any) answer { return answer{OK, fmt.Sprintf(format, args...), ""} }

// about returns the check of one object, with its answer.
func (p probe) about(object string, a answer) Check {
	c := p.check(a)
	c.Object = object
	return c
}

func skipped(format string, args ...any) answer {
	return answer{Skipped, fmt.Sprintf(format, args...), ""}
}

func warning(hint, format string, args ...any) answer {
	return answer{Warning, fmt.Sprintf(format, args...), hint}
}

func failed(hint, format string, args ...any) answer {
	return answer{Failed, fmt.Sprintf(format, args...), hint}
}

// unknown returns the answer of a probe whose request failed.
func unknown(err error) answer {
	a := skipped("%v", err)
	var p *permissionError
	if errors.As(err, &p) {
		a.hint = "the permission that is missing is named; cluster-admin has all"
	}
	return a
}

// A permissionError means that the caller lacks a permission.
type permissionError struct{ err error }

func (e *permissionError) Error() string { return e.err.Error() }

func (e *permissionError) Unwrap() error { return e.err }

// tried adds a description of the request to an error of the API server, and marks a missing permission.
func tried(what string, err error) error {
	if err == nil {
		return nil
	}
	return marked(fmt.Errorf("%s: %w", what, err))
}

// marked returns a permissionError if the error is about a missing permission. Else it returns the error unchanged.
func marked(err error) error {
	if apierrors.IsForbidden(err) {
		return &permissionError{err}
	}
	return err
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
