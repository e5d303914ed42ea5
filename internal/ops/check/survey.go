package check

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	admission "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/pod/inject/settings"
	"outrider.dev/internal/ops/installation"
	"outrider.dev/internal/ops/kubeclient"
	"outrider.dev/internal/ops/replicas"
)

// A survey makes the requests of all probes. It caches the responses, so that each request is made at most once.
type survey struct {
	*kubeclient.Client
	Options

	namespaces     asked[[]corev1.Namespace]
	configurations asked[[]admission.MutatingWebhookConfiguration]
	deployments    asked[[]appsv1.Deployment]
	replicaPods    asked[[]corev1.Pod]
	replicaSet     *replicas.Set
	meshed         asked[[]corev1.Pod]
	rootMaps       asked[map[string]string] // roots by namespace
	server         asked[serverAnswer]
	sample         asked[*corev1.Pod] // an injected pod, created as a dry run
	nodes          asked[[]corev1.Node]

	logs func(ctx context.Context, namespace, pod string) ([]byte, error) // reads the log of a pod with one container
}

// asked caches the result of a request.
type asked[T any] struct {
	done  bool
	value T
	err   error
}

func (a *asked[T]) get(ask func() (T, error)) (T, error) {
	if !a.done {
		a.value, a.err = ask()
		a.done = true
	}
	return a.value, a.err
}

func newSurvey(client *kubeclient.Client, o Options) *survey {
	s := &survey{Client: client, Options: o, replicaSet: replicas.In(client, o.Namespace)}
	s.logs = func(ctx context.Context, namespace, pod string) ([]byte, error) {
		limit := int64(1 << 16)
		return client.Core.CoreV1().Pods(namespace).GetLogs(pod, &corev1.PodLogOptions{LimitBytes: &limit}).DoRaw(ctx)
	}
	return s
}

// close ends the forwarded ports.
func (s *survey) close() { s.replicaSet.Close() }

// A serverAnswer is the API server's response to GET /version, with its time.
type serverAnswer struct {
	version string
	date    time.Time // the server's clock, in whole seconds
	local   time.Time // this machine's clock in the middle of the request
}

// askServer requests /version, which every caller may read.
func (s *survey) askServer(ctx context.Context) (serverAnswer, error) {
	return s.server.get(func() (out serverAnswer, err error) {
		client, err := rest.HTTPClientFor(s.Config)
		if err != nil {
			return out, err
		}
		base, _, err := rest.DefaultServerUrlFor(s.Config)
		if err != nil {
			return out, err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, base.JoinPath("/version").String(), nil)
		if err != nil {
			return out, err
		}
		from := time.Now()
		res, err := client.Do(req)
		if err != nil {
			return out, err
		}
		res.Body.Close()
		out.local = from.Add(time.Since(from) / 2)
		out.date, _ = http.ParseTime(res.Header.Get("Date")) // zero if a proxy has removed the header
		if version, err := s.Core.Discovery().ServerVersion(); err == nil {
			out.version = version.GitVersion
			return out, nil
		}
		return out, fmt.Errorf("GET /version: %s", res.Status)
	})
}

func (s *survey) allNamespaces(ctx context.Context) ([]corev1.Namespace, error) {
	return s.namespaces.get(func() ([]corev1.Namespace, error) {
		l, err := s.Core.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, tried("listing namespaces", err)
		}
		return slices.DeleteFunc(l.Items, func(n corev1.Namespace) bool { return n.DeletionTimestamp != nil }), nil
	})
}

func (s *survey) allNodes(ctx context.Context) ([]corev1.Node, error) {
	return s.nodes.get(func() ([]corev1.Node, error) {
		l, err := s.Core.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, tried("listing nodes", err)
		}
		return l.Items, nil
	})
}

func (s *survey) allConfigurations(ctx context.Context) ([]admission.MutatingWebhookConfiguration, error) {
	return s.configurations.get(func() ([]admission.MutatingWebhookConfiguration, error) {
		l, err := s.Core.AdmissionregistrationV1().MutatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, tried("listing webhook configurations", err)
		}
		return l.Items, nil
	})
}

// ourConfigurations returns the webhook configurations that send pods to this control plane.
func (s *survey) ourConfigurations(ctx context.Context) ([]admission.MutatingWebhookConfiguration, error) {
	all, err := s.allConfigurations(ctx)
	return installation.Injectors(all, s.Options.Namespace), err
}

const selector = replicas.Selector

func (s *survey) allDeployments(ctx context.Context) ([]appsv1.Deployment, error) {
	return s.deployments.get(func() ([]appsv1.Deployment, error) {
		l, err := s.Core.AppsV1().Deployments(s.Options.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return nil, tried("listing deployments in "+s.Options.Namespace, err)
		}
		return l.Items, nil
	})
}

// allReplicas returns the running pods of the control plane.
func (s *survey) allReplicas(ctx context.Context) ([]corev1.Pod, error) {
	return s.replicaPods.get(func() ([]corev1.Pod, error) {
		pods, err := s.replicaSet.Pods(ctx)
		return pods, marked(err)
	})
}

// meshedPods returns the pods with our proxy that have not ended.
func (s *survey) meshedPods(ctx context.Context) ([]corev1.Pod, error) {
	return s.meshed.get(func() ([]corev1.Pod, error) {
		pods, err := kubeclient.Meshed(ctx, s.Core, metav1.NamespaceAll, "")
		return pods, marked(err)
	})
}

// allRoots returns the roots in each namespace that has them.
func (s *survey) allRoots(ctx context.Context) (map[string]string, error) {
	return s.rootMaps.get(func() (map[string]string, error) {
		l, err := s.Core.CoreV1().ConfigMaps(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + contract.RootConfigMap})
		if err != nil {
			return nil, tried("listing the ConfigMaps "+contract.RootConfigMap, err)
		}
		out := map[string]string{}
		for _, m := range l.Items {
			if m.Name == contract.RootConfigMap { // a fake API server ignores the selector
				out[m.Namespace] = m.Data[contract.RootKey]
			}
		}
		return out, nil
	})
}

// forward forwards a port of a replica until the survey is closed, and returns the local address.
func (s *survey) forward(ctx context.Context, pod string, port int) (string, error) {
	address, err := s.replicaSet.Address(ctx, pod, port)
	return address, tried("asking the control plane", err)
}

// monitoring returns a local address from which a replica's HTTP server is reached.
func (s *survey) monitoring(ctx context.Context, pod string) (string, error) {
	address, err := s.replicaSet.Monitoring(ctx, pod)
	return address, tried("asking the control plane", err)
}

// certificatesOf parses certificates in PEM. It fails if there is none.
func certificatesOf(text string) (out []*x509.Certificate, err error) {
	for rest := []byte(text); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			if strings.TrimSpace(string(rest)) != "" || len(out) == 0 {
				return nil, fmt.Errorf("it has no certificate in PEM")
			}
			return out, nil
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
}

// values returns the injection settings of the release.
func (s *survey) values() (values settings.Values, err error) {
	for _, o := range s.Release.Objects {
		data, _ := o.Object["data"].(map[string]any)
		text, is := data["values.yaml"].(string)
		if o.GetKind() == "ConfigMap" && is && strings.HasSuffix(o.GetName(), "-injection") {
			values, _, err = settings.ParseValues([]byte(text))
			return values, err
		}
	}
	return values, nil
}
