package check

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"
)

// skewOf returns the time by which a replica's clock is ahead of this machine's clock.
func (s *survey) skewOf(ctx context.Context, pod string) (time.Duration, error) {
	// The measurement assumes that a request and its response take the same time. That is wrong for the first
	// request, which also sets up the port forwarding, so the forwarding is set up before.
	if _, err := s.monitoring(ctx, pod); err != nil {
		return 0, err
	}
	from := time.Now()
	_, header, err := s.replicaSet.Get(ctx, pod, "/version", 1<<16)
	if err != nil {
		return 0, err
	}
	middle := from.Add(time.Since(from) / 2)
	date, err := http.ParseTime(header.Get("Date"))
	if err != nil {
		return 0, errors.New("the answer of " + pod + " has no date")
	}
	return date.Sub(middle), nil
}

// clockAnswer returns the answer for these differences: how far the clocks of the replicas and of this machine are
// ahead of the API server's clock. Differences below a second mean nothing, because an HTTP date has whole seconds.
func clockAnswer(replicas map[string]time.Duration, local time.Duration) answer {
	const hint = "synchronize the nodes' clocks (NTP): with more than a minute of difference tokens and certificates are refused"
	for _, name := range slices.Sorted(maps.Keys(replicas)) {
		switch skew := replicas[name]; {
		case skew.Abs() > skewFailure:
			return failed(hint, "the clock of %s is %s the API server's", name, ahead(skew))
		case skew.Abs() > skewWarning:
			return warning(hint, "the clock of %s is %s the API server's", name, ahead(skew))
		}
	}
	if local.Abs() > skewWarning {
		return warning("synchronize this machine's clock", "the clock of this machine is %s the API server's", ahead(local))
	}
	if len(replicas) == 0 {
		return fine("this machine and the API server differ by less than %s", skewWarning)
	}
	return fine("this machine, the API server and %s differ by less than %s", plural(len(replicas), "replica", "replicas"), skewWarning)
}

func ahead(d time.Duration) string {
	if d < 0 {
		return fmt.Sprint(d.Abs().Round(time.Second), " behind")
	}
	return fmt.Sprint(d.Round(time.Second), " ahead of")
}
