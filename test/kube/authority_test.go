package kube

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	encoding "encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	api "k8s.io/client-go/tools/clientcmd/api"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/agent/identity"
	"outrider.dev/internal/core/controlplane"
	"outrider.dev/internal/core/controlplane/ca"
	"outrider.dev/internal/core/controlplane/kube"
	"outrider.dev/internal/core/mesh"
	"outrider.dev/internal/core/mesh/build"
	"outrider.dev/internal/ops/kubeclient"
	"outrider.dev/internal/ops/rotate"
	"outrider.dev/test/castore"
	"outrider.dev/test/chart"
	"outrider.dev/test/port"
)

const own = "outrider-system" // outriderd's namespace

// withoutAuthority removes the state that replicas share, now and after the test.
func (w world) withoutAuthority(t *testing.T) {
	t.Helper()
	remove := func() {
		ctx := context.Background()
		for _, name := range []string{contract.AuthoritySecret, contract.SeenRootsSecret, "cacerts"} {
			if err := w.CoreV1().Secrets(own).Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				t.Error(err)
			}
		}
		if err := w.CoreV1().ConfigMaps(own).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: contract.KindLabel}); err != nil {
			t.Error(err)
		}
	}
	remove()
	t.Cleanup(remove)
}

func (w world) secret(t *testing.T, name string) *corev1.Secret {
	t.Helper()
	s, err := w.CoreV1().Secrets(own).Get(t.Context(), name, metav1.GetOptions{})
	must(t, err)
	return s
}

// As stores of the authority's files and of used tokens, the Secret and the ConfigMaps follow the same rules as the
// folder and the file. outriderd needs only the permissions of the chart's roles for them.
func TestTheSecretIsAStore(t *testing.T) {
	w := enterWorld(t)
	w.deployed(t, "{}")
	w.withoutAuthority(t)
	var j journal
	one, two := w.connect(t, &j, outriderd), w.connect(t, &j, outriderd)
	castore.Check(t, one.AuthoritySecret(own, contract.AuthoritySecret), two.AuthoritySecret(own, contract.AuthoritySecret))
	castore.CheckUsed(t, one.UsedTokens(own), two.UsedTokens(own))

	list := func() int {
		t.Helper()
		all, err := w.CoreV1().ConfigMaps(own).List(t.Context(), metav1.ListOptions{LabelSelector: contract.KindLabel})
		must(t, err)
		return len(all.Items)
	}
	had := list()
	declared := func(sum [32]byte) bool { return sum == [32]byte{1} }
	for _, step := range []struct {
		after   time.Duration
		deleted int
	}{{0, 0}, {kube.UsedTokenKept + 2*time.Minute, had - 1}} {
		deleted, err := one.UsedTokens(own).Sweep(t.Context(), declared, time.Now().Add(step.after))
		if err != nil || deleted != step.deleted || list() != had-step.deleted {
			t.Errorf("after %s: %d of %d used tokens deleted, %v; want %d", step.after, deleted, had, err, step.deleted)
		}
	}
	if text := j.String(); strings.Contains(text, "WARN") {
		t.Errorf("the log:\n%s", text)
	}
}

// A replica is a control plane in this process.
type replica struct {
	controlplane.Addresses // valid once the replica serves
	web                    string
	log                    *journal
	ready                  chan controlplane.Addresses
	done                   <-chan struct{} // closed when the replica has stopped
}

// replica starts a replica whose authority is in a Secret. It has outriderd's kubeconfig, which the functions edit
// may change.
func (w world) replica(t *testing.T, secret string, edit ...func(*api.Cluster, *api.AuthInfo)) *replica {
	t.Helper()
	return w.replicaWith(t, secret, func(*controlplane.Options) {}, edit...)
}

// replicaWith starts a replica as [world.replica] does. The function set may change the replica's options.
func (w world) replicaWith(t *testing.T, secret string, set func(*controlplane.Options), edit ...func(*api.Cluster, *api.AuthInfo)) *replica {
	t.Helper()
	as := func(c *api.Cluster, a *api.AuthInfo) {
		for _, e := range append(edit, outriderd) {
			e(c, a)
		}
	}
	r := &replica{web: port.Hold(t).String(), log: &journal{}, ready: make(chan controlplane.Addresses, 1)}
	o := controlplane.Options{
		Cluster: w.connect(t, r.log, as), CASecret: secret, Names: []string{"127.0.0.1"}, Log: r.log.log(), RootSpread: 2 * time.Second,
		Listen: "127.0.0.1:0", HTTP: r.web, WebhookConfiguration: "off", Ready: func(a controlplane.Addresses) { r.ready <- a },
	}
	set(&o)
	r.done = running(t, func(ctx context.Context) error {
		err := controlplane.Run(ctx, o)
		if err != nil {
			r.log.log().Error("the control plane has ended", "error", err)
		}
		return err
	})
	return r
}

