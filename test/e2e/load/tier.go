package load

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// Passed is the HTTP status that a tier returns if its own call failed. No proxy returns this status or retries
// because of it.
const Passed = 599

// A Tier is a service that calls the next one for each call that it receives.
type Tier struct {
	Name    string
	Pod     string
	Next    string              // URL; empty for the last tier
	Got     func(number string) // called for each POST
	Timeout time.Duration       // limit of the outbound call; shorter than the caller's timeout, so that the caller still gets an answer

	send sender
}

// NewTier returns a tier that uses its own persistent connections to the next one.
func NewTier(name, pod, next string, timeout time.Duration) *Tier {
	return &Tier{Name: name, Pod: pod, Next: next, Got: func(string) {}, Timeout: timeout, send: kept()}
}

// ServeHTTP answers "NAME<-" followed by the answer of the next tier. If the call to the next tier fails, it answers
// with the status [Passed] and the [Failure] as JSON.
func (t *Tier) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	number := r.Header.Get(numberHeader)
	if number != "" {
		t.Got(number)
	}
	if t.Next == "" {
		_, _ = w.Write([]byte(t.Name))
		return
	}
	// Continue the call when the caller disconnects, so that a failure shows whether the caller or the next
	// tier caused it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), t.Timeout)
	defer cancel()
	answer, failure := call(ctx, t.send, t.Pod, t.Next, number, "")
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
