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
)

var update = flag.Bool("update", false, "rewrite the answers in testdata")

// A pipe is a stream without a network.
type pipe[Req, Resp any] struct {
	ctx context.Context
	in  chan Req
	mu  sync.Mutex
	out []Resp
}

func (p *pipe[Req, Resp]) Context() context.Context { return p.ctx }

func (p *pipe[Req, Resp]) Recv() (Req, error) {
	var none Req
	select {
	case r, ok := <-p.in:
		if !ok {
			return none, io.EOF
		}
		return r, nil
	case <-p.ctx.Done():
		return none, p.ctx.Err()
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

// A script is one exchange: lines of a client and of the world, and what the server says.
//
//	> cds                      a request without names
//	> cds +a -b                subscribe to a, unsubscribe from b; + alone is the name ""
//	> cds have a@1             what the client has from before
//	> cds ack 3                accept message 3; "nack 3 reason" rejects it
//	view 2                     the file "2" is now the view
//	reconnect                  a new stream
//	status                     what proxy-status would say
//	< cds #1 a@1 -b            message 1: a in version 1, b is removed
type script struct {
	t       *testing.T
	views   map[string]View
	stage   *stage
	server  *Server
	node    *core.Node
	sotw    bool
	current conversation
	out     strings.Builder
}

// A conversation is one stream in either dialect.
type conversation struct {
	say   func(words []string)
	heard func() []string
	close func()
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
			if differ := play(t, archive, true); differ != got {
				t.Errorf("with a view that says what changed (-without +with):\n%s", cmp.Diff(got, differ))
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

// play runs a script and returns it with what the server said.
func play(t *testing.T, archive *txtar.Archive, differ bool) string {
	s := &script{t: t, views: map[string]View{}}
	for _, f := range archive.Files {
		v := mustView(t, f.Name, string(f.Data))
		s.views[f.Name] = v
		if differ {
			s.views[f.Name] = &differView{v}
		}
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
	s.stage = newStage(nil)
	if v := s.views["1"]; v != nil {
		s.stage.set(v)
	}
	s.server = New(Options{Source: s.stage, Authenticate: ByClaim, MaxMessage: 1 << 20, MaxNames: 100})
	meta, _ := structpb.NewStruct(map[string]any{metaWorkload: "shop"})
	s.node = &core.Node{Id: "sidecar~10.0.0.7~shop-1.store~store.svc.cluster.local", Metadata: meta}
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
func converse[Req request, Resp proto.Message](s *script, d dialect[Req, Resp], build func([]string) Req, render func(Resp) string) conversation {
	ctx, cancel := context.WithCancel(s.t.Context())
	p := &pipe[Req, Resp]{ctx: ctx, in: make(chan Req)}
	ended := make(chan error, 1)
	go func() { ended <- serve(s.server, p, d) }()
	first := true
	return conversation{
		say: func(words []string) {
			r := build(words)
			if first {
				first = false
				reflectNode(r, s.node)
			}
			select {
			case p.in <- r:
			case err := <-ended:
				ended <- err
			}
		},
		heard: func() (out []string) {
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

func reflectNode(r any, node *core.Node) {
	switch r := r.(type) {
	case *discovery.DeltaDiscoveryRequest:
		r.Node = node
	case *discovery.DiscoveryRequest:
		r.Node = node
	}
}

func (s *script) listen() {
	synctest.Wait()
	for _, line := range s.current.heard() {
		fmt.Fprintln(&s.out, "<", line)
	}
}

func (s *script) do(words []string) {
	if len(words) == 0 || strings.HasPrefix(words[0], "#") {
		return
	}
	switch words[0] {
	case ">":
		s.current.say(words[1:])
	case "view":
		v, ok := s.views[words[1]]
		if !ok {
			s.t.Fatalf("no view %q", words[1])
		}
		s.stage.set(v)
	case "reconnect":
		s.reconnect()
	case "protocol":
		s.sotw = words[1] == "sotw"
		s.reconnect()
	case "push":
		s.server.options.Full = words[1] == "full"
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
	case "remember":
		s.server.options.Memory.Store(Workload{Namespace: "store", Name: "shop"}, words[1:])
	case "memory":
		fmt.Fprintln(&s.out, "<", strings.Join(s.server.options.Memory.Load(Workload{Namespace: "store", Name: "shop"}), " "))
	case "status":
		s.status()
	default:
		s.t.Fatalf("no command %q", words[0])
	}
}

// nodeOf is an ID and metadata; "none" is no node.
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
		fmt.Fprintf(&s.out, "< %s at view %s, excess %d\n", p.Workload, p.View, p.Excess)
		for _, ty := range p.Types {
			fmt.Fprintf(&s.out, "<   %s sent %q acked %q pending %d told %d asked %q wildcard %t", ty.Type, ty.Sent, ty.Acked, ty.Pending, ty.Told, ty.Asked, ty.Wildcard)
			if ty.Rejected != nil {
				fmt.Fprintf(&s.out, " rejected %q: %s", ty.Rejected.Version, ty.Rejected.Reason)
			}
			fmt.Fprintln(&s.out)
		}
	}
}

func typeOf(word string) string {
	if t, ok := words[word]; ok {
		return t
	}
	return word
}

// detail is what "nack" says.
func detail(words []string) *status.Status {
	return &status.Status{Code: 3, Message: strings.Join(words, " ")}
}

func (s *script) deltaRequest(words []string) *discovery.DeltaDiscoveryRequest {
	r := &discovery.DeltaDiscoveryRequest{TypeUrl: typeOf(words[0])}
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
	r := &discovery.DiscoveryRequest{TypeUrl: typeOf(words[0])}
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
	words := []string{wordOf(r.GetTypeUrl()), "#" + r.GetNonce()}
	for _, res := range r.GetResources() {
		w := res.GetName() + "@" + res.GetVersion()
		if res.GetResource() == nil {
			w += "(nothing)"
		}
		if len(res.GetAliases()) > 0 {
			w += "(" + strings.Join(res.GetAliases(), " ") + ")"
		}
		words = append(words, w)
	}
	for _, name := range r.GetRemovedResources() {
		words = append(words, "-"+name)
	}
	return strings.Join(words, " ")
}

func renderSotw(r *discovery.DiscoveryResponse) string {
	words := []string{wordOf(r.GetTypeUrl()), "#" + r.GetNonce()}
	for _, body := range r.GetResources() {
		words = append(words, nameIn(body))
	}
	return strings.Join(words, " ") + " version " + r.GetVersionInfo()
}

// nameIn is name@version of a body that bodyOf or absent made.
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
