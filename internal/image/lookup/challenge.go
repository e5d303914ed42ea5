package lookup

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// authorize answers the challenges of a registry with what goes into Authorization.
func (g *repository) authorize(ctx context.Context, headers []string) (string, error) {
	for _, c := range parseChallenges(headers) {
		switch {
		case c.scheme == "bearer":
			return g.token(ctx, c)
		case c.scheme == "basic" && g.credential.user != "":
			return g.credential.basic(), nil
		case c.scheme == "basic":
			return "", fmt.Errorf("%s wants a user and a password: %s", g.host, g.credential.advice())
		}
	}
	return "", fmt.Errorf("%s wants to know who asks, and not by Bearer or Basic", g.host)
}

const mostTokenBytes = 1 << 20

// token asks the place that the challenge names for one. Its scope is ours: to pull from
// this repository, whatever the registry would like.
// Source: distribution/distribution docs/content/spec/auth/token.md and oauth.md.
func (g *repository) token(ctx context.Context, c challenge) (string, error) {
	if g.credential.bearer != "" {
		return "Bearer " + g.credential.bearer, nil
	}
	realm, err := url.Parse(c.parameters["realm"])
	if err != nil || realm.Host == "" || realm.User != nil || realm.Scheme != "https" && (realm.Scheme != "http" || g.scheme == "https") {
		return "", fmt.Errorf("%s sends for a token to a place that cannot be used: want an address with https", g.host)
	}
	ask := realm.Query()
	ask.Set("service", c.parameters["service"])
	ask.Set("scope", "repository:"+g.repo+":pull")
	method, form := http.MethodGet, ""
	if g.credential.refresh != "" {
		ask.Set("grant_type", "refresh_token")
		ask.Set("client_id", "outrider")
		ask.Set("refresh_token", g.credential.refresh)
		method, form = http.MethodPost, ask.Encode()
	} else {
		realm.RawQuery = ask.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, realm.String(), strings.NewReader(form))
	if err != nil {
		return "", fmt.Errorf("%s sends for a token to a place that cannot be used", g.host)
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	} else if g.credential.user != "" {
		req.Header.Set("Authorization", g.credential.basic())
	}
	body, res, err := g.r.do(req, mostTokenBytes)
	if err != nil {
		return "", err
	}
	if res.StatusCode != http.StatusOK {
		return "", g.refused(res)
	}
	token, ok := parseToken(body)
	if !ok {
		return "", fmt.Errorf("%s sent no token that can be used", realm.Host)
	}
	return "Bearer " + token, nil
}

// parseToken reads the answer of a place of tokens.
func parseToken(body []byte) (string, bool) {
	var t struct {
		Token  string `json:"token"`
		Access string `json:"access_token"`
	}
	if json.Unmarshal(body, &t) != nil {
		return "", false
	}
	if t.Token == "" {
		t.Token = t.Access
	}
	visible := func(r rune) bool { return r > ' ' && r < 0x7f }
	return t.Token, t.Token != "" && !strings.ContainsFunc(t.Token, func(r rune) bool { return !visible(r) })
}

// A challenge is one way to say who asks (RFC 9110, 11.6.1).
type challenge struct {
	scheme     string // in small letters
	parameters map[string]string
}

// parseChallenges reads the values of WWW-Authenticate. What it does not understand is left
// out, with all that follows in the same value.
func parseChallenges(headers []string) []challenge {
	var out []challenge
	for _, text := range headers {
		p := parser{text}
		for p.skip(", \t"); p.rest != ""; p.skip(", \t") {
			name := p.token()
			if name == "" {
				break
			}
			p.skip(" \t")
			if !p.take('=') { // not name=value: another scheme begins
				out = append(out, challenge{strings.ToLower(name), map[string]string{}})
				continue
			}
			p.skip(" \t")
			value, ok := p.value()
			if !ok || len(out) == 0 {
				break
			}
			out[len(out)-1].parameters[strings.ToLower(name)] = value
		}
	}
	// A token goes before a password.
	slices.SortStableFunc(out, func(a, b challenge) int { return rank(a) - rank(b) })
	return out
}

func rank(c challenge) int {
	if c.scheme == "bearer" {
		return 0
	}
	return 1
}

type parser struct{ rest string }

func (p *parser) skip(chars string) { p.rest = strings.TrimLeft(p.rest, chars) }

func (p *parser) take(b byte) bool {
	if p.rest == "" || p.rest[0] != b {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

// token is a word of RFC 9110, 5.6.2.
func (p *parser) token() string {
	n := strings.IndexFunc(p.rest, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
	if n < 0 {
		n = len(p.rest)
	}
	word := p.rest[:n]
	p.rest = p.rest[n:]
	return word
}

// value is a word, or text in quotes.
func (p *parser) value() (string, bool) {
	if !p.take('"') {
		word := p.token()
		return word, word != ""
	}
	var b strings.Builder
	for i := 0; i < len(p.rest); i++ {
		switch c := p.rest[i]; {
		case c == '"':
			p.rest = p.rest[i+1:]
			return b.String(), true
		case c == '\\' && i+1 < len(p.rest):
			i++
			b.WriteByte(p.rest[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", false
}

func (c credential) basic() string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(c.user+":"+c.password))
}
