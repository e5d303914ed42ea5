package xds

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"google.golang.org/genproto/googleapis/rpc/status"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/wire"
)

var update = flag.Bool("update", false, "rewrite the responses in testdata")

// A pipe is a stream without a network.
type pipe[Req proto.Message, Resp any] struct {
	ctx context.Context
	in  chan Req
	mu  sync.Mutex
	out []Resp
}

func (p *pipe[Req, Resp]) Context() context.Context { return p.ctx }

func (p *pipe[Req, Resp]) RecvMsg(v any) (err error) {
	select {
	case r, ok := <-p.in:
		if !ok {
			return io.EOF
		}
		*v.(*frame), err = proto.Marshal(r)
		return err
	case <-p.ctx.Done():
		return p.ctx.Err()
	}
}

func (p *pipe[Req, Resp]) Send(r Resp) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out = append(p.out, r)
	return nil
}

func (p *pipe[Req, Resp]) taken() []Resp {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.out
	p.out = nil
	return out
}

// A script is one exchange: commands, requests of a client and the server's messages.
//
//	> cds                      a request without names
//	> cds +a -b                subscribe to a, unsubscribe from b; + alone is the name ""
//	> cds have a@1             the client has a in version 1 from before
//	> cds ack 3                an ACK of message 3; "nack 3 reason" is a NACK
//	snapshot 2                 the file "2" is now the snapshot
//	wait 1s                    this time passes
//	reconnect                  a new stream
//	restart                    a new server, and a new stream
//	status                     the content of proxy-status
//	< cds #1 a@1 -b            message 1: a in version 1, b is removed
type script struct {
	t         *testing.T
	snapshots map[string]Snapshot
	source    *testSource
	server    *Server
	node      *core.Node
	sotw      bool
	current   conversation
	out       strings.Builder
}

// A conversation is one stream of either protocol.
type conversation struct {
	send     func(words []string)
	received func() []string
	close    func()
}

func TestExchanges(t *testing.T) {
	files, err := filepath.Glob("testdata/exchanges/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no exchanges: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		t.Run(name, func(t *testing.T) {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			archive := txtar.Parse(raw)
			got := play(t, archive, false)
			if known := play(t, archive, true); known != got {
				t.Errorf("with a snapshot that knows what changed (-without +with):\n%s", cmp.Diff(got, known))
			}
			if *update {
				archive.Comment = []byte(got)
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(string(archive.Comment), got); diff != "" {
				t.Errorf("%s (-want +got), -update rewrites it:\n%s", file, diff)
			}
		})
	}
}

// play runs a script and returns it with the server's messages filled in.
func play(t *testing.T, archive *txtar.Archive, diffs bool) string {
	s := &script{t: t, snapshots: map[string]Snapshot{}}
	for _, f := range archive.Files {
		v := mustSnapshot(t, f.Name, string(f.Data))
		v.diffs = diffs
		s.snapshots[f.Name] = v
	}
	synctest.Test(t, func(t *testing.T) {
		s.t = t
		s.begin()
		for line := range strings.Lines(string(archive.Comment)) {
			line = strings.TrimRight(line, "\n")
			if strings.HasPrefix(line, "<") {
				continue
			}
			fmt.Fprintln(&s.out, line)
			s.do(strings.Fields(line))
			s.listen()
		}
		s.current.close()
		synctest.Wait()
		if n := s.server.Counters().Streams; n != 0 {
			t.Errorf("%d streams are left at the end", n)
		}
	})
	return s.out.String()
}

func (s *script) begin() {
	s.source = newTestSource(nil)
	if v := s.snapshots["1"]; v != nil {
		s.source.set(v)
	}
	meta, _ := structpb.NewStruct(map[string]any{contract.MetadataWorkload: "shop"})
	s.node = &core.Node{Id: "sidecar~10.0.0.7~shop-1.store~store.svc.cluster.local", Metadata: meta}
	s.start()
}

func (s *script) start() {
	s.server = New(Options{Source: s.source, Authenticate: ByClaim, MaxMessage: 1 << 20, MaxNames: 100})
	s.reconnect()
}

