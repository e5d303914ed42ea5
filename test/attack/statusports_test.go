package attack

import (
	"context"
	"io"
	"net"
	"strconv"
	"time"

	"outrider.dev/internal/contract"
)

// Status ports of a pod's agent: any client that reaches the pod.
var statusPorts = []attacked{
	{
		name:     "status ports: 2000 connections that send nothing",
		agent:    true,
		ordinary: probe,
		attack: func(ctx context.Context, v victim) (string, error) {
			to := net.JoinHostPort(v.Pod, strconv.Itoa(contract.ReadinessPort))
			return repeat(ctx, 2000, func(ctx context.Context, _ int) error {
				c, err := (&net.Dialer{Timeout: time.Minute}).DialContext(ctx, "tcp", to)
				if err != nil {
					return err
				}
				defer context.AfterFunc(ctx, func() { c.Close() })()
				defer c.Close()
				_, err = io.Copy(io.Discard, c)
				return err
			})
		},
	},
}
