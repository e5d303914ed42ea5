package gate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"outrider.dev/internal/base/cli/visible"
	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/agent/state"
	"outrider.dev/startup"
)

// missing explains why an edge blocks, and where to find out more. The explanation comes from the
// dependency's record, from the last answer if there is no record, or from the reasons that the
// proxy publishes for not being ready.
func (g *gate) missing(e startup.Edge, seen state.Seen) string {
	logs := "see kubectl logs POD -c " + e.From
	got := g.polls.answer(e.From)
	switch {
	case !seen.Known && got.responded:
		return "it answers " + oneLine(got.problem) + "; " + logs
	case !seen.Known && got.problem != "":
		return "no answer: " + oneLine(got.problem) + "; kubectl describe pod shows whether it has started"
	case !seen.Known:
		return "it has not started; kubectl describe pod shows why"
	case seen.Phase == state.Ended:
		return fmt.Sprintf("it ended with status %d; %s --previous", seen.Code, logs)
	case !seen.Alive:
		return "it was killed; " + logs + " --previous"
	case seen.Phase == state.Waiting:
		return "it waits itself" + unfinished(seen.Waited)
	}
	if why := g.notReady(e.From); why != "" {
		return "it runs, not ready: " + why + "; " + logs
	}
	return "it runs; " + logs
}

// unfinished names the conditions that a container itself still waits for.
func unfinished(waits []state.Wait) string {
	var out []string
	for _, w := range waits {
		if w.By == "" {
			out = append(out, w.For)
		}
	}
	if len(out) == 0 {
		return ""
	}
	return " until " + oneLine(strings.Join(out, ", "))
}

// notReady returns the first reason that the proxy's agent has published for not being ready: the
// first reason is the cause of the others. The result is empty if there is no reason.
func (g *gate) notReady(container string) string {
	text, err := state.ReadOther(g.o.Place.States, container, contract.ReadyFile)
	var status struct {
		Reasons []struct{ Code, Message string }
	}
	if err != nil || json.Unmarshal(text, &status) != nil || len(status.Reasons) == 0 {
		return ""
	}
	first := status.Reasons[0]
	return oneLine(first.Code + ": " + first.Message)
}

// lineLimit is the maximum length, in bytes, of a text from another container or a server in a log line. The
// longest reasons of the proxy, with an address and a chain of errors, have some 200 bytes.
const lineLimit = 300

// oneLine cleans and cuts text of another container for a line of the log.
func oneLine(s string) string {
	s = visible.Plain(strings.Join(strings.Fields(s[:min(len(s), lineLimit)]), " "))
	if len(s) > lineLimit {
		s = strings.ToValidUTF8(s[:lineLimit], "")
	}
	return s
}

// problemOf describes an answer that is no success, by its status and the first line of its body.
func problemOf(resp *http.Response) string {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, lineLimit)) // the part before an error is enough
	line, _, _ := strings.Cut(strings.TrimSpace(string(body)), "\n")
	if line == "" {
		return fmt.Sprint("status ", resp.StatusCode)
	}
	return fmt.Sprintf("status %d: %s", resp.StatusCode, line)
}

// cause strips the method and the URL from an HTTP client's error.
func cause(err error) string {
	var of *url.Error
	if errors.As(err, &of) {
		err = of.Err
	}
	return err.Error()
}