func (s *script) reconnect() {
	if s.current.close != nil {
		s.current.close()
		synctest.Wait()
	}
	if s.sotw {
		s.current = converse(s, sotw{}, s.sotwRequest, renderSotw)
		return
	}
	s.current = converse(s, delta{s.server.options.MaxMessage}, s.deltaRequest, renderDelta)
}

// converse opens a stream.
func converse[Req discoveryRequest, Resp proto.Message](s *script, d protocol[Req, Resp], build func([]string) Req, render func(Resp) string) conversation {
	ctx, cancel := context.WithCancel(s.t.Context())
	p := &pipe[Req, Resp]{ctx: ctx, in: make(chan Req)}
	ended := make(chan error, 1)
	go func() { ended <- serve(s.server, p, d) }()
	return conversation{
		send: func(words []string) {
			r := build(words)
			select {
			case p.in <- r:
			case err := <-ended:
				ended <- err
			}
		},
		received: func() (out []string) {
			for _, m := range p.taken() {
				out = append(out, render(m))
			}
			select {
			case err := <-ended:
				out = append(out, fmt.Sprintf("end %s: %s", grpcstatus.Code(err), grpcstatus.Convert(err).Message()))
			default:
			}
			return out
		},
		close: cancel,
	}
}

func (s *script) listen() {
	synctest.Wait()
	for _, line := range s.current.received() {
		fmt.Fprintln(&s.out, "<", line)
	}
}

func (s *script) do(words []string) {
	if len(words) == 0 || strings.HasPrefix(words[0], "#") {
		return
	}
	switch words[0] {
	case ">":
		s.current.send(words[1:])
	case "snapshot":
		v, ok := s.snapshots[words[1]]
		if !ok {
			s.t.Fatalf("no snapshot %q", words[1])
		}
		s.source.set(v)
	case "wait":
		d, err := time.ParseDuration(words[1])
		if err != nil {
			s.t.Fatal(err)
		}
		time.Sleep(d) // in the synctest bubble
	case "reconnect":
		s.reconnect()
	case "restart":
		s.start()
	case "protocol":
		s.sotw = words[1] == "sotw"
		s.reconnect()
	case "node":
		s.node = nodeOf(words[1:])
		s.reconnect()
	case "names":
		s.server.options.MaxNames, _ = strconv.Atoi(words[1])
		s.reconnect()
	case "message":
		s.server.options.MaxMessage, _ = strconv.Atoi(words[1])
		s.reconnect()
	case "prewarm":
		s.server.options.Prewarm.Add(Workload{Namespace: "store", Name: "shop"}, words[1:])
	case "prewarmed":
		fmt.Fprintf(&s.out, "< %q\n", s.server.options.Prewarm.Get(Workload{Namespace: "store", Name: "shop"}))
	case "status":
		s.status()
	default:
		s.t.Fatalf("no command %q", words[0])
	}
}

// nodeOf returns a node with an ID and metadata; nil for "none".
func nodeOf(words []string) *core.Node {
	if words[0] == "none" {
		return nil
	}
	fields := map[string]any{}
	for _, w := range words[1:] {
		k, v, _ := strings.Cut(w, "=")
		fields[k] = v
	}
	meta, _ := structpb.NewStruct(fields)
	return &core.Node{Id: words[0], Metadata: meta}
}

func (s *script) status() {
	for _, p := range s.server.Proxies() {
		fmt.Fprintf(&s.out, "< %s at snapshot %s, over limit %d\n", p.Workload, p.Snapshot, p.Excess)
		for _, ty := range p.Types {
			fmt.Fprintf(&s.out, "<   %s sent %q acked %q pending %d resources %d subscribed %q wildcard %t", ty.Type, ty.Sent, ty.Acked, ty.Pending, ty.Resources, ty.Subscribed, ty.Wildcard)
			if ty.Rejected != nil {
				fmt.Fprintf(&s.out, " rejected %q: %s", ty.Rejected.Version, ty.Rejected.Reason)
			}
			fmt.Fprintln(&s.out)
		}
	}
}