// get requests a path of the replica's metrics port, and returns the HTTP status and the body.
func (r *replica) get(t *testing.T, path string) (int, string) {
	request, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+r.web+path, nil)
	must(t, err)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	must(t, err)
	return answer.StatusCode, string(text)
}

// serves waits until the replica serves.
func (r *replica) serves(t *testing.T) *replica {
	t.Helper()
	select {
	case r.Addresses = <-r.ready:
	case <-r.done:
		t.Fatalf("the replica has ended:\n%s", r.log.String())
	case <-time.After(patience):
		t.Fatalf("the replica does not serve within %v:\n%s", patience, r.log.String())
	}
	until(t, "the replica is ready", func() bool { code, _ := r.get(t, "/ready"); return code == http.StatusOK }, r.log.String, r)
	return r
}

// shows reports whether the replica's serving certificate is issued by one of the roots.
func (r *replica) shows(roots []byte) bool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(roots)
	c, err := tls.Dial("tcp", r.Discovery, &tls.Config{RootCAs: pool, ServerName: "127.0.0.1"})
	if err == nil {
		c.Close()
	}
	return err == nil
}

func logs(all ...*replica) func() string {
	return func() string {
		var b strings.Builder
		for i, r := range all {
			fmt.Fprintf(&b, "replica %d:\n%s", i, r.log.String())
		}
		return b.String()
	}
}

// Two replicas that start at the same time use the same root, which one of them creates. They write the Secret again
// if it is deleted. After a rotation of the root, both replicas and the ConfigMap in every namespace have the new root.
func TestReplicasShareTheAuthority(t *testing.T) {
	w := enterWorld(t)
	w.deployed(t, "{}")
	w.withoutAuthority(t)
	w.namespace(t, "sharing", nil)
	one, two := w.replica(t, contract.AuthoritySecret), w.replica(t, contract.AuthoritySecret)
	all := []*replica{one.serves(t), two.serves(t)}
	made := w.secret(t, contract.AuthoritySecret)
	first := made.Data["ca-cert.pem"]
	if names := slices.Sorted(maps.Keys(made.Data)); !slices.Equal(names, []string{"ca-cert.pem", "ca-key.pem", "root-cert.pem", "token-key.pem"}) {
		t.Errorf("the Secret has %v", names)
	}
	if text := logs(all...)(); strings.Contains(text, "WARN") || strings.Contains(text, "ERROR") {
		t.Errorf("warnings of two replicas that start:\n%s", text)
	}
	for i, r := range all {
		if !r.shows(first) { // outriderd logs this connection, which sends no request
			t.Errorf("replica %d has another root than the Secret", i)
		}
	}

	must(t, w.CoreV1().Secrets(own).Delete(t.Context(), contract.AuthoritySecret, metav1.DeleteOptions{}))
	until(t, "the Secret is written back", func() bool {
		s, err := w.CoreV1().Secrets(own).Get(t.Context(), contract.AuthoritySecret, metav1.GetOptions{})
		return err == nil && s.UID != made.UID && maps.EqualFunc(s.Data, made.Data, bytes.Equal)
	}, logs(all...), all...)

	published := func(namespace string, right func(roots string) bool) bool {
		m, err := w.CoreV1().ConfigMaps(namespace).Get(t.Context(), contract.RootConfigMap, metav1.GetOptions{})
		return err == nil && right(m.Data[contract.RootKey])
	}
	w.names(t, contract.AuthoritySecret)
	var j journal
	client := &kubeclient.Client{Core: w.Clientset, Namespace: own, Progress: cli.NewProgress(&j)}
	if got, err := rotate.Run(t.Context(), client, rotate.Published); err != nil || len(got.Roots) != 2 {
		t.Fatalf("rotate = %+v, %v\n%s", got, err, j.String())
	}
	until(t, "two roots in the namespace", func() bool {
		return published("sharing", func(roots string) bool {
			return strings.Contains(roots, string(first)) && strings.Count(roots, "BEGIN") == 2
		})
	}, logs(all...), all...)
	if got, err := rotate.Run(t.Context(), client, rotate.Signs); err != nil || got.Roots[0].State != ca.RootRetiring || got.Roots[1].State != ca.RootSigns {
		t.Errorf("rotate until the next root signs = %+v, %v\n%s", got, err, j.String())
	}
	var next []byte
	until(t, "the next root signs", func() bool {
		next = w.secret(t, contract.AuthoritySecret).Data["ca-cert.pem"]
		return !bytes.Equal(next, first) && one.shows(next) && two.shows(next) && !one.shows(first) && !two.shows(first)
	}, logs(all...), all...)
	if !published("sharing", func(roots string) bool {
		return strings.Contains(roots, string(first)) && strings.Contains(roots, string(next))
	}) {
		t.Error("the old root, of which there are certificates, is not published any more")
	}
	if n := strings.Count(logs(all...)(), "rotation of the root: "); n != 2 {
		t.Errorf("%d steps of the rotation were done, want each once", n)
	}
}

