package webhook

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// admitted is a pod as the API server sends it, with default values and with a volume for the token of its
// service account.
const admitted = `{
metadata: {generateName: shop-6d4cf56db6-, LABELS, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: shop-6d4cf56db6, uid: 0b1c2d3e, controller: true}]},
spec: {volumes: [{name: kube-api-access-x7k2p, projected: {defaultMode: 420, sources: [{serviceAccountToken: {expirationSeconds: 3607, path: token}},
    {configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}}, {downwardAPI: {items: [{path: namespace, fieldRef: {apiVersion: v1, fieldPath: metadata.namespace}}]}}]}}],
  containers: [{name: app, image: "shop:1", command: [/app], ports: [{name: http, containerPort: 8080, protocol: TCP}], env: [{name: A, value: "1"}, {name: B, value: "2"}],
    resources: {limits: {memory: 256Mi}, requests: {cpu: 100m, memory: 128Mi}}, volumeMounts: [{name: kube-api-access-x7k2p, readOnly: true, mountPath: /var/run/secrets/kubernetes.io/serviceaccount}],
    readinessProbe: {httpGet: {path: /ready, port: 8080, scheme: HTTP}, timeoutSeconds: 1, periodSeconds: 10, successThreshold: 1, failureThreshold: 3},
    terminationMessagePath: /dev/termination-log, terminationMessagePolicy: File, imagePullPolicy: IfNotPresent}],
  restartPolicy: Always, terminationGracePeriodSeconds: 30, dnsPolicy: ClusterFirst, serviceAccountName: shop, securityContext: {}, schedulerName: default-scheduler,
  tolerations: [{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 300}], priority: 0, enableServiceLinks: true}}`

// For the cost per processor, run it with -cpu 1. The cases "handler" run the webhook only. The cases "https"
// include client and server; one of them has a server that does nothing, for comparison.
func BenchmarkReview(b *testing.B) {
	body := func(labels string) []byte {
		return reviewOf("u1", "shop", podJSON(b, strings.Replace(admitted, "LABELS", "labels: "+labels, 1)))
	}
	injected, declined := body("{app: shop}"), body(`{app: shop, sidecar.istio.io/inject: "false"}`)
	w := New(Options{Namespaces: enabled})
	for name, review := range map[string][]byte{"handler, injected": injected, "handler, declined": declined} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, _, err := w.review(b.Context(), &place{}, review, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	answer := handled(b, w, injected).body
	idle := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		send(rw, http.StatusOK, answer)
	}))
	defer idle.Close()
	a := authority(b, b.TempDir())
	for _, bb := range []struct {
		name, url string
		client    *http.Client
	}{
		{"https, without work", idle.URL, idle.Client()},
		{"https, injected", "https://" + serve(b, w, a) + Path, client(b, a.RootsPEM(), "http/1.1")},
	} {
		b.Run(bb.name, func(b *testing.B) {
			for b.Loop() {
				r, err := bb.client.Post(bb.url, "application/json", bytes.NewReader(injected))
				if err != nil {
					b.Fatal(err)
				}
				io.Copy(io.Discard, r.Body)
				r.Body.Close()
			}
		})
	}
}
