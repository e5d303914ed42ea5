package status

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"outrider.dev/internal/base/atomicfile"
	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/agent/readiness"
)

const (
	// StateFile is the name of a file with the status at level outbound. It is replaced by rename, so that a
	// watch of the directory fires and no reader sees half of the file. The agent removes the file when it ends.
	StateFile = contract.ReadyFile

	// WaiterHeader names the client, for the journal. If a request with this header is held,
	// it gets status 102 at once, so that the client knows that it need not send another.
	WaiterHeader = "Outrider-Waiter"

	// AgentHeader is in every answer about readiness. It shows that the answer comes from an
	// agent, which can hold requests.
	AgentHeader = "Outrider-Agent"

	// MaxWait is the maximum of ?wait=; a longer wait is cut to it.
	MaxWait = 5 * time.Minute
)

// ready serves /healthz/ready[?level=full][&wait=30s][&format=text].
func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	level, err := readiness.ParseLevel(q.Get("level"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	wait, err := parseWait(q.Get("wait"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set(AgentHeader, "1")
	w.Header().Set("Cache-Control", "no-store")
	// Other pods get the last known result: their requests do not cause probes of the apps.
	if level == readiness.Full && s.o.Full != nil && peerFrom(r).place != outside {
		defer s.o.Full.Want()()
		if wait > 0 {
			processing(w, r) // the app's answer may take long
		}
		s.o.Full.Fresh(r.Context())
	}
	status := s.o.Board.Status(level)
	if !status.Ready && wait > 0 {
		var gone bool
		if status, gone = s.hold(w, r, level, wait); gone {
			return
		}
	}
	code := http.StatusServiceUnavailable
	if status.Ready {
		code = http.StatusOK
	}
	if wantsText(r, false) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(code)
		writeStatus(w, status)
		return
	}
	writeJSON(w, code, status)
}

// processing sends status 102, which means that the request is held, if the client sent [WaiterHeader].
func processing(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get(WaiterHeader) != "" {
		w.WriteHeader(http.StatusProcessing)
	}
}

// hold holds the request until the level is reached or the time wait is over; gone is true if the
// client has given the request up. If too many requests are held, hold returns the current status
// at once.
func (s *Server) hold(w http.ResponseWriter, r *http.Request, level readiness.Level, wait time.Duration) (status readiness.Status, gone bool) {
	release, ok := s.waits.acquire(peerFrom(r))
	if !ok {
		w.Header().Set("Retry-After", "1")
		return s.o.Board.Status(level), false
	}
	defer release()
	control := http.NewResponseController(w)
	// A held request may take longer than an ordinary one.
	control.SetReadDeadline(time.Time{})
	control.SetWriteDeadline(time.Now().Add(wait + answerLimit))
	client := peerFrom(r).name
	if name := r.Header.Get(WaiterHeader); name != "" {
		client = fmt.Sprintf("%.64q (%s)", name, client)
	}
	processing(w, r)
	end := s.o.Journal.Waiter(client, "level "+string(level))
	ctx, cancel := context.WithTimeoutCause(r.Context(), wait, fmt.Errorf("waited %s", wait))
	defer cancel()
	status, err := s.o.Board.Wait(ctx, level)
	switch {
	case err == nil:
		end("ready", false)
	case r.Context().Err() != nil:
		end("the client left", true)
		return status, true
	default:
		end("time is over: "+status.String(), true)
	}
	control.SetReadDeadline(time.Now().Add(bodyLimit))
	return status, false
}

func parseWait(s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(s)
	if n, bad := strconv.Atoi(s); err != nil && bad == nil && n < 1<<31 {
		d, err = time.Duration(n)*time.Second, nil
	}
	if err != nil || d < 0 {
		return 0, fmt.Errorf("wait=%.40q: want a duration, for example 30s", s)
	}
	return min(d, MaxWait), nil
}

// wantsText reports whether an answer should be text for people rather than JSON. The format in the query
// decides; without a format, the Accept header; without both, the result is the default (otherwise).
func wantsText(r *http.Request, otherwise bool) bool {
	switch r.URL.Query().Get("format") {
	case "text":
		return true
	case "json":
		return false
	}
	accept := r.Header.Get("Accept")
	switch {
	case strings.Contains(accept, "application/json"):
		return false
	case strings.Contains(accept, "text/plain"):
		return true
	}
	return otherwise
}

func writeStatus(w io.Writer, s readiness.Status) {
	since := s.Since.UTC().Format(time.RFC3339Nano)
	if s.Ready {
		fmt.Fprintf(w, "ready (%s) since %s\n", s.Level, since)
	} else {
		fmt.Fprintf(w, "not ready (%s) since %s\n", s.Level, since)
	}
	for _, r := range s.Reasons {
		fmt.Fprintf(w, "%s: %s\n", r.Code, r.Message)
		if r.Hint != "" {
			fmt.Fprintf(w, "  hint: %s\n", r.Hint)
		}
	}
	for _, n := range s.Notes {
		fmt.Fprintf(w, "note: %s\n", n.Message)
	}
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	raw, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	w.Write(append(raw, '\n'))
}

// replaceJSON atomically replaces a file by v as JSON. Other users may read the file.
func replaceJSON(path string, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return atomicfile.Write(path, append(raw, '\n'), 0o644)
}

// startup serves the journal.
func (s *Server) startup(w http.ResponseWriter, r *http.Request) {
	record := s.o.Journal.Record()
	if !wantsText(r, false) {
		writeJSON(w, http.StatusOK, record)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	record.Text(w)
}

// drain serves POST /drain. Istio's agent has the same endpoint, as it has /quitquitquit.
func (s *Server) drain(w http.ResponseWriter, r *http.Request) {
	s.o.Journal.Note("drain", "requested by "+peerFrom(r).name)
	if err := s.o.Drain(r.Context()); err != nil {
		http.Error(w, err.Error(), cmp.Or(statusOf(err), http.StatusInternalServerError))
		return
	}
	io.WriteString(w, "ok\n")
}

// stops serves the preStop hook, which the kubelet calls at the beginning of the pod's stop. It
// always succeeds: an Envoy that does not run has nothing to drain, and the kubelet would report a
// failed hook.
func (s *Server) stops(w http.ResponseWriter, r *http.Request) {
	s.o.Journal.Note("drain", "the pod stops")
	if err := s.o.Drain(r.Context()); err != nil {
		fmt.Fprintf(w, "not drained: %v\n", err)
		return
	}
	io.WriteString(w, "ok\n")
}

// statusOf returns 504 for the error of a drain that took longer than the client's time limit, else 0.
func statusOf(err error) int {
	if errors.Is(err, context.DeadlineExceeded) {
		return http.StatusGatewayTimeout
	}
	return 0
}

func (s *Server) replace(w http.ResponseWriter, r *http.Request) {
	s.o.Journal.Note("replace", "requested by "+peerFrom(r).name)
	s.o.Replace()
	io.WriteString(w, "ok\n")
}

func (s *Server) quit(w http.ResponseWriter, r *http.Request) {
	s.o.Journal.Note("quit", "requested by "+peerFrom(r).name)
	w.Header().Set("Content-Length", "3")
	io.WriteString(w, "ok\n")
	http.NewResponseController(w).Flush() // send the answer first: the process ends soon
	s.o.Quit()
}