func typeOf(word string) string {
	if t, ok := typeNames[word]; ok {
		return t
	}
	return word
}

// detail returns the error of a NACK.
func detail(words []string) *status.Status {
	return &status.Status{Code: 3, Message: strings.Join(words, " ")}
}

func (s *script) deltaRequest(words []string) *discovery.DeltaDiscoveryRequest {
	r := &discovery.DeltaDiscoveryRequest{Node: s.node, TypeUrl: typeOf(words[0])}
	words = words[1:]
	for i := 0; i < len(words); i++ {
		switch w := words[i]; {
		case w[0] == '+':
			r.ResourceNamesSubscribe = append(r.ResourceNamesSubscribe, w[1:])
		case w[0] == '-':
			r.ResourceNamesUnsubscribe = append(r.ResourceNamesUnsubscribe, w[1:])
		case w == "have":
			r.InitialResourceVersions = map[string]string{}
			for _, h := range words[i+1:] {
				name, version, _ := strings.Cut(h, "@")
				r.InitialResourceVersions[name] = version
			}
			return r
		case w == "ack", w == "nack":
			r.ResponseNonce = words[i+1]
			if w == "nack" {
				r.ErrorDetail = detail(words[i+2:])
				return r
			}
			i++
		default:
			s.t.Fatalf("no word %q of a request", w)
		}
	}
	return r
}

func (s *script) sotwRequest(words []string) *discovery.DiscoveryRequest {
	node := proto.CloneOf(s.node)
	node.UserAgentName = "gRPC Go"
	r := &discovery.DiscoveryRequest{Node: node, TypeUrl: typeOf(words[0])}
	words = words[1:]
	for i := 0; i < len(words); i++ {
		switch w := words[i]; w {
		case "ack":
			r.ResponseNonce = words[i+1]
			i++
		case "nack":
			r.ResponseNonce, r.ErrorDetail = words[i+1], detail(words[i+2:])
			return r
		default:
			r.ResourceNames = append(r.ResourceNames, w)
		}
	}
	return r
}

func renderDelta(r *discovery.DeltaDiscoveryResponse) string {
	words := []string{abbreviation(r.GetTypeUrl()), "#" + r.GetNonce()}
	for _, res := range r.GetResources() {
		w := res.GetName() + "@" + res.GetVersion()
		if res.GetResource() == nil {
			w += "(no body)"
		}
		if len(res.GetAliases()) > 0 {
			w += "(" + strings.Join(res.GetAliases(), " ") + ")"
		}
		words = append(words, w)
	}
	for _, name := range r.GetRemovedResources() {
		words = append(words, "-"+name)
	}
	wire.Fields(r.ProtoReflect().GetUnknown(), func(f wire.Field) error {
		words = append(words, fmt.Sprintf("field %d: %s", f.Number, f.Bytes))
		return nil
	})
	return strings.Join(words, " ")
}

func renderSotw(r *discovery.DiscoveryResponse) string {
	words := []string{abbreviation(r.GetTypeUrl()), "#" + r.GetNonce()}
	for _, body := range r.GetResources() {
		words = append(words, nameIn(body))
	}
	return strings.Join(words, " ") + " version " + r.GetVersionInfo()
}

// nameIn returns name@version from a body that bodyOf or notFound made.
func nameIn(body *anypb.Any) string {
	m, err := body.UnmarshalNew()
	if err != nil {
		return err.Error()
	}
	switch m := m.(type) {
	case *cluster.Cluster:
		return m.GetName() + "@" + m.GetAltStatName()
	case *endpoint.ClusterLoadAssignment:
		return m.GetClusterName() + "@" + strings.Join(sortedKeys(m.GetNamedEndpoints()), "")
	case *listener.Listener:
		return m.GetName() + "@" + m.GetStatPrefix()
	case *route.RouteConfiguration:
		return m.GetName() + "@" + strings.Join(m.GetInternalOnlyHeaders(), "")
	}
	return string(body.MessageName())
}
