package mesh

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/test/authorization"
	"outrider.dev/test/process"
	"outrider.dev/test/tier"
)

// A question is a request of the matrix.
type question struct {
	path authorization.PathRow
	host authorization.HostRow
}

func (q question) String() string { return q.path.Written + " of " + q.host.String() }

// target is the request target that the application gets.
func (q question) target() string {
	if _, query, ok := strings.Cut(q.path.Written, "?"); ok {
		return q.path.Base + "?" + query
	}
	return q.path.Base
}

// http1 returns the request in HTTP/1.1.
func (q question) http1() string {
	target := q.path.Written
	if q.host.Absolute != "" {
		target = "http://" + q.host.Absolute + target
	}
	out := "GET " + target + " HTTP/1.1\r\n"
	for _, h := range q.host.Headers {
		out += "Host: " + h + "\r\n"
	}
	return out + "\r\n"
}

// Outcomes of a request.
const (
	answered = "answered" // by the application, which got the path and the host that the matrix names
	denied   = "denied"
	invalid  = "invalid" // Envoy refuses it itself
)

// A real Envoy refuses exactly the requests that the matrix of package authorization says. The log has the matrix as two
// tables, of paths and of hosts: what Istio's documentation says of each, whether the values of each kind name it, and
// what the policies did, x for a refused request and o for one that was answered.
func TestMatrix(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := &door{shop: &shop{world: w, server: w.pod("server", "server"), plain: w.pod("plain", "plain")}}
	var ports []mesh.PortSpec
	for _, c := range authorization.Cells {
		ports = append(ports, port(c.Port, mesh.HTTP))
		go describe(d.server.listen(c.Port))
	}
	w.service("matrix", "10.96.0.9", "server", ports...)
	d.server.proxied()
	d.policies(t, authorization.MatrixPolicies(t)...)
	got := make([]map[string]string, len(authorization.Cells))
	var wg sync.WaitGroup
	for i, c := range authorization.Cells {
		wg.Go(func() { got[i] = d.matrix(t, c, "HTTP/1.1", d.ask1, deciding(c)) })
		wg.Go(func() {
			got := d.matrix(t, c, "HTTP/2", d.ask2, slices.DeleteFunc(deciding(c), func(q question) bool { return !q.isHTTP2() }))
			d.matrix(t, c, "HTTP/2", d.ask2, crossed(c, got))
		})
	}
	wg.Wait()
	printMatrix(t, got)
}

// crossed returns a sample of the requests with any path and any host that HTTP/2 can express, which those do that got
// an answer.
func crossed(c authorization.Cell, got map[string]string) (out []question) {
	path, host := decisive(c)
	for _, p := range authorization.Paths {
		for _, h := range authorization.Hosts {
			q := question{p, h}
			if q.isHTTP2() && got[question{p, host}.String()] != invalid && got[question{path, h}.String()] != invalid && tier.Sample(c.Place.Name+c.Kind.Name+q.String(), 8) {
				out = append(out, q)
			}
		}
	}
	return out
}

// isHTTP2 reports whether HTTP/2 has a form for the request.
func (q question) isHTTP2() bool { return q.host.Absolute == "" && len(q.host.Headers) == 1 }

// decisive returns a path and a host with which the other property decides what the policy of a cell does.
func decisive(c authorization.Cell) (path authorization.PathRow, host authorization.HostRow) {
	want := authorization.Yes
	if strings.HasPrefix(c.Place.Paths, "not") {
		want = authorization.No
	}
	for _, p := range authorization.Paths {
		if path.Base == "" && c.Path(p) == want {
			path = p
		}
	}
	for _, h := range authorization.Hosts {
		if host.Headers == nil && c.Host(h) == want {
			host = h
		}
	}
	return path, host
}

// deciding returns the requests in which the path or the host alone decides.
func deciding(c authorization.Cell) (out []question) {
	path, host := decisive(c)
	for _, p := range authorization.Paths {
		out = append(out, question{p, host})
	}
	for _, h := range authorization.Hosts {
		out = append(out, question{path, h})
	}
	return out
}

