package ca

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func tokens(t testing.TB, dir string) *Tokens {
	t.Helper()
	k, err := NewTokens(dir, "cluster.local")
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestATokenIsVerifiedAfterARestart(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	text, err := tokens(t, dir).Issue(Claim{Namespace: "shop", ServiceAccount: "app", TTL: time.Minute}, now)
	if err != nil {
		t.Fatal(err)
	}
	got, err := tokens(t, dir).Verify(text, DefaultAudience, now) // as after a restart
	if err != nil || got.Namespace != "shop" || got.ServiceAccount != "app" {
		t.Errorf("Verify = %+v, %v", got, err)
	}
	if info, err := os.Stat(filepath.Join(dir, "token-key.pem")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key's file: %v, %v", info, err)
	}
	var body map[string]any
	raw, _ := base64.RawURLEncoding.DecodeString(strings.Split(text, ".")[1])
	if err := json.Unmarshal(raw, &body); err != nil || body["sub"] != "system:serviceaccount:shop:app" {
		t.Errorf("the claims are %s, %v", raw, err)
	}
}

func TestInvalidTokens(t *testing.T) {
	now := time.Now()
	ours, theirs := tokens(t, t.TempDir()), tokens(t, t.TempDir())
	issue := func(by *Tokens, c Claim) string {
		c.Namespace, c.ServiceAccount = "shop", "app"
		return must(by.Issue(c, now))
	}
	good := issue(ours, Claim{TTL: time.Hour})
	parts := strings.Split(good, ".")
	swap := func(i int, part string) string {
		p := strings.Split(good, ".")
		p[i] = part
		return strings.Join(p, ".")
	}
	other := strings.Split(issue(ours, Claim{TTL: 2 * time.Hour}), ".")
	none := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"alg":"none","kid":%q}`, ours.key().id))
	tests := map[string]struct {
		token    string
		audience string
		now      time.Time
		want     string
	}{
		"expired":                    {good, "", now.Add(time.Hour), "expired"},
		"from the future":            {good, "", now.Add(-time.Hour), "is a clock wrong"},
		"for another audience":       {good, "other", now, `must be for "other"`},
		"of another key":             {issue(theirs, Claim{}), "", now, "not signed by this control plane's key"},
		"no signature":               {parts[0] + "." + parts[1] + ".", "", now, "signature is wrong"},
		"algorithm none":             {none + "." + parts[1] + ".", "", now, "not signed by"},
		"algorithm none, and signed": {swap(0, none), "", now, "not signed by"},
		"another's signature":        {swap(2, other[2]), "", now, "signature is wrong"},
		"other claims":               {swap(1, other[1]), "", now, "signature is wrong"},
		"a signature of zeros":       {swap(2, base64.RawURLEncoding.EncodeToString(make([]byte, 64))), "", now, "signature is wrong"},
		"a padded signature":         {good + "=", "", now, "no JSON web token"},
		"other trailing bits":        {good[:len(good)-1] + string(good[len(good)-1]+1), "", now, "no JSON web token"},
		"a newline":                  {good + "\n", "", now, "no JSON web token"},
		"base64 of something":        {"YQ.Yg.Yw", "", now, "not signed by"},
		"four parts":                 {good + ".x", "", now, "no JSON web token"},
		"nothing":                    {"", "", now, "no JSON web token"},
		"no base64":                  {"a.b.c", "", now, "no JSON web token"},
		"too long":                   {good + strings.Repeat("A", maxToken), "", now, "no JSON web token"},
		"longer claims":              {swap(1, parts[1]+"A"), "", now, "no JSON web token"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			audience := DefaultAudience
			if tt.audience != "" {
				audience = tt.audience
			}
			got, err := ours.Verify(tt.token, audience, tt.now)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("Verify = %+v, %v, want an error with %q", got, err, tt.want)
			}
			if tt.token != "" && strings.Contains(err.Error(), tt.token) || strings.Contains(err.Error(), parts[2]) {
				t.Errorf("the error has the token: %v", err)
			}
		})
	}
	if _, err := ours.Issue(Claim{Namespace: "a/b", ServiceAccount: "c"}, now); err == nil || !strings.Contains(err.Error(), "namespace") {
		t.Errorf("a token for no namespace: %v", err)
	}
}

func TestATokenOfAnotherKeyIsNotOurs(t *testing.T) {
	ours := tokens(t, t.TempDir())
	text := must(tokens(t, t.TempDir()).Issue(Claim{Namespace: "a", ServiceAccount: "b"}, time.Now()))
	for _, token := range []string{text, "", "x", "x.y.z"} {
		if _, err := ours.Authenticate(context.Background(), Credentials{Bearer: token}); !errors.Is(err, ErrOther) {
			t.Errorf("Authenticate(%q) = %v, want ErrOther", token, err)
		}
	}
}

func FuzzVerify(f *testing.F) {
	t := tokens(f, f.TempDir())
	good := must(t.Issue(Claim{Namespace: "a", ServiceAccount: "b"}, time.Now()))
	f.Add(good)
	f.Add("a.b.c")
	f.Fuzz(func(tt *testing.T, token string) {
		if c, err := t.Verify(token, DefaultAudience, time.Now()); err == nil && token != good {
			tt.Errorf("%q was accepted: %+v", token, c)
		}
		expiryOf(token)
	})
}

// A caller expires with its token, because a stream that begins with a token ends when the token expires.
func TestExpiryOfACaller(t *testing.T) {
	ours := tokens(t, t.TempDir())
	expiry := time.Now().Add(20 * time.Minute).Truncate(time.Second)
	token := must(ours.Issue(Claim{Namespace: "a", ServiceAccount: "b", TTL: time.Until(expiry)}, time.Now()))
	caller := must(ours.Authenticate(t.Context(), Credentials{Bearer: token}))
	if d := caller.Expiry.Sub(expiry).Abs(); d > time.Second { // time limit: both times are in the token, so the speed of the test does not matter
		t.Errorf("our token: %s; want %s", caller.Expiry, expiry)
	}
	claims := func(text string) string { return "e30." + base64.RawURLEncoding.EncodeToString([]byte(text)) + ".e30" }
	for token, want := range map[string]time.Time{
		claims(fmt.Sprintf(`{"exp": %d, "aud": "istio-ca"}`, expiry.Unix())): expiry,
		claims(`{"aud": ["istio-ca"]}`):                                      {},
		claims(`{"exp": "tomorrow"}`):                                        {},
		claims(`{`):                                                          {},
		"no token":                                                           {},
	} {
		caller, err := Reviewed{Reviewer: anyone{}, TrustDomain: "cluster.local"}.Authenticate(t.Context(), Credentials{Bearer: token})
		if err != nil || !caller.Expiry.Equal(want) {
			t.Errorf("%s: %s, %v; want %s", token, caller.Expiry, err, want)
		}
	}
}

// anyone is a reviewer that accepts every token.
type anyone struct{}

func (anyone) Review(context.Context, string, []string) (Subject, error) {
	return Subject{"shop", "app", "app-7d9"}, nil
}
