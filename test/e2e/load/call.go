package load

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"
)

const (
	// excerpt is the number of bytes of an answer that a failure contains.
	excerpt = 500
	// longest is the maximum length of an answer. The answer of a hundred tiers is shorter.
	longest = 64 << 10
)

// A Failure is a call that did not get the expected answer.
type Failure struct {
	Client      string   `json:",omitempty"` // one of Clients; empty for the call of a tier
	From        string   // the pod that called
	To          string   // the host that the pod called
	Number      string   `json:",omitempty"` // of a POST, the same in all tiers; empty for a GET
	Sent, Ended int64    // times of the request and of the failure, in nanoseconds since 1970
	Connection  string   `json:",omitempty"` // "new", or the idle time; both connections if the client retried
	Local       string   `json:",omitempty"` // local address of the connection
	TimedOut    bool     `json:",omitempty"`
	Status      int      `json:",omitempty"`
	Server      string   `json:",omitempty"` // Server header of the answer
	Text        string   `json:",omitempty"` // the error, or the beginning of the answer
	Cause       *Failure `json:",omitempty"` // the failure that the called tier reported in its answer
}

// Root returns the last failure in a chain of tiers, which caused the others.
func (f Failure) Root() Failure {
	for f.Cause != nil {
		f = *f.Cause
	}
	return f
}

// digits matches the parts that differ between failures of the same kind.
var digits = regexp.MustCompile(`[0-9]+`)

// Kind returns a description that all failures of the same kind share.
func (f Failure) Kind() string {
	root := f.Root()
	service, _, _ := strings.Cut(root.From, "-")
	text := digits.ReplaceAllString(root.Text[:min(len(root.Text), 100)], "#")
	return fmt.Sprintf("%s: %s -> %s: %d %s", f.Client, service, root.To, root.Status, text)
}

// String returns one line for the failure, and one for each cause.
func (f Failure) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s -> %s (%s %s) sent %s, after %s: ", f.Client, f.From, f.To, f.Connection, f.Local,
		time.Unix(0, f.Sent).UTC().Format("15:04:05.000"), time.Duration(f.Ended-f.Sent).Round(time.Millisecond))
	if f.Status != 0 {
		fmt.Fprintf(&b, "status %d of %q ", f.Status, f.Server)
	}
	b.WriteString(f.Text)
	if f.Cause != nil {
		fmt.Fprintf(&b, "\n    because %s", f.Cause)
	}
	return strings.TrimSpace(b.String())
}

// A sender sends a request and returns the answer. It stores the facts about its connection in f.
type sender func(ctx context.Context, to *url.URL, f *Failure) (*http.Response, error)

// numberHeader contains the number of a POST.
const numberHeader = "X-Number"

// call makes one call and returns the answer: a POST if it has a number, else a GET. An answer with another status than 200, or with another text than the
// argument want, is a failure; if want is empty, any text is accepted.
func call(ctx context.Context, send sender, from, to, number, want string) (answer string, failure *Failure) {
	f := &Failure{From: from, To: to, Number: number, Sent: time.Now().UnixNano()}
	body, err := exchange(ctx, send, f)
	f.Ended = time.Now().UnixNano()
	switch {
	case err != nil:
		f.Text = err.Error()
		if len(body) > 0 {
			f.Text += fmt.Sprintf(" after %q", body[:min(len(body), excerpt)])
		}
		f.TimedOut = ctx.Err() != nil || errors.Is(err, os.ErrDeadlineExceeded)
	case f.Status == Passed && json.Unmarshal(body, &f.Cause) == nil && f.Cause != nil:
	case f.Status != http.StatusOK || want != "" && string(body) != want:
		f.Text = string(body[:min(len(body), excerpt)])
	default:
		return string(body), nil
	}
	return "", f
}

func exchange(ctx context.Context, send sender, f *Failure) (body []byte, err error) {
	to, err := url.Parse(f.To)
	if err != nil {
		return nil, err
	}
	f.To = to.Host
	resp, err := send(ctx, to, f)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	f.Status, f.Server = resp.StatusCode, resp.Header.Get("Server")
	return io.ReadAll(io.LimitReader(resp.Body, longest))
}

// transport is configured as in most Go programs, with a few connections for each host. It retries by itself when
// a reused connection is closed without an answer, which also happens without a mesh.
func transport() *http.Transport {
	return &http.Transport{MaxIdleConnsPerHost: 8, IdleConnTimeout: 90 * time.Second, DisableCompression: true}
}

// kept returns a sender that uses persistent connections.
func kept() sender { return through(transport()) }

func through(t *http.Transport) sender {
	return func(ctx context.Context, to *url.URL, f *Failure) (*http.Response, error) {
		trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
			how := "new"
			if info.Reused {
				how = fmt.Sprintf("idle %s", info.IdleTime.Round(time.Millisecond))
			}
			f.Connection = strings.TrimPrefix(f.Connection+", "+how, ", ")
			f.Local = info.Conn.LocalAddr().String()
		}}
		method, body := http.MethodGet, io.Reader(nil)
		if f.Number != "" {
			method, body = http.MethodPost, strings.NewReader(f.Number)
		}
		req, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), method, to.String(), body)
		if err != nil {
			return nil, err
		}
		if f.Number != "" {
			req.Header.Set(numberHeader, f.Number)
		}
		return t.RoundTrip(req)
	}
}

// slowly sends over a new connection, on which it writes nothing for the time [silence].
func slowly(ctx context.Context, to *url.URL, f *Failure) (*http.Response, error) {
	address := to.Host
	if to.Port() == "" {
		address = net.JoinHostPort(to.Hostname(), "80")
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	f.Connection, f.Local = "new", conn.LocalAddr().String()
	resp, err := afterSilence(ctx, conn, to, f)
	if err != nil {
		conn.Close()
		return nil, err
	}
	resp.Body = bodyOf{resp.Body, conn}
	return resp, nil
}

func afterSilence(ctx context.Context, conn net.Conn, to *url.URL, f *Failure) (*http.Response, error) {
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return nil, err
		}
	}
	time.Sleep(silence)
	f.Sent = time.Now().UnixNano() // the request is in flight from now on
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", to.RequestURI(), to.Host); err != nil {
		return nil, err
	}
	return http.ReadResponse(bufio.NewReader(conn), nil)
}

// A bodyOf is the body of an answer. Close closes the connection too.
type bodyOf struct {
	io.ReadCloser
	conn net.Conn
}

func (b bodyOf) Close() error { return errors.Join(b.ReadCloser.Close(), b.conn.Close()) }
