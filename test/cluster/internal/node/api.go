package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"outrider.dev/test/cluster/internal/poll"
)

// A client makes the few API requests of a bring-up. Each kubectl call would cost a third of a
// second of processor time.
type client struct {
	http  http.Client
	token string
}

func newClient(c Config) (*client, error) {
	token, err := os.ReadFile(c.PKI("admin.token"))
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(c.PKI("apiserver.crt"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("%s holds no certificate", c.PKI("apiserver.crt"))
	}
	return &client{http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}, string(token)}, nil
}

// await repeats a check until it returns nil.
func (c *client) await(ctx context.Context, question func(*client, context.Context) error) error {
	return poll.Until(ctx, 50*time.Millisecond, func(ctx context.Context) error { return question(c, ctx) })
}

func (c *client) ready(ctx context.Context) error {
	_, err := c.do(ctx, http.MethodGet, "/readyz", "")
	return err
}

func (c *client) hasDefaultAccount(ctx context.Context) error {
	_, err := c.do(ctx, http.MethodGet, "/api/v1/namespaces/default/serviceaccounts/default", "")
	return err
}

// nodeReady returns nil if the node is ready and pods can be scheduled on it: the taint of a new node is
// removed a little later than its condition becomes Ready.
func (c *client) nodeReady(ctx context.Context) error {
	node, err := c.node(ctx)
	if err != nil {
		return err
	}
	for _, t := range node.Spec.Taints {
		return fmt.Errorf("node has taint %s", t.Key)
	}
	return node.ready()
}

// A nodeObject holds the relevant fields of the Node object.
type nodeObject struct {
	Spec   struct{ Taints []struct{ Key string } }
	Status struct {
		Conditions []struct{ Type, Status, Message string }
		NodeInfo   struct{ BootID string }
	}
}

func (c *client) node(ctx context.Context) (node nodeObject, err error) {
	text, err := c.do(ctx, http.MethodGet, "/api/v1/nodes/"+Name, "")
	if err == nil {
		err = json.Unmarshal(text, &node)
	}
	return node, err
}

func (node nodeObject) ready() error {
	for _, cond := range node.Status.Conditions {
		if cond.Type != "Ready" {
			continue
		}
		if cond.Status != "True" {
			return fmt.Errorf("node is not ready: %s", cond.Message)
		}
		return nil
	}
	return fmt.Errorf("node has not reported yet")
}

func (c *client) create(ctx context.Context, o object) error {
	_, err := c.do(ctx, http.MethodPost, o.path, o.yaml)
	return err
}

func (c *client) do(ctx context.Context, method, path, yaml string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, API+path, strings.NewReader(yaml))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/yaml")
	req.Header.Set("Authorization", "Bearer "+c.token)
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	// A conflict means that the object exists already, created by an earlier attempt whose answer was lost.
	if resp.StatusCode >= 300 && resp.StatusCode != http.StatusConflict {
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, text)
	}
	return text, nil
}
