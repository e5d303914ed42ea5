package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// memoryRounds is how often memory is measured; it varies little. These rounds are
// the first, and also warm up the page cache and the kernel's modules.
const memoryRounds = 5

// settle is for the kernel to take the namespaces of a round away: it does so later,
// on the processors that the next round is measured on.
const settle = 100 * time.Millisecond

// samples are the runs of one case.
type samples struct {
	wall, cpu []time.Duration
	memory    []float64 // in MiB
}

// measureCommands runs n rounds of all cases. A case that fails is left out of the
// rest, and of the rows.
func measureCommands(ctx context.Context, cases []testCase, n int) ([]commandRow, error) {
	taken := make([]samples, len(cases))
	failures := make([]error, len(cases))
	rounds := func(n int, take func(context.Context, testCase, *samples) error) error {
		for range n {
			if err := round(ctx, cases, taken, failures, take); err != nil {
				return err
			}
		}
		return nil
	}
	if err := rounds(min(n, memoryRounds), takeMemory); err != nil {
		return nil, err
	}
	if err := rounds(n, takeTime); err != nil {
		return nil, err
	}
	var rows []commandRow
	for i, c := range cases {
		if failures[i] == nil {
			rows = append(rows, newCommandRow(c, taken[i]))
		}
	}
	compare(rows)
	return rows, errors.Join(failures...)
}

// round runs each case once, in an order of its own. The namespaces are made before
// the first command and closed after the last, so that neither disturbs one.
func round(ctx context.Context, cases []testCase, taken []samples, failures []error, take func(context.Context, testCase, *samples) error) error {
	namespaces, err := newNamespaces(len(cases))
	defer func() {
		for _, ns := range namespaces {
			ns.close()
		}
		time.Sleep(settle)
	}()
	if err != nil {
		return err
	}
	for _, i := range rand.Perm(len(cases)) {
		if failures[i] != nil {
			continue
		}
		err := namespaces[i].do(func() error { return once(ctx, cases[i], &taken[i], take) })
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			failures[i] = fmt.Errorf("%s: %w", cases[i].name, err)
		}
	}
	return nil
}

// once runs a case in the namespace of the calling thread.
func once(ctx context.Context, c testCase, s *samples, take func(context.Context, testCase, *samples) error) error {
	if err := runAll(ctx, c.before); err != nil {
		return err
	}
	if err := take(ctx, c, s); err != nil {
		return err
	}
	return runAll(ctx, c.after)
}

func runAll(ctx context.Context, commands [][]string) error {
	for _, argv := range commands {
		if _, err := timed(ctx, argv); err != nil {
			return err
		}
	}
	return nil
}

func newNamespaces(n int) ([]*namespace, error) {
	var out []*namespace
	for range n {
		ns, err := newNamespace()
		if err != nil {
			return out, err
		}
		out = append(out, ns)
	}
	return out, nil
}

func takeTime(ctx context.Context, c testCase, s *samples) error {
	var sum usage
	for _, argv := range c.commands {
		u, err := timed(ctx, argv)
		if err != nil {
			return err
		}
		sum.wall += u.wall
		sum.cpu += u.cpu
	}
	s.wall, s.cpu = append(s.wall, sum.wall), append(s.cpu, sum.cpu)
	return nil
}

func takeMemory(ctx context.Context, c testCase, s *samples) error {
	var most int64
	for _, argv := range c.commands {
		peak, err := peakMemory(ctx, argv)
		if err != nil {
			return err
		}
		most = max(most, peak)
	}
	s.memory = append(s.memory, float64(most)/(1<<20))
	return nil
}
