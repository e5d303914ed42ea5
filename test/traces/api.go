package traces

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// An api is the few requests that a recording makes of the API server. kubectl
// would take a third of a second of processor time for each.
type api struct {
	http   http.Client
	server string
}

const pods = "/api/v1/namespaces/default/pods"

func newAPI(kubeconfig string) (*api, error) {
	text, err := os.ReadFile(kubeconfig)
	if err != nil {
		return nil, err
	}
	var c struct {
		Clusters []struct {
			Cluster struct {
				Server string
				CA     []byte `json:"certificate-authority-data"`
			}
		}
		Users []struct {
			User struct {
				Cert []byte `json:"client-certificate-data"`
				Key  []byte `json:"client-key-data"`
			}
		}
	}
	if err := yaml.Unmarshal(text, &c); err != nil {
		return nil, fmt.Errorf("%s: %w", kubeconfig, err)
	}
	if len(c.Clusters) != 1 || len(c.Users) != 1 {
		return nil, fmt.Errorf("%s: wants one cluster and one user", kubeconfig)
	}
	pair, err := tls.X509KeyPair(c.Users[0].User.Cert, c.Users[0].User.Key)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kubeconfig, err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.Clusters[0].Cluster.CA)
	return &api{
		server: c.Clusters[0].Cluster.Server,
		http: http.Client{Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}},
		}},
	}, nil
}

func (a *api) do(ctx context.Context, method, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, a.server+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := a.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, text)
	}
	return json.Unmarshal(text, out)
}

func (a *api) create(ctx context.Context, pod corev1.Pod) (corev1.Pod, error) {
	var made corev1.Pod
	return made, a.do(ctx, http.MethodPost, pods, pod, &made)
}

// delete asks for the end of a pod, with its own grace period or at once.
func (a *api) delete(ctx context.Context, name string, atOnce bool) error {
	options := map[string]any{}
	if atOnce {
		options["gracePeriodSeconds"] = 0
	}
	var ignored json.RawMessage
	return a.do(ctx, http.MethodDelete, pods+"/"+name, options, &ignored)
}

// watch calls seen for each object that is made, changed or gone, until ctx ends.
func (a *api) watch(ctx context.Context, path string, seen func(kind string, object json.RawMessage)) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.server+path+"?watch=1", nil)
	if err != nil {
		return err
	}
	resp, err := a.http.Do(req)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return fmt.Errorf("GET %s: %s", path, resp.Status)
	}
	go func() {
		defer resp.Body.Close()
		for from := json.NewDecoder(resp.Body); ; {
			var e struct {
				Type   string
				Object json.RawMessage
			}
			if from.Decode(&e) != nil {
				return
			}
			seen(e.Type, e.Object)
		}
	}()
	return nil
}
