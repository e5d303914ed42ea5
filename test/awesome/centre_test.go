package awesome

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"outrider.dev/test/ns"
)

const (
	centreAddress = "127.0.0.1:12345"
	centreURL     = "http://" + centreAddress + "/awesome-app.properties"
)

// A centre is the configuration server in a network namespace. At first nothing listens at its address.
type centre struct {
	t      *testing.T
	in     *ns.Namespace
	answer atomic.Pointer[http.HandlerFunc]
	server *http.Server
}

func newCentre(t *testing.T, in *ns.Namespace) *centre {
	c := &centre{t: t, in: in}
	t.Cleanup(func() { c.be(nil) })
	return c
}

// be sets the handler that answers requests. If the handler is nil, nothing listens.
func (c *centre) be(answer http.HandlerFunc) {
	c.t.Helper()
	c.answer.Store(&answer)
	switch {
	case answer == nil && c.server != nil:
		c.server.Close()
		c.server = nil
	case answer != nil && c.server == nil:
		var l net.Listener
		var err error
		c.in.Do(func() { l, err = net.Listen("tcp", centreAddress) })
		if err != nil {
			c.t.Fatal(err)
		}
		c.server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*c.answer.Load())(w, r) })}
		go c.server.Serve(l)
	}
}

// good answers with a valid document.
func good(level string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, "# of the centre\nlevel=%s\n", level) }
}

// taken is a valid document. It is sent as part of invalid answers, so its level must never be used.
const taken = "level=ERROR\n"

// faults are handlers of a faulty configuration server. A fault lasts until another handler is set or the caller
// disconnects.
var faults = map[string]http.HandlerFunc{
	"nothing listens": nil,
	"silence":         func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	"status 500": func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		io.WriteString(w, taken)
	},
	"a page instead of a document": func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "<!DOCTYPE html>\n<html lang=en><body>Sign in</body></html>\n")
	},
	"a level that is none": good("LOUD"),
	"a document that is cut off": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		io.WriteString(w, taken)
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	},
	"a document that trickles in": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "60000") // takes more than an hour at the pace below
		forever(w, r, "#", 100*time.Millisecond)
	},
	"a document without an end": func(w http.ResponseWriter, r *http.Request) {
		forever(w, r, strings.Repeat("#", 16<<10), 0)
	},
}

// forever sends the document [taken] and then, with pauses, the given text again and again, until the caller
// disconnects.
func forever(w http.ResponseWriter, r *http.Request, more string, pause time.Duration) {
	_, err := io.WriteString(w, taken)
	for err == nil && r.Context().Err() == nil {
		if _, err = io.WriteString(w, more); err == nil {
			err = http.NewResponseController(w).Flush()
		}
		time.Sleep(pause)
	}
}
