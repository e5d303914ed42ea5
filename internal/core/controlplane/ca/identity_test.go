package ca

import (
	"crypto/x509"
	"net/url"
	"strings"
	"testing"
)

func identity(trustDomain, namespace, serviceAccount string) Identity {
	return Identity{TrustDomain: trustDomain, Namespace: namespace, ServiceAccount: serviceAccount}
}

func TestParseIdentity(t *testing.T) {
	tests := map[string]struct {
		uri  string
		want Identity
		err  string
	}{
		"Istio's form":              {uri: "spiffe://cluster.local/ns/shop/sa/app", want: identity("cluster.local", "shop", "app")},
		"a service account's dots":  {uri: "spiffe://td/ns/a/sa/b.c-d", want: identity("td", "a", "b.c-d")},
		"another scheme":            {uri: "https://td/ns/a/sa/b", err: "scheme"},
		"no trust domain":           {uri: "spiffe:///ns/a/sa/b", err: "trust domain"},
		"upper case trust domain":   {uri: "spiffe://TD/ns/a/sa/b", err: "trust domain"},
		"a port":                    {uri: "spiffe://td:1/ns/a/sa/b", err: "trust domain"},
		"words in another order":    {uri: "spiffe://td/sa/a/ns/b", err: "not of the form"},
		"a longer path":             {uri: "spiffe://td/ns/a/sa/b/c", err: "not of the form"},
		"a shorter path":            {uri: "spiffe://td/ns/a", err: "not of the form"},
		"an empty namespace":        {uri: "spiffe://td/ns//sa/b", err: "path"},
		"a way out of the path":     {uri: "spiffe://td/ns/../sa/b", err: "path"},
		"an escaped slash":          {uri: "spiffe://td/ns/a%2Fb/sa/b", err: "path"},
		"a query":                   {uri: "spiffe://td/ns/a/sa/b?x", err: "path"},
		"nothing":                   {uri: "", err: "empty"},
		"a newline in the identity": {uri: "spiffe://td/ns/a\n/sa/b", err: "path"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ParseIdentity(tt.uri)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("ParseIdentity = %v, %v, want an error with %q", got, err, tt.err)
				}
				return
			}
			if err != nil || got != tt.want {
				t.Fatalf("ParseIdentity = %v, %v, want %v", got, err, tt.want)
			}
			if got.String() != tt.uri || got.URL().String() != tt.uri || got.Check() != nil {
				t.Errorf("%s came back as %s and %s, %v", tt.uri, got, got.URL(), got.Check())
			}
		})
	}
}

func TestCheckIdentity(t *testing.T) {
	for want, wrong := range map[string]Identity{
		"trust domain":    identity("a/b", "n", "s"),
		"namespace":       identity("td", "a/b", "s"),
		"service account": identity("td", "n", ".."),
		`namespace ""`:    identity("td", "", "s"),
	} {
		if err := wrong.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Check(%+v) = %v, want it to name %s", wrong, err, want)
		}
	}
}

func TestIdentityOfACertificate(t *testing.T) {
	one := identity("td", "n", "s")
	tests := map[int]string{0: "no SPIFFE identity", 1: "", 2: "2 URIs"}
	for n, want := range tests {
		cert := &x509.Certificate{}
		for range n {
			cert.URIs = append(cert.URIs, one.URL())
		}
		got, err := IdentityOf(cert)
		if want == "" && (err != nil || got != one) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%d URIs: %v, %v, want %q", n, got, err, want)
		}
	}
}

func FuzzParseIdentity(f *testing.F) {
	f.Add("spiffe://cluster.local/ns/shop/sa/app")
	f.Add("spiffe://td/ns/a%2e/sa/b")
	f.Fuzz(func(t *testing.T, uri string) {
		id, err := ParseIdentity(uri)
		if err != nil {
			return
		}
		if id.Check() != nil || id.String() != uri {
			t.Errorf("%q was read as %+v, which is %q: %v", uri, id, id, id.Check())
		}
		if u, err := url.Parse(uri); err != nil || u.String() != id.URL().String() {
			t.Errorf("%q as a URL: %v, %v", uri, u, err)
		}
	})
}

// The agent checks identities without go-spiffe. Its check and go-spiffe must accept the same identities.
func FuzzIdentityCheckAgreesWithGoSPIFFE(f *testing.F) {
	for _, s := range []string{"cluster.local", "TD", "..", ".", "", "a/b", "a%2eb", "a_b-c", "é", "a b", "a:1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, one := range []Identity{identity(s, "n", "s"), identity("td", s, "s"), identity("td", "n", s)} {
			back, err := ParseIdentity(one.String())
			if good := err == nil && back == one; good != (one.Check() == nil) {
				t.Errorf("%+v: Check says %v, go-spiffe %+v, %v", one, one.Check(), back, err)
			}
		}
	})
}
