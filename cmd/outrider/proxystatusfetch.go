package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"outrider.dev/internal/cli"
)

// A debugSource is where an answer of outriderd's /debug comes from.
type debugSource struct {
	address string
	file    string
}

func (s *debugSource) flags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&s.address, "control-plane-http", "http://localhost:15014", "where outriderd answers people")
	fs.StringVarP(&s.file, "filename", "f", "", "an answer that was kept with -o json; '-' is standard input")
	cli.BindEnv(fs, "control-plane-http", "OUTRIDER_CONTROL_PLANE_HTTP")
	_ = cmd.MarkFlagFilename("filename", "json")
}

// maxDebug bounds an answer: a large mesh with every proxy is some hundred megabytes.
const maxDebug = 1 << 30

// proxies are those that are connected.
func (s *debugSource) proxies(cmd *cobra.Command) ([]connectedProxy, error) {
	where, raw, err := s.get(cmd, "/debug/proxies", nil)
	if err != nil {
		return nil, err
	}
	var out []connectedProxy
	if err := json.Unmarshal(raw, &out); err != nil {
		return nil, &cli.UsageError{Err: fmt.Errorf("%s: not outriderd's list of proxies: %w", where, err)}
	}
	return out, nil
}

// get returns an answer, and where it comes from.
func (s *debugSource) get(cmd *cobra.Command, path string, query url.Values) (where string, raw []byte, err error) {
	if err := cli.FromEnv(cmd.Flags()); err != nil {
		return "", nil, err
	}
	if s.file != "" {
		where, raw, err := readText(cmd, s.file)
		if err != nil {
			return "", nil, &cli.UsageError{Err: err}
		}
		return where, raw, nil
	}
	base, err := url.Parse(s.address)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" {
		return "", nil, &cli.UsageError{Err: fmt.Errorf("--control-plane-http=%q: want an address, for example http://localhost:15014", s.address)}
	}
	at := base.JoinPath(path)
	at.RawQuery = query.Encode()
	raw, err = fetch(cmd, at.String())
	return at.String(), raw, err
}

func fetch(cmd *cobra.Command, at string) ([]byte, error) {
	req, err := http.NewRequestWithContext(cmd.Context(), http.MethodGet, at, nil)
	if err != nil {
		return nil, &cli.UsageError{Err: err}
	}
	client := &http.Client{Timeout: time.Minute}
	res, err := client.Do(req)
	if err != nil {
		var e *url.Error
		if errors.As(err, &e) {
			err = e.Err // the address is said once
		}
		return nil, &cli.UsageError{Err: fmt.Errorf("nobody answers at %s: %w", at, err),
			Hint: "kubectl -n outrider-system port-forward deploy/outriderd 15014, or --control-plane-http"}
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxDebug+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading %s: %w", at, err)
	case len(raw) > maxDebug:
		return nil, fmt.Errorf("reading %s: more than %d bytes", at, maxDebug)
	case res.StatusCode == http.StatusOK:
		return raw, nil
	}
	message := oneLine(string(raw[:min(len(raw), 500)]))
	if res.StatusCode == http.StatusForbidden {
		return nil, &cli.UsageError{Err: fmt.Errorf("%s: %s", at, message), Hint: "kubectl -n outrider-system port-forward deploy/outriderd 15014"}
	}
	return nil, fmt.Errorf("%s answers %s: %s", at, res.Status, message)
}
