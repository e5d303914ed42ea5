package load

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// Passed is the status of a tier whose own call failed. No proxy returns it or retries because of it.
const Passed = 599

// A Tier is a service that calls the next one for each call that it receives.
type Tier struct {
	Name    string
	Pod     string
	Next    string        // URL; empty for the last tier
	Timeout time.Duration // of its outbound call; shorter than its caller's, so that the caller still gets an answer

	send sender
}

// NewTier returns a tier with a client of its own.
func NewTier(name, pod, next string, timeout time.Duration) *Tier {
	return &Tier{Name: name, Pod: pod, Next: next, Timeout: timeout, send: kept()}
}

// ServeHTTP answers "NAME<-" followed by the answer of the next tier.
func (t *Tier) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if t.Next == "" {
		_, _ = w.Write([]byte(t.Name))
		return
	}
	// The call continues when the caller disconnects, to show at which end it failed.
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
