package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A testCase is one row: where it asks, and the pod of the n-th review.
type testCase struct {
	name string
	path string
	pod  func(n int64) string
	has  string // in each answer
}

// A pod is one at admission: its fields have their defaults, and the volume of its token has
// a random name.
type pod struct {
	metadata string // its first fields
	token    int64  // the random name
}

func (p pod) String() string {
	return `{"kind":"Pod","apiVersion":"v1","metadata":{` + p.metadata + `"labels":{"app":"shop","pod-template-hash":"6d4cf56db6"},"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"shop-6d4cf56db6","uid":"0b1c2d3e-0000-4000-8000-000000000001","controller":true,"blockOwnerDeletion":true}]},` +
		fmt.Sprintf(`"spec":{"volumes":[{"name":"kube-api-access-%05d",`, p.token%100000) + `"projected":{"sources":[{"serviceAccountToken":{"expirationSeconds":3607,"path":"token"}},{"configMap":{"name":"kube-root-ca.crt","items":[{"key":"ca.crt","path":"ca.crt"}]}},{"downwardAPI":{"items":[{"path":"namespace","fieldRef":{"apiVersion":"v1","fieldPath":"metadata.namespace"}}]}}],"defaultMode":420}}],` +
		`"containers":[{"name":"app","image":"shop:1","command":["/app"],"ports":[{"name":"http","containerPort":8080,"protocol":"TCP"}],"env":[{"name":"A","value":"1"},{"name":"B","value":"2"}],"resources":{"limits":{"memory":"256Mi"},"requests":{"cpu":"100m","memory":"128Mi"}},` +
		fmt.Sprintf(`"volumeMounts":[{"name":"kube-api-access-%05d",`, p.token%100000) + `"readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}],"readinessProbe":{"httpGet":{"path":"/ready","port":8080,"scheme":"HTTP"},"timeoutSeconds":1,"periodSeconds":10,"successThreshold":1,"failureThreshold":3},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent"}],` +
		`"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","serviceAccountName":"shop","serviceAccount":"shop","securityContext":{},"schedulerName":"default-scheduler","tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}],"priority":0,"enableServiceLinks":true,"preemptionPolicy":"PreemptLowerPriority"},"status":{}}`
}

const generated = `"generateName":"shop-6d4cf56db6-",`

func wanted(n int64) string { return pod{metadata: generated, token: n}.String() }

func unwanted(n int64) string {
	return pod{metadata: generated + `"annotations":{"sidecar.istio.io/inject":"false"},`, token: n}.String()
}

var cases = []testCase{
	{"the server without work", "/without-work", wanted, `"allowed":true`},
	{"the same, with an answer as long", "/without-work?long", wanted, `"allowed":true`},
	{"pods that are injected", "/inject", wanted, `"patchType":"JSONPatch"`},
	{"pods that are not", "/inject", unwanted, `asked-not-to`},
}

func body(n int64, pod string) []byte {
	return fmt.Appendf(nil, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"0b1c2d3e-0000-4000-8000-%012d","kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},`+
		`"requestKind":{"group":"","version":"v1","kind":"Pod"},"requestResource":{"group":"","version":"v1","resource":"pods"},"namespace":"shop","operation":"CREATE","userInfo":{"username":"system:serviceaccount:kube-system:replicaset-controller","groups":["system:serviceaccounts","system:authenticated"]},`+
		`"object":%s,"oldObject":null,"dryRun":false,"options":{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1"}}}`, n, pod)
}

func measureAll(d time.Duration, clients int, profile string) ([]row, error) {
	server, err := start()
	if err != nil {
		return nil, err
	}
	defer server.end()
	var rows []row
	for i, c := range cases {
		stop := func() error { return nil }
		if profile != "" {
			stop = server.profile(filepath.Join(profile, fmt.Sprintf("webhook-%d.pprof", i)), d)
		}
		r, err := measure(server, c, d, clients)
		if err := errors.Join(err, stop()); err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// measure asks for so long, after a moment that does not count.
func measure(server *child, c testCase, d time.Duration, clients int) (row, error) {
	client := server.client(clients)
	defer client.CloseIdleConnections()
	var next atomic.Int64
	round := func(ctx context.Context) ([]time.Duration, error) {
		took, failed := make([][]time.Duration, clients), make([]error, clients)
		var wg sync.WaitGroup
		for i := range clients {
			wg.Go(func() {
				for ctx.Err() == nil && failed[i] == nil {
					n := next.Add(1)
					question := body(n, c.pod(n))
					began := time.Now()
					failed[i] = ask(client, "https://"+server.Address+c.path, question, c.has)
					took[i] = append(took[i], time.Since(began))
				}
			})
		}
		wg.Wait()
		return slices.Concat(took...), errors.Join(failed...)
	}
	for _, length := range []time.Duration{d / 4, d} {
		ctx, cancel := context.WithTimeout(context.Background(), length)
		before, began := server.spent(), time.Now()
		times, err := round(ctx)
		cancel()
		if err != nil {
			return row{}, err
		}
		if length < d {
			continue
		}
		spent, wall := server.spent()-before, time.Since(began)
		slices.Sort(times)
		us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
		n := len(times)
		return row{c.name, n, float64(n) / wall.Seconds(), us(times[n/2]), us(times[n*99/100]), us(spent) / float64(n), float64(n) / spent.Seconds()}, nil
	}
	return row{}, errors.New("nothing was measured")
}

func (c *child) client(connections int) *http.Client {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(c.Bundle)
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: pool, ServerName: "localhost", NextProtos: []string{"http/1.1"}},
		MaxIdleConnsPerHost: connections,
	}}
}

func ask(client *http.Client, url string, question []byte, has string) error {
	r, err := client.Post(url, "application/json", bytes.NewReader(question))
	if err != nil {
		return err
	}
	defer r.Body.Close()
	answer, err := io.ReadAll(r.Body)
	if err == nil && (r.StatusCode != http.StatusOK || !bytes.Contains(answer, []byte(has))) {
		err = fmt.Errorf("status %d, %.300s: want %s in it", r.StatusCode, answer, has)
	}
	return err
}

// profile keeps what the server does for so long; the function that it returns waits.
func (c *child) profile(file string, d time.Duration) func() error {
	done := make(chan error, 1)
	go func() {
		r, err := c.client(1).Get(fmt.Sprintf("https://%s/profile?seconds=%d", c.Address, int(d.Seconds())))
		if err != nil {
			done <- err
			return
		}
		defer r.Body.Close()
		raw, err := io.ReadAll(r.Body)
		if err == nil {
			err = os.WriteFile(file, raw, 0o644)
		}
		done <- err
	}()
	return func() error { return <-done }
}
