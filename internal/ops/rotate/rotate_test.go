package rotate

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"maps"
	"math/big"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/wire"
	"outrider.dev/internal/core/controlplane/ca"
	"outrider.dev/internal/ops/kubeclient"
)

const system = "outrider-system"

func deployment(name, secret string) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: name, Labels: map[string]string{"app": "outriderd"}}}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Env: []corev1.EnvVar{{Name: contract.AuthoritySecretEnv, Value: secret}}}}
	return d
}

// memory is a store in memory. When its contents change, it writes the roots to the namespaces at once, and then
// notifies the watchers.
type memory struct {
	core       kubernetes.Interface
	namespaces []string

	mu       sync.Mutex
	files    map[string][]byte
	version  int
	watchers map[int]func()
}

func (m *memory) String() string { return "memory" }

func (m *memory) Read(context.Context) (ca.Contents, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := ca.Contents{Files: maps.Clone(m.files), Own: true}
	if m.version > 0 {
		c.Version = strconv.Itoa(m.version)
	}
	return c, nil
}

func (m *memory) Update(ctx context.Context, c ca.Contents) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.Version != "" && c.Version != strconv.Itoa(m.version) || c.Version == "" && m.version > 0 {
		return ca.ErrConflict
	}
	m.files, m.version = maps.Clone(c.Files), m.version+1
	for _, n := range m.namespaces {
		roots := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: n, Name: contract.RootConfigMap}, Data: map[string]string{contract.RootKey: string(c.Files["root-cert.pem"])}}
		if _, err := m.core.CoreV1().ConfigMaps(n).Update(ctx, roots, metav1.UpdateOptions{}); err != nil {
			if _, err := m.core.CoreV1().ConfigMaps(n).Create(ctx, roots, metav1.CreateOptions{}); err != nil {
				return err
			}
		}
	}
	for _, changed := range m.watchers { // any order: a notification is only a hint
		changed()
	}
	return nil
}

func (m *memory) Watch(changed func()) (stop func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.watchers == nil {
		m.watchers = map[int]func(){}
	}
	key := len(m.watchers)
	for m.watchers[key] != nil {
		key++
	}
	m.watchers[key] = changed
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.watchers, key)
	}
}

// Run waits for the steps of a rotation, one after the other. A second call during a rotation waits for the same
// rotation.
func TestARotationIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		core := fake.NewClientset()
		store := &memory{core: core, namespaces: []string{"shop", system}}
		a, err := ca.NewAuthority(ctx, ca.AuthorityOptions{Store: store})
		if err != nil {
			t.Fatal(err)
		}
		go a.Run(ctx)
		begin, err := ca.StatusOf(ctx, store, nil, time.Now())
		if err != nil || len(begin.Roots) != 1 || begin.Step() != "" || begin.Foreign != "" {
			t.Fatalf("before: %+v, %v", begin, err)
		}
		run := func(until string, roots int, want ...string) ca.RotationStatus {
			t.Helper()
			var shown bytes.Buffer
			got, err := rotation{&kubeclient.Client{Core: core, Namespace: system, Progress: cli.NewProgress(&shown)}, until, map[string]bool{}}.run(ctx, store)
			if err != nil {
				t.Fatalf("until %s: %v\n%s", until, err, shown.String())
			}
			if len(got.Roots) != roots {
				t.Errorf("until %s: %+v, want %d roots", until, got, roots)
			}
			for _, w := range want {
				if strings.Count(shown.String(), w) != 1 {
					t.Errorf("until %s: %q is to be shown once:\n%s", until, w, shown.String())
				}
			}
			return got
		}
		published := run(Published, 2, "rotation requested", "next root published", "next root: in 2 namespaces")
		next, ok := published.Root(ca.RootNext)
		if !ok || !next.Until.After(time.Now()) {
			t.Fatalf("published: %+v", published)
		}
		for _, n := range []string{"shop", system} {
			m, err := core.CoreV1().ConfigMaps(n).Get(ctx, contract.RootConfigMap, metav1.GetOptions{})
			if err != nil || !has(m, next) || !has(m, begin.Roots[0]) {
				t.Errorf("%s has not both roots: %v", n, err)
			}
		}
		run(Published, 2, "is under way")
		if got := run(Signs, 2, "is under way", "\nnext root signs"); got.Roots[1].State != ca.RootSigns || got.Roots[0].State != ca.RootRetiring || got.Roots[1].SHA256 != next.SHA256 {
			t.Errorf("signs: %+v", got)
		}
		got := run(Retired, 1, "is under way", "\nnext root signs", "old root removed")
		if got.Roots[0].SHA256 != next.SHA256 || got.Step() != "" {
			t.Errorf("in the end: %+v", got)
		}
	})
}

