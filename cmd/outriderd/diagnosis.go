package main

import (
	"errors"
	"fmt"
	"time"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/core/controlplane"
	"outrider.dev/internal/doctor/diagnoser"
)

// A diagnosis contains the flags that determine whether injected pods are diagnosed, and which starts count
// as slow.
type diagnosis struct {
	wanted bool
	slow   time.Duration
}

func (d diagnosis) check() error {
	if d.slow < time.Second {
		return &cli.UsageError{Err: fmt.Errorf("--slow-start=%s: want 1s or more", d.slow)}
	}
	return nil
}

// diagnoser returns a diagnoser for the options' cluster; nil if diagnoses are off.
func (d diagnosis) diagnoser(o controlplane.Options) (controlplane.Diagnoser, error) {
	switch {
	case !d.wanted:
		return nil, nil
	case o.Cluster == nil:
		return nil, &cli.UsageError{Err: errors.New("--diagnose: pods are diagnosed in a cluster: want --source=kubernetes, or --kubernetes=on")}
	}
	return diagnoser.New(diagnoser.Options{Core: o.Cluster.Core(), Slow: d.slow, Instance: o.Replica, Log: o.Log, Note: o.Cluster.Note}), nil
}