// matrix makes requests to a cell's port and compares the outcomes with what the matrix says. Requests with another
// outcome are repeated, because Envoy's threads may apply new policies later than they appear in its configuration.
func (d *door) matrix(t *testing.T, c authorization.Cell, protocol string, ask func(port uint16, all []question) map[string]string, all []question) map[string]string {
	out := map[string]string{}
	process.EventuallyEqual(t, fmt.Sprintf("%s, %s, %s: differences", c.Place.Name, c.Kind.Name, protocol), "", func() string {
		var wrong []question
		var differences strings.Builder
		for q, outcome := range ask(c.Port, all) { // any order: independent requests
			out[q] = outcome
		}
		for _, q := range all {
			want := answered
			if c.Refused(q.path, q.host) {
				want = denied
			}
			if got := out[q.String()]; got != want && (protocol == "HTTP/1.1" || got != invalid) {
				wrong = append(wrong, q)
				fmt.Fprintf(&differences, "\n%s (%s) of %s (%s): %s", q.path.Written, c.Path(q.path), q.host, c.Host(q.host), got)
			}
		}
		all = wrong
		return differences.String()
	}, d.envoys...)
	return out
}

// inParallel divides requests between connections of a few requests each, and merges the outcomes.
func inParallel(all []question, ask func(all []question, out map[string]string)) map[string]string {
	out := map[string]string{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for some := range slices.Chunk(all, 32) {
		wg.Go(func() {
			got := map[string]string{}
			ask(some, got)
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(out, got)
		})
	}
	wg.Wait()
	return out
}

// connect connects to a port of the server. A response that does not come within [process.Patience] is an error.
func (d *door) connect(port uint16) (net.Conn, error) {
	c, err := d.plain.dial(context.Background(), "tcp", net.JoinHostPort(d.server.v4.String(), strconv.Itoa(int(port))))
	if err == nil {
		c.SetDeadline(time.Now().Add(process.Patience))
	}
	return c, err
}

// ask1 makes requests one after the other, and the remaining ones on a next connection if Envoy closes this one. They are
// not pipelined, because Envoy closes a connection that has two of which it refuses both.
func (d *door) ask1(port uint16, all []question) map[string]string {
	return inParallel(all, func(all []question, out map[string]string) {
		for len(all) > 0 {
			c, err := d.connect(port)
			if err != nil {
				out[all[0].String()] = err.Error()
				return
			}
			in := bufio.NewReader(c)
			for open := true; open && len(all) > 0; all = all[1:] {
				io.WriteString(c, all[0].http1())
				r, err := http.ReadResponse(in, nil)
				if err != nil {
					out[all[0].String()], open = err.Error(), false
					continue
				}
				body, _ := io.ReadAll(r.Body)
				out[all[0].String()], open = outcome(r.StatusCode, string(body), all[0]), !r.Close
			}
			c.Close()
		}
	})
}

func outcome(status int, body string, q question) string {
	switch {
	case status == http.StatusForbidden && body == "RBAC: access denied":
		return denied
	case status == http.StatusOK && body == q.target()+" "+q.host.Sent:
		return answered
	case status == http.StatusBadRequest || status == http.StatusNotFound:
		return invalid
	}
	return fmt.Sprintf("%d %s", status, body)
}

// ask2 makes requests as concurrent streams. Envoy closes the connection because of one that is not valid: those without
// a response are repeated, each on a connection of its own.
func (d *door) ask2(port uint16, all []question) map[string]string {
	return inParallel(all, func(all []question, out map[string]string) {
		d.streams(port, all, out)
		for _, q := range all {
			if out[q.String()] == "" {
				d.streams(port, []question{q}, out)
			}
			if out[q.String()] == "" {
				out[q.String()] = invalid
			}
		}
	})
}

// streams makes requests on one connection of HTTP/2, until all have a response or Envoy closes it.
func (d *door) streams(port uint16, all []question, out map[string]string) {
	c, err := d.connect(port)
	if err != nil {
		return
	}
	defer c.Close()
	var sent, block bytes.Buffer
	sent.WriteString(http2.ClientPreface)
	f := http2.NewFramer(&sent, bufio.NewReader(c))
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	f.WriteSettings()
	encoder := hpack.NewEncoder(&block)
	for i, q := range all {
		block.Reset()
		for _, h := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", q.host.Headers[0]}, {":path", q.path.Written}} {
			encoder.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
		}
		f.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true})
	}
	f.WriteSettingsAck()
	c.Write(sent.Bytes())
	status, body := map[uint32]int{}, map[uint32]string{}
	for open := len(all); open > 0; {
		frame, err := f.ReadFrame()
		if err != nil {
			return
		}
		id, ended := frame.Header().StreamID, frame.Header().Flags.Has(http2.FlagDataEndStream)
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			status[id], _ = strconv.Atoi(frame.PseudoValue("status"))
		case *http2.DataFrame:
			body[id] += string(frame.Data())
		case *http2.RSTStreamFrame:
			open--
			continue
		default:
			continue
		}
		if ended {
			open--
			q := all[id/2]
			out[q.String()] = outcome(status[id], body[id], q)
		}
	}
}