// names creates outriderd's Deployment without replicas. The Deployment names a Secret for the authority.
func (w world) names(t *testing.T, secret string) {
	t.Helper()
	text, err := chart.Manifest("{pilot: {replicaCount: 0}, authority: {secretName: " + secret + "}}")
	must(t, err)
	for _, document := range strings.Split(text, "\n---\n") {
		if strings.Contains(document, "\nkind: Deployment\n") {
			apply(t, document)
			t.Cleanup(func() {
				w.AppsV1().Deployments(own).Delete(context.Background(), "outriderd", metav1.DeleteOptions{})
			})
		}
	}
}

// A replica does not write a Secret that Outrider has not made, and waits until it is removed.
func TestASecretThatIsNotOurs(t *testing.T) {
	w := enterWorld(t)
	w.deployed(t, "{}")
	w.withoutAuthority(t)
	apply(t, `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: cacerts, namespace: outrider-system}
rules:
- {apiGroups: [""], resources: [secrets], resourceNames: [cacerts], verbs: [get, list, watch]}
- {apiGroups: [""], resources: [secrets], resourceNames: [outrider-seen-roots], verbs: [get, update]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: cacerts, namespace: outrider-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: cacerts}
subjects: [{kind: ServiceAccount, name: outriderd, namespace: outrider-system}]
`)
	t.Cleanup(func() {
		w.RbacV1().RoleBindings(own).Delete(context.Background(), "cacerts", metav1.DeleteOptions{})
		w.RbacV1().Roles(own).Delete(context.Background(), "cacerts", metav1.DeleteOptions{})
	})
	dir := ca.Directory(t.TempDir())
	_, err := ca.NewAuthority(t.Context(), ca.AuthorityOptions{Store: dir})
	must(t, err)
	files, err := dir.Read(t.Context())
	must(t, err)
	managed := map[string][]byte{"tls.crt": files.Files["ca-cert.pem"], "tls.key": files.Files["ca-key.pem"], "ca.crt": files.Files["root-cert.pem"]}
	for what, tt := range map[string]struct {
		name    string
		data    map[string][]byte
		waiting string
	}{
		"Istio's cacerts":                    {"cacerts", files.Files, "authority: the Secret outrider-system/cacerts/ca-cert.pem: there is no such file"},
		"cert-manager's":                     {"cacerts", managed, "authority: the Secret outrider-system/cacerts/ca-cert.pem: there is no such file"},
		"one of our name, without our label": {contract.AuthoritySecret, files.Files, "authority: the Secret outrider-system/outrider-ca/ca-cert.pem: there is no such file"},
	} {
		t.Run(what, func(t *testing.T) {
			w.withoutAuthority(t)
			secrets := w.CoreV1().Secrets(own)
			if tt.name == contract.AuthoritySecret {
				_, err := secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: tt.name}}, metav1.CreateOptions{})
				must(t, err)
			}
			r := w.replica(t, tt.name)
			until(t, "readiness says what is missing", func() bool {
				code, text := r.get(t, "/ready")
				return code == http.StatusServiceUnavailable && strings.Contains(text, tt.waiting)
			}, r.log.String, r)
			if code, text := r.get(t, "/live"); code != http.StatusOK {
				t.Errorf("/live: %d, %s", code, text)
			}
			given := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: tt.name}, Data: tt.data}
			if tt.name == contract.AuthoritySecret {
				_, err = secrets.Update(t.Context(), given, metav1.UpdateOptions{})
			} else {
				_, err = secrets.Create(t.Context(), given, metav1.CreateOptions{})
			}
			must(t, err)
			version := w.secret(t, tt.name).ResourceVersion
			if !r.serves(t).shows(files.Files["root-cert.pem"]) {
				t.Error("it has another root than the Secret")
			}
			var j journal
			store := w.connect(t, &j, outriderd).AuthoritySecret(own, tt.name)
			if _, err := ca.RequestRotation(t.Context(), store, time.Now()); err == nil || !strings.Contains(err.Error(), "only a root that outriderd made") {
				t.Errorf("RequestRotation = %v", err)
			}
			if s := w.secret(t, tt.name); s.ResourceVersion != version {
				t.Errorf("the Secret was written by %v", s.ManagedFields)
			}
			must(t, secrets.Delete(t.Context(), tt.name, metav1.DeleteOptions{}))
			until(t, "the log has that it is gone", func() bool { return strings.Contains(r.log.String(), "the authority stays as it was") }, r.log.String, r)
			if _, err := secrets.Get(t.Context(), tt.name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("it is written back: %v", err)
			}
			if !r.shows(files.Files["root-cert.pem"]) {
				t.Error("without the Secret it does not go on")
			}
		})
	}
}

