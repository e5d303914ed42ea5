// Package kubenode records on a Node whether Outrider's plugins serve there, by a label and a taint. It
// uses plain HTTP and JSON, because Kubernetes' client library would be larger than the rest of the
// daemon.
package kubenode

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"outrider.dev/internal/base/contract"
)

// AccountDir is the directory in a pod with its service account's token and the API server's root.
const AccountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

const (
	requestTimeout = 10 * time.Second
	maxObject      = 8 << 20
	conflicts      = 10 // attempts to update a Node that others update too
)

// A Client writes one Node.
type Client struct {
	Server    string // https://HOST:PORT
	TokenFile string // read for each request: tokens rotate
	Node      string
	HTTP      *http.Client
}

// InCluster returns a client that uses the service account in dir.
func InCluster(host, port, dir, node string) (*Client, error) {
	if host == "" || port == "" {
		return nil, errors.New("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: outrider-node runs in a pod")
	}
	root, err := os.ReadFile(dir + "/ca.crt")
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(root) {
		return nil, fmt.Errorf("%s/ca.crt has no certificate", dir)
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return &Client{
		Server: "https://" + host + ":" + port, TokenFile: dir + "/token", Node: node,
		HTTP: &http.Client{Timeout: requestTimeout, Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, // an API server of a FIPS build may end there
			IdleConnTimeout: requestTimeout, MaxIdleConns: 1}},
	}, nil
}

// A StatusError is an unsuccessful response.
type StatusError struct {
	What string
	Code int
	Text string
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("%s: the API server answers %d %s", e.What, e.Code, e.Text)
}

// Is reports whether an error is a response with this status.
func Is(err error, code int) bool {
	var s *StatusError
	return errors.As(err, &s) && s.Code == code
}