// describe answers each request, over HTTP/1.1 or HTTP/2, with its target and its host as they are written. A server of
// package net/http would reject some.
func describe(l net.Listener) {
	accept(l, func(c net.Conn) {
		in := bufio.NewReader(c)
		if start, _ := in.Peek(3); string(start) == "PRI" {
			describeStreams(c, in)
			return
		}
		for {
			var target, host string
			for first := true; ; first = false {
				line, err := in.ReadString('\n')
				if err != nil {
					return
				}
				line = strings.TrimRight(line, "\r\n")
				if line == "" {
					break
				}
				if first {
					target = strings.Fields(line)[1]
				} else if value, ok := strings.CutPrefix(line, "host:"); ok {
					host = strings.TrimSpace(value)
				}
			}
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s %s", len(target)+1+len(host), target, host)
		}
	})
}

func describeStreams(c net.Conn, in *bufio.Reader) {
	in.Discard(len(http2.ClientPreface))
	f := http2.NewFramer(c, in)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	f.WriteSettings()
	var block strings.Builder
	encoder := hpack.NewEncoder(&block)
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				f.WriteSettingsAck()
			}
		case *http2.MetaHeadersFrame:
			block.Reset()
			encoder.WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
			f.WriteHeaders(http2.HeadersFrameParam{StreamID: frame.StreamID, BlockFragment: []byte(block.String()), EndHeaders: true})
			f.WriteData(frame.StreamID, true, []byte(frame.PseudoValue("path")+" "+frame.PseudoValue("authority")))
		}
	}
}

// printMatrix logs the outcomes as tables.
func printMatrix(t *testing.T, got []map[string]string) {
	t.Helper()
	var out strings.Builder
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	head := func(first ...string) {
		fmt.Fprint(table, "\n", strings.Join(first, "\t"))
		for _, k := range authorization.Kinds {
			fmt.Fprint(table, "\t", k.Name)
		}
		fmt.Fprintln(table)
	}
	row := func(verdict func(authorization.Cell) authorization.Verdict, q func(authorization.Cell) question) {
		for i, c := range authorization.Cells {
			if c.Place == authorization.Places[0] {
				fmt.Fprintf(table, "\t%s ", verdict(c))
			}
			if got[i][q(c).String()] == denied {
				fmt.Fprint(table, "x")
			} else {
				fmt.Fprint(table, "o")
			}
		}
		fmt.Fprintln(table)
	}
	head("path", "normalised (BASE)")
	for _, p := range authorization.Paths {
		fmt.Fprintf(table, "%s\t%s", p.Written, p.Base)
		row(func(c authorization.Cell) authorization.Verdict { return c.Path(p) }, func(c authorization.Cell) question {
			_, host := decisive(c)
			return question{p, host}
		})
	}
	head("host", "it is")
	for _, h := range authorization.Hosts {
		fmt.Fprintf(table, "%s\t%s", h, h.Says)
		row(func(c authorization.Cell) authorization.Verdict { return c.Host(h) }, func(c authorization.Cell) question {
			path, _ := decisive(c)
			return question{path, h}
		})
	}
	table.Flush()
	var legend strings.Builder
	for _, k := range authorization.Kinds {
		fmt.Fprintf(&legend, "\n%s: paths %v, hosts %v", k.Name, k.Paths, k.Hosts)
	}
	t.Logf("For each kind of values: whether they name the path or host (yes, no, ? for what servers read differently), and whether a\n"+
		"policy refused it (x) or the application answered (o), with the values in DENY, ALLOW, not… of DENY, not… of ALLOW.%s\n%s", legend.String(), out.String())
}
