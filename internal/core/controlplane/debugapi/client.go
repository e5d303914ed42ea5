// Package debugapi reads outriderd's answers under /debug, which describe the connected proxies. It reads
// them from a running outriderd, or from a saved answer.
package debugapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// A Source reads answers from Address, or uses the one in Saved.
type Source struct {
	Address string // URL of outriderd's HTTP port

	Saved []byte // a saved answer
	Name  string // where the saved answer comes from; empty: the answer is read from Address
}

// maxAnswer is the maximum size of an answer in bytes. The answer with all proxies of a large mesh has some
// hundred megabytes.
const maxAnswer = 1 << 30

// An InputError is an address or an answer that cannot be used. Help may be empty.
type InputError struct {
	Err  error
	Help string
}

func (e *InputError) Error() string { return e.Err.Error() }

func (e *InputError) Unwrap() error { return e.Err }

// Hint returns the advice that a command prints after the error.
func (e *InputError) Hint() string { return e.Help }

const reach = "without --control-plane-http all replicas in the cluster are asked, by ports that are forwarded"

// Proxies returns the connected proxies. It fails if there is no answer, or if the answer is no list of
// proxies.
func (s Source) Proxies(ctx context.Context) ([]Proxy, error) {
	where, raw, err := s.get(ctx, "/debug/proxies", nil)
	if err != nil {
		return nil, err
	}
	var out []Proxy
	if err := json.Unmarshal(raw, &out); err != nil {
		return nil, &InputError{Err: fmt.Errorf("%s: not outriderd's list of proxies: %w", where, err)}
	}
	return out, nil
}

// Resources returns the resources that outriderd sent to the proxy of a pod; pod may also be the proxy's full
// ID. A saved answer is for one proxy, so pod is ignored.
func (s Source) Resources(ctx context.Context, pod string) ([]Resource, error) {
	id := pod
	if s.Name == "" && !isID(pod) {
		all, err := s.Proxies(ctx)
		if err != nil {
			return nil, err
		}
		one, err := FindOne(all, pod)
		if err != nil {
			return nil, err
		}
		id = one.ID
	}
	where, raw, err := s.get(ctx, "/debug/proxy", url.Values{"id": {id}})
	if err != nil {
		return nil, err
	}
	const wrong = "not outriderd's list of a proxy's resources"
	out := []Resource{}
	if err := json.Unmarshal(raw, &out); err != nil {
		return nil, &InputError{Err: fmt.Errorf("%s: %s: %w", where, wrong, err)}
	}
	for i, r := range out {
		if r.Type == "" {
			return nil, &InputError{fmt.Errorf("%s: entry %d has no type: %s", where, i+1, wrong), "a list of proxies is for outrider proxy-status -f"}
		}
	}
	return out, nil
}

// get returns an answer, and the name of its origin for messages.
func (s Source) get(ctx context.Context, path string, query url.Values) (where string, raw []byte, err error) {
	if s.Name != "" {
		return s.Name, s.Saved, nil
	}
	base, err := url.Parse(s.Address)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" {
		return "", nil, &InputError{Err: fmt.Errorf("--control-plane-http=%q: must be an address, for example http://localhost:15014", s.Address)}
	}
	at := base.JoinPath(path)
	at.RawQuery = query.Encode()
	raw, err = fetch(ctx, at.String())
	return at.String(), raw, err
}

func fetch(ctx context.Context, at string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Timeout: time.Minute}
	res, err := client.Do(req)
	if err != nil {
		var e *url.Error
		if errors.As(err, &e) {
			err = e.Err // the message contains the address already
		}
		return nil, &InputError{fmt.Errorf("no answer from %s: %w", at, err), reach}
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading %s: %w", at, err)
	case len(raw) > maxAnswer:
		return nil, fmt.Errorf("reading %s: more than %d bytes", at, maxAnswer)
	case res.StatusCode == http.StatusOK:
		return raw, nil
	}
	message := OneLine(string(raw[:min(len(raw), 500)]))
	if res.StatusCode == http.StatusForbidden {
		return nil, &InputError{fmt.Errorf("%s: %s", at, message), reach}
	}
	return nil, fmt.Errorf("%s answers %s: %s", at, res.Status, message)
}