func (c *Client) do(ctx context.Context, method, path, kind string, body []byte, into any) error {
	what := method + " " + path
	req, err := http.NewRequestWithContext(ctx, method, c.Server+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	token, err := os.ReadFile(c.TokenFile)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	req.Header.Set("Accept", "application/json")
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	res, err := c.HTTP.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxObject))
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if res.StatusCode/100 != 2 {
		var status struct{ Message string }
		_ = json.Unmarshal(text, &status) // not all errors are a Status
		return &StatusError{What: what, Code: res.StatusCode, Text: status.Message}
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// A taint also preserves the fields that this program does not read.
type taint struct {
	raw         json.RawMessage
	key, effect string
}

func (t *taint) UnmarshalJSON(text []byte) error {
	var fields struct{ Key, Effect string }
	if err := json.Unmarshal(text, &fields); err != nil {
		return err
	}
	*t = taint{raw: slices.Clone(text), key: fields.Key, effect: fields.Effect}
	return nil
}

func (t taint) MarshalJSON() ([]byte, error) { return t.raw, nil }

func ours() taint {
	const effect = "NoSchedule"
	return taint{key: contract.NodeTaint, effect: effect, raw: json.RawMessage(fmt.Sprintf(`{"key":%q,"effect":%q}`, contract.NodeTaint, effect))}
}

// labels are the values of our labels on a Node; an absent label is empty.
type labels struct{ node, validator string }

// Serves records that the plugins serve: the Node gets the labels, and the taint is removed. validator
// is one of the values of [contract.NodeValidator].
func (c *Client) Serves(ctx context.Context, validator string) error {
	return c.set(ctx, func(labels) labels { return labels{contract.NodeInstalled, validator} }, false)
}

// ServesNot records that the plugins do not serve: if tainted is set and the Node has the label, it gets the
// taint. A node on which the plugins have never served, because its runtime does not support them, stays open for
// pods that do not need them. The label stays, because a starting kubelet permanently ends pods that its node's
// labels no longer fit (canAdmitPod of kubernetes v1.34.4), and after a reboot it starts before the plugins.
func (c *Client) ServesNot(ctx context.Context, tainted bool) error {
	return c.set(ctx, func(has labels) labels { return has }, tainted)
}

// Left records that there are no plugins: it removes the labels and the taint.
func (c *Client) Left(ctx context.Context) error {
	return c.set(ctx, func(labels) labels { return labels{} }, false)
}

// set sets the taint, and sets the labels to values that are computed from the present ones. The patch requires
// the version that was read, so that it cannot overwrite taints that others add.
func (c *Client) set(ctx context.Context, wanted func(has labels) labels, tainted bool) error {
	path := "/api/v1/nodes/" + url.PathEscape(c.Node)
	var err error
	for range conflicts {
		var node struct {
			Metadata struct {
				ResourceVersion string
				Labels          map[string]string
			}
			Spec struct{ Taints []taint }
		}
		if err := c.do(ctx, http.MethodGet, path, "", nil, &node); err != nil {
			return err
		}
		taints := slices.DeleteFunc(slices.Clone(node.Spec.Taints), func(t taint) bool { return t.key == contract.NodeTaint })
		has := labels{node.Metadata.Labels[contract.NodeLabel], node.Metadata.Labels[contract.NodeValidator]}
		if tainted && has.node != "" {
			taints = append(taints, ours())
		}
		same := slices.EqualFunc(node.Spec.Taints, taints, func(a, b taint) bool { return a.key == b.key && a.effect == b.effect })
		want := wanted(has)
		if same && has == want {
			return nil
		}
		metadata := map[string]any{"resourceVersion": node.Metadata.ResourceVersion,
			"labels": map[string]any{contract.NodeLabel: orNone(want.node), contract.NodeValidator: orNone(want.validator)}}
		patch := map[string]any{"metadata": metadata}
		if !same {
			patch["spec"] = map[string]any{"taints": taints}
		}
		if !same && len(taints) == 0 {
			patch["spec"] = map[string]any{"taints": nil}
		}
		body, failed := json.Marshal(patch)
		if failed != nil {
			return failed
		}
		if err = c.do(ctx, http.MethodPatch, path, "application/merge-patch+json", body, nil); !Is(err, http.StatusConflict) {
			return err
		}
	}
	return err
}

// orNone returns a label's value for a merge patch, in which null removes the label.
func orNone(value string) any {
	if value == "" {
		return nil
	}
	return value
}

func daemonSet(namespace, name string) string {
	return "/apis/apps/v1/namespaces/" + url.PathEscape(namespace) + "/daemonsets/" + url.PathEscape(name)
}

// Leaving reports whether a DaemonSet is deleted, or being deleted, in which case its nodes must be
// restored. A pod that ends for another reason is replaced.
func (c *Client) Leaving(ctx context.Context, namespace, name string) (bool, error) {
	var set struct {
		Metadata struct{ DeletionTimestamp string }
	}
	err := c.do(ctx, http.MethodGet, daemonSet(namespace, name), "", nil, &set)
	if Is(err, http.StatusNotFound) {
		return true, nil
	}
	return set.Metadata.DeletionTimestamp != "", err
}

// Leave deletes a DaemonSet and waits until its pods have ended. They restore their nodes while they
// still have the permission.
func (c *Client) Leave(ctx context.Context, namespace, name string, every time.Duration) error {
	err := c.do(ctx, http.MethodDelete, daemonSet(namespace, name), "application/json", []byte(`{"propagationPolicy":"Foreground"}`), nil)
	for err == nil {
		select {
		case <-ctx.Done():
			return fmt.Errorf("DaemonSet %s/%s is still there: %w; nodes whose pods do not end keep what outrider-node has put there", namespace, name, context.Cause(ctx))
		case <-time.After(every):
		}
		err = c.do(ctx, http.MethodGet, daemonSet(namespace, name), "", nil, nil)
	}
	if Is(err, http.StatusNotFound) {
		return nil
	}
	return err
}
