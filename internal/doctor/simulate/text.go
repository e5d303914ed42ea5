package simulate

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"outrider.dev/internal/core/pod/kubelet"
)

// Parse reads a behaviour from its text. A line is a statement about the pod, or a
// container's name, a colon, and statements about the container that are separated by
// commas. # begins a comment. Several lines may describe the same container.
//
//	kubernetes 1.34
//	until 90s
//	begins at 10ms
//	sandbox takes 300ms
//	sandbox dies at 40s
//	deleted at 60s
//	proxy: image takes 2s, healthy after 1.5s
//	app: calls proxy after 200ms or exits 1, stops after 3s
//
// [Forms] lists the statements about a container.
func Parse(text string) (Behaviour, error) {
	b := Behaviour{Containers: map[string]Container{}}
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		if strings.TrimSpace(line) == "" {
			continue
		}
		if err := b.parseLine(line); err != nil {
			return Behaviour{}, fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	return b, nil
}

func (b *Behaviour) parseLine(line string) error {
	name, clauses, ofContainer := strings.Cut(line, ":")
	if !ofContainer {
		return b.parsePod(strings.Fields(line))
	}
	name = strings.TrimSpace(name)
	if name == "" || strings.ContainsAny(name, " \t") {
		return fmt.Errorf("%q is not the name of a container", name)
	}
	c := b.Containers[name]
	for clause := range strings.SplitSeq(clauses, ",") {
		if err := c.parse(strings.Fields(clause)); err != nil {
			return err
		}
	}
	b.Containers[name] = c
	return nil
}

// parsePod reads a line about the pod.
func (b *Behaviour) parsePod(w []string) (err error) {
	last := w[len(w)-1]
	switch strings.Join(w[:len(w)-1], " ") {
	case "kubernetes":
		b.Kubernetes, err = minor(last)
	case "until":
		b.Until, err = positive(last)
	case "begins at":
		b.Begins, err = duration(last)
	case "sandbox takes":
		b.Sandbox, err = duration(last)
	case "sandbox dies at":
		var at time.Duration
		at, err = duration(last)
		b.SandboxDies = append(b.SandboxDies, at)
	case "deleted at":
		b.Deleted, err = positive(last)
	default:
		err = fmt.Errorf("%q is no statement about the pod: want kubernetes, until, begins at, sandbox takes, sandbox dies at or deleted at, or NAME: and what a container does",
			strings.Join(w, " "))
	}
	return err
}

func minor(word string) (int, error) {
	digits, ok := strings.CutPrefix(word, "1.")
	n, err := strconv.Atoi(digits)
	if !ok || err != nil || n < kubelet.Oldest || n > kubelet.Newest {
		return 0, fmt.Errorf("%q is not a version of Kubernetes from 1.%d to 1.%d", word, kubelet.Oldest, kubelet.Newest)
	}
	return n, nil
}

// longest is the longest duration that is accepted, so that sums of durations do not overflow.
const longest = 100 * 24 * time.Hour

func duration(word string) (time.Duration, error) {
	d, err := time.ParseDuration(word)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is no time: want 300ms, 2s or 5m", word)
	case d < 0:
		return 0, fmt.Errorf("%s lies in the past", word)
	case d > longest:
		return 0, fmt.Errorf("%s is too long: at most %s", word, longest)
	}
	return d, nil
}

func positive(word string) (time.Duration, error) {
	d, err := duration(word)
	if err == nil && d == 0 {
		err = fmt.Errorf("%s leaves no time for anything", word)
	}
	return d, err
}
