// Package check answers whether a cluster is ready for Outrider, and whether an installed
// Outrider works there.
//
// [Run] asks the API server and the control plane, and changes nothing: pods are created as a
// dry run, unless [Options.Nodes] requests some. A check claims only what an answer shows. What could not be asked, because of a
// missing permission or an unreachable pod, is [Skipped] with the reason.
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

// The results.
const (
	OK      Result = "ok"
	Warning Result = "warning" // it works, and something should be done
	Failed  Result = "failed"  // it does not work, for at least some pods
	Skipped Result = "skipped" // not known: the reason says what could not be asked
)

// A Check is one with its outcome.
type Check struct {
	ID     string `json:"id"` // stable
	Title  string `json:"title"`
	Object string `json:"object,omitempty"` // of which there are several: NAMESPACE/POD, or a kind of nodes
	Result Result `json:"result"`
	Reason string `json:"reason"`
	Hint   string `json:"hint,omitempty"`
	Link   string `json:"link"` // of the page that explains it
}

// Pages is where the pages about the checks are.
const Pages = "https://outrider.dev/docs/"

// Options of the checks.
type Options struct {
	Namespace string // the control plane's
	Version   string // of this command
	Before    bool   // whether Outrider could be installed, and not whether it works
	Release   installation.Release

	Nodes          bool   // whether to try capture, by a pod on a node of each kind
	NodesNamespace string // of these pods; default: Namespace if it exists, else "default"
}

// patience bounds a single check. The API server itself waits for a webhook for 10 s.
const patience = 30 * time.Second

// Run makes all checks, in order.
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
		if i == 0 && a.result == Failed { // no answer from the API server
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

// Blocks reports whether an installation could not work because of it. Namespaces in which pods
// are refused are a matter of their own, and so are single nodes, other meshes' objects and policies.
func (c Check) Blocks() bool {
	return c.Result == Failed && !slices.Contains([]string{"pod-security", "cni", nodePlugins, kernel.id, otherMeshes.id, policies.id}, c.ID)
}

// A probe is a question and its name.
type probe struct {
	id, title string
	ask       func(*survey, context.Context) answer
}

func (p probe) check(a answer) Check {
	return Check{ID: p.id, Title: p.title, Result: a.result, Reason: a.reason, Hint: a.hint, Link: Pages + pageOf(p.id)}
}

// before and installed are the checks of a cluster as a whole. The first asks whether the API
// server answers. Those of many objects are kernel, otherMeshes, policies, and each in [topics].
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
		{"versions", "client, control plane and proxies have the same version", (*survey).versions},
	}
)

// An answer is a probe's result with its reason.
type answer struct {
	result       Result
	reason, hint string
}

func fine(format string, args ...any) answer { return answer{OK, fmt.Sprintf(format, args...), ""} }

// about is an answer of a check that has many objects.
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

// unknown is the answer of a probe that could not ask what it needs.
func unknown(err error) answer {
	a := skipped("%v", err)
	var p *permissionError
	if errors.As(err, &p) {
		a.hint = "the permission that is missing is named; cluster-admin has all"
	}
	return a
}

// A permissionError is an answer that the caller may not have.
type permissionError struct{ err error }

func (e *permissionError) Error() string { return e.err.Error() }

func (e *permissionError) Unwrap() error { return e.err }

// tried adds what was asked to an error of the API server.
func tried(what string, err error) error {
	if err == nil {
		return nil
	}
	return marked(fmt.Errorf("%s: %w", what, err))
}

// marked marks an error for a permission that is missing.
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