// A machine's token can be used once, at any replica. A replica accepts tokens that another replica has made.
func TestATokenIsUsedOnceAmongReplicas(t *testing.T) {
	w := enterWorld(t)
	w.deployed(t, "{}")
	w.withoutAuthority(t)
	apply(t, hosts(t))
	t.Cleanup(w.undefine("hosts.outrider.dev"))
	w.namespace(t, "machines", nil)
	sum := sha256.Sum256([]byte("once"))
	apply(t, fmt.Sprintf("{apiVersion: outrider.dev/v1, kind: Host, metadata: {name: vm-1, namespace: machines}, spec: {address: 192.0.2.1, serviceAccount: app, tokenSHA256: %x}}", sum))
	all := []*replica{w.replica(t, contract.AuthoritySecret).serves(t), w.replica(t, contract.AuthoritySecret).serves(t)}
	dir := t.TempDir()
	client := identity.Client{RootFile: filepath.Join(dir, "root"), TokenFile: filepath.Join(dir, "token")}
	must(t, os.WriteFile(client.RootFile, w.secret(t, contract.AuthoritySecret).Data["root-cert.pem"], 0o600))
	request := func(at *replica, token string, csr []byte) *identity.Fault {
		t.Helper()
		must(t, os.WriteFile(client.TokenFile, []byte(token), 0o600))
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		c := client
		c.Address = at.Discovery
		_, err := c.CreateCertificate(ctx, identity.Call{CSR: csr})
		var f *identity.Fault
		if err != nil && !errors.As(err, &f) {
			t.Fatal(err)
		}
		return f
	}
	_, mine := newCSR(t)
	_, another := newCSR(t)
	until(t, "the first certificate", func() bool { return request(all[0], "once", mine) == nil }, logs(all...), all...)
	if f := request(all[1], "once", another); f == nil || f.Kind != identity.Rejected || !strings.Contains(f.Error(), "was used already") {
		t.Errorf("another key at the other replica: %v, want a refusal", f)
	}
	if f := request(all[1], "once", mine); f != nil {
		t.Errorf("the same key at the other replica, as after a lost response: %v", f)
	}
	name := contract.UsedTokenPrefix + fmt.Sprintf("%x", sum)
	if _, err := w.CoreV1().ConfigMaps(own).Get(t.Context(), name, metav1.GetOptions{}); err != nil {
		t.Error(err)
	}

	var j journal
	authority, err := ca.NewAuthority(t.Context(), ca.AuthorityOptions{Store: w.connect(t, &j, outriderd).AuthoritySecret(own, contract.AuthoritySecret), StoreTokenKey: true})
	must(t, err)
	token, err := authority.Tokens().Issue(ca.Claim{Namespace: "machines", ServiceAccount: "app"}, time.Now())
	must(t, err)
	for i, r := range all {
		if f := request(r, token, mine); f != nil {
			t.Errorf("a token of outriderd token, at replica %d: %v", i, f)
		}
	}
}

