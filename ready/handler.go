package ready

import (
	"encoding/json"
	"net/http"
)

// ServeHTTP reports the progress of the wait, for a readiness probe: status 200 once it has succeeded, otherwise 503,
// with a JSON body:
//
//	{"ready":false,"missing":[{"condition":"tcp://db:5432","error":"connection refused"}]}
//
// It reports only the start: a dependency that fails later does not change the answer.
func (w *Waiter) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		rw.Header().Set("Allow", "GET, HEAD")
		http.Error(rw, "only GET and HEAD", http.StatusMethodNotAllowed)
		return
	}
	type missing struct {
		Condition string `json:"condition"`
		Error     string `json:"error"`
		Hint      string `json:"hint,omitempty"`
	}
	answer := struct {
		Ready   bool      `json:"ready"`
		Missing []missing `json:"missing,omitempty"` // with Continue also after the wait: the conditions that did not hold
	}{}
	for _, m := range w.Missing() {
		answer.Missing = append(answer.Missing, missing{m.Condition, m.Err.Error(), m.Hint})
	}
	code := http.StatusServiceUnavailable
	select {
	case <-w.done:
		answer.Ready, code = true, http.StatusOK
	default:
	}
	rw.Header().Set("Content-Type", "application/json")
	rw.Header().Set("Cache-Control", "no-store")
	rw.WriteHeader(code)
	json.NewEncoder(rw).Encode(answer)
}
