package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/base/contract"
)

// requestPorts lists the ports to which request may connect: the same as in Istio.
var requestPorts = []uint16{contract.AdminPort, contract.DebugPort, contract.StatusPort, contract.ReadinessPort}

// requestLimit bounds one request.
const requestLimit = time.Minute

func newRequest() *cobra.Command {
	var port, statusPort uint16
	cmd := &cobra.Command{
		Use:   "request METHOD PATH [BODY]",
		Short: "send a request to the admin port of Envoy, or to the agent's port, in this pod",
		Example: `  outrider-agent request GET /config_dump
  outrider-agent request POST /drain --debug-port 15020`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 || len(args) > 3 {
				return &cli.UsageError{Err: fmt.Errorf("%d arguments; want METHOD PATH [BODY]", len(args)), Hint: "for example: " + cmd.CommandPath() + " GET /ready"}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cli.FromEnv(cmd.Flags()); err != nil {
				return err
			}
			if port != statusPort && !slices.Contains(requestPorts, port) {
				return &cli.UsageError{Err: fmt.Errorf("--debug-port=%d: one of %s, or the pod's own status port (--status-port)", port, ports(requestPorts))}
			}
			body := ""
			if len(args) == 3 {
				body = args[2]
			}
			return request(cmd.Context(), cmd.OutOrStdout(), port, strings.ToUpper(args[0]), args[1], body)
		},
	}
	cmd.Flags().Uint16Var(&port, "debug-port", contract.AdminPort, "port of this pod to talk to")
	cmd.Flags().Uint16Var(&statusPort, "status-port", contract.StatusPort, "the pod's status port, if it is not the usual one")
	cli.BindEnv(cmd.Flags(), "status-port", "OUTRIDER_STATUS_PORT")
	return cmd
}

func ports(list []uint16) string {
	return strings.Trim(strings.Join(strings.Fields(fmt.Sprint(list)), ", "), "[]")
}

// request makes one request and prints the answer. An answer other than 2xx is an error.
func request(ctx context.Context, w io.Writer, port uint16, method, path, body string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, requestLimit, fmt.Errorf("no answer within %s", requestLimit))
	defer cancel()
	target, err := url.Parse(fmt.Sprintf("http://localhost:%d/%s", port, strings.TrimPrefix(path, "/")))
	if err != nil {
		return &cli.UsageError{Err: fmt.Errorf("path %q: %w", path, err)}
	}
	req, err := http.NewRequestWithContext(ctx, method, target.String(), strings.NewReader(body))
	if err != nil {
		return &cli.UsageError{Err: err}
	}
	client := http.Client{Transport: &http.Transport{}} // ignore the proxy settings in the environment
	res, err := client.Do(req)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return fmt.Errorf("%s %s: %w", method, target, plain(err))
	}
	defer res.Body.Close()
	if _, err := io.Copy(w, res.Body); err != nil {
		return fmt.Errorf("%s %s: reading the answer: %w", method, target, err)
	}
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return fmt.Errorf("%s %s: status %s", method, target, res.Status)
	}
	return nil
}

// plain strips the URL from an HTTP client's error: the message of [request] contains the URL already.
func plain(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		err = op.Err
	}
	return err
}