func newCSR(t *testing.T) (*ecdsa.PrivateKey, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	must(t, err)
	return key, encoding.EncodeToMemory(&encoding.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

// outriderd needs each permission of the Role in its namespace, and no other permission there. If one is missing, the
// error names it.
func TestTheRoleInTheNamespaceIsEnoughAndNotMore(t *testing.T) {
	w := enterWorld(t)
	w.deployed(t, "{}")
	role, err := w.RbacV1().Roles(own).Get(t.Context(), "outriderd", metav1.GetOptions{})
	must(t, err)
	var rules []rbac.PolicyRule
	for _, rule := range role.Rules {
		for _, verb := range rule.Verbs {
			one := rule
			one.Verbs = []string{verb}
			rules = append(rules, one)
		}
	}
	if len(rules) != 12 {
		t.Fatalf("%d rules: %v", len(rules), rules)
	}
	// try performs all of outriderd's operations on the Secret and the ConfigMaps.
	try := func(t *testing.T, account, want string) string {
		t.Helper()
		w.withoutAuthority(t)
		var j journal
		c := w.connect(t, &j, as(own, account))
		note := func(err error) {
			if err != nil {
				j.log().Warn(err.Error())
			}
		}
		store := c.AuthoritySecret(own, contract.AuthoritySecret)
		seen := make(chan struct{}, 1)
		stop := store.Watch(func() {
			select {
			case seen <- struct{}{}:
			default:
			}
		})
		defer stop()
		_, err := ca.NewAuthority(t.Context(), ca.AuthorityOptions{Store: store})
		note(err)
		_, err = ca.RequestRotation(t.Context(), store, time.Now())
		note(err)
		w.CoordinationV1().Leases(own).Delete(t.Context(), contract.RouteStatusLease, metav1.DeleteOptions{})
		ctx, cancel := context.WithCancel(t.Context())
		released := make(chan struct{})
		go func() { defer close(released); c.RouteStatus(own, noMesh{}, "ignored").Run(ctx) }()
		defer func() { cancel(); <-released }()
		used := c.UsedTokens(own)
		for range 2 {
			_, err = used.Use(t.Context(), [32]byte{9}, [32]byte{9}, time.Now())
			note(err)
		}
		_, err = used.Sweep(t.Context(), func([32]byte) bool { return false }, time.Now().Add(2*kube.UsedTokenKept))
		note(err)
		text := func() string { return j.String() + strings.Join(c.Trouble(), "\n") }
		until(t, want, func() bool { return strings.Contains(text(), want) && (want != "" || len(seen) > 0) }, text)
		return text()
	}
	account := func(i int) string { return fmt.Sprintf("shared-%d", i) }
	for i := range len(rules) + 1 { // each try lacks one rule, and the last one has all
		w.mayHere(t, account(i), slices.Concat(rules[:min(i, len(rules))], rules[min(i+1, len(rules)):]))
	}
	until(t, "the roles", func() bool {
		return !strings.Contains(try(t, account(len(rules)), ""), "cannot")
	}, nothing)
	for i, rule := range rules {
		t.Run(rule.Verbs[0]+" "+rule.Resources[0]+" "+strings.Join(rule.ResourceNames, ""), func(t *testing.T) {
			want := fmt.Sprintf("cannot %s resource %q in API group", rule.Verbs[0], rule.Resources[0])
			if text := strings.ReplaceAll(try(t, account(i), want), want, ""); strings.Contains(text, "cannot") {
				t.Errorf("something else is missing too:\n%s", text)
			}
		})
	}
}

// noMesh is a mesh without services.
type noMesh struct{}

func (noMesh) Current() (*mesh.Mesh, <-chan struct{}) {
	return build.New(mesh.Config{}).Mesh(), nil
}

func (noMesh) Synced() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// mayHere grants rules to a service account in outriderd's namespace, by a Role in that namespace.
func (w world) mayHere(t *testing.T, account string, rules []rbac.PolicyRule) {
	t.Helper()
	meta := metav1.ObjectMeta{Name: account, Namespace: own}
	_, err := w.RbacV1().Roles(own).Create(t.Context(), &rbac.Role{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
	must(t, err)
	_, err = w.RbacV1().RoleBindings(own).Create(t.Context(), &rbac.RoleBinding{ObjectMeta: meta,
		RoleRef:  rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "Role", Name: account},
		Subjects: []rbac.Subject{{Kind: rbac.ServiceAccountKind, Namespace: own, Name: account}},
	}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		w.RbacV1().RoleBindings(own).Delete(context.Background(), account, metav1.DeleteOptions{})
		w.RbacV1().Roles(own).Delete(context.Background(), account, metav1.DeleteOptions{})
	})
}