// Without a running replica, the rotation makes no progress. The error at the timeout names the missing step.
func TestNoReplicaRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memory{}
		if _, err := ca.NewAuthority(t.Context(), ca.AuthorityOptions{Store: store}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := rotation{&kubeclient.Client{Progress: cli.NewProgress(io.Discard)}, Published, map[string]bool{}}.run(ctx, store)
		if err == nil || !strings.Contains(err.Error(), "not in time: requested: a replica publishes the next root") {
			t.Error(err)
		}
		if s, err := ca.StatusOf(t.Context(), store, nil, time.Now()); err != nil || !s.Requested {
			t.Errorf("%+v, %v: the request stays", s, err)
		}
	})
}

// own returns a root certificate and its key in PEM, as a company would make them itself.
func own(t *testing.T) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "the company's"},
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}, &x509.Certificate{Subject: pkix.Name{CommonName: "the company's"}}, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	if key, err = wire.MarshalKey(k); err != nil {
		t.Fatal(err)
	}
	return wire.MarshalCertificates(&x509.Certificate{Raw: der}), key
}

// external returns a control plane whose certificates another authority signs.
func external() *appsv1.Deployment {
	d := deployment("outriderd", "")
	d.Spec.Template.Spec.Containers[0].Args = []string{"serve", "--serving-certificate=secret:outriderd-tls"}
	return d
}

func TestWhatIsNotRotated(t *testing.T) {
	cert, key := own(t)
	secret := func(name string, files map[string][]byte) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: name, ResourceVersion: "1"}, Data: files}
	}
	for name, tt := range map[string]struct {
		objects []runtime.Object
		want    string
		hint    string
	}{
		"no control plane":  {nil, "no control plane is in namespace outrider-system", ""},
		"no Secret":         {[]runtime.Object{deployment("outriderd", "")}, "has its authority in no Secret", ""},
		"istio-csr signs":   {[]runtime.Object{external()}, "signs no certificates: another authority does", "replace the root there"},
		"two Secrets":       {[]runtime.Object{deployment("outriderd", "a"), deployment("outriderd-canary", "b")}, "have different authorities (a, b)", ""},
		"a missing Secret":  {[]runtime.Object{deployment("outriderd", "cacerts")}, "the Secret outrider-system/cacerts/ca-cert.pem: there is no such file", ""},
		"Istio's cacerts":   {[]runtime.Object{deployment("outriderd", "cacerts"), secret("cacerts", map[string][]byte{"ca-cert.pem": cert, "ca-key.pem": key, "root-cert.pem": cert})}, "only a root that outriderd made", "root-cert.pem in the Secret"},
		"cert-manager's":    {[]runtime.Object{deployment("outriderd", "mesh-ca"), secret("mesh-ca", map[string][]byte{"tls.crt": cert, "tls.key": key, "ca.crt": cert})}, "only a root that outriderd made", "in cert-manager"},
		"not ours, by name": {[]runtime.Object{deployment("outriderd", "outrider-ca"), secret("outrider-ca", map[string][]byte{"ca-cert.pem": cert, "ca-key.pem": key, "root-cert.pem": cert})}, "only a root that outriderd made", ""},
	} {
		t.Run(name, func(t *testing.T) {
			core := fake.NewClientset(tt.objects...)
			_, err := Run(t.Context(), &kubeclient.Client{Core: core, Namespace: system, Progress: cli.NewProgress(io.Discard)}, Retired)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("%v, want %q", err, tt.want)
			}
			var foreign *cli.UsageError
			if errors.As(err, &foreign) != (tt.hint != "" || strings.HasPrefix(tt.want, "only")) || foreign != nil && !strings.Contains(foreign.Hint, tt.hint) {
				t.Errorf("%#v, want the hint %q", err, tt.hint)
			}
			for _, a := range core.Actions() {
				if a.GetVerb() != "get" && a.GetVerb() != "list" {
					t.Errorf("%s of %s: nothing is to be changed", a.GetVerb(), a.GetResource().Resource)
				}
			}
		})
	}
}
