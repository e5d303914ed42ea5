package load

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// Passed is the status of a tier whose own call failed. No proxy answers with it or
// takes it for a reason to try again.
const Passed = 599

// A Tier is a service that calls the next one for each call that it gets.
type Tier struct {
	Name    string
	Pod     string
	Next    string        // URL; empty: the last tier
	Timeout time.Duration // of its call; shorter than its caller's, which is then answered

	send sender
}

// NewTier returns one with a client of its own.
func NewTier(name, pod, next string, timeout time.Duration) *Tier {
	return &Tier{Name: name, Pod: pod, Next: next, Timeout: timeout, send: kept()}
}

// ServeHTTP answers "NAME<-" and the answer of the next tier.
func (t *Tier) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if t.Next == "" {
		_, _ = w.Write([]byte(t.Name))
		return
	}
	// A caller that has gone away does not end the call: which end failed is to be seen.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), t.Timeout)
	defer cancel()
	answer, failure := call(ctx, t.send, t.Pod, t.Next, "")
	if failure == nil {
		_, _ = w.Write([]byte(t.Name + "<-" + answer))
		return
	}
	text, err := json.Marshal(failure)
	if err != nil {
		text = []byte(err.Error())
	}
	w.WriteHeader(Passed)
	_, _ = w.Write(text)
}
