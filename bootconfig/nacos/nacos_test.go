package nacos

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	nacosgrpc "github.com/nacos-group/nacos-sdk-go/v2/api/grpc"
	"github.com/nacos-group/nacos-sdk-go/v2/clients"
	"github.com/nacos-group/nacos-sdk-go/v2/clients/config_client"
	"github.com/nacos-group/nacos-sdk-go/v2/common/constant"
	"github.com/nacos-group/nacos-sdk-go/v2/vo"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"
	"outrider.dev/bootconfig"
)

// The suite runs on a fake, or on a real Nacos without authentication: go test -nacos
// 127.0.0.1:8848. It writes documents of the group BOOTCONFIG_TEST. The fake is not the real one,
// whose server is in no package registry; it speaks to the real client.
var address = flag.String("nacos", "", "host:port of a real Nacos 2; default: a fake of its gRPC service")

// fake is the part of Nacos 2 that a client of configurations calls: one unary method and one
// stream, on which changes of what a client listens to are pushed.
type fake struct {
	nacosgrpc.UnimplementedRequestServer
	nacosgrpc.UnimplementedBiRequestStreamServer
	mu        sync.Mutex
	documents map[key]string
	streams   map[nacosgrpc.BiRequestStream_RequestBiStreamServer]bool
}

type key struct {
	DataID string `json:"dataId"`
	Group  string `json:"group"`
	Tenant string `json:"tenant"`
}

func payload(kind string, body map[string]any) *nacosgrpc.Payload {
	data, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	return &nacosgrpc.Payload{Metadata: &nacosgrpc.Metadata{Type: kind}, Body: &anypb.Any{Value: data}}
}

func (f *fake) Request(_ context.Context, p *nacosgrpc.Payload) (*nacosgrpc.Payload, error) {
	var q struct {
		key
		Content  string `json:"content"`
		Contexts []struct {
			key
			MD5 string `json:"md5"`
		} `json:"configListenContexts"`
	}
	if err := json.Unmarshal(p.Body.Value, &q); err != nil {
		return nil, err
	}
	kind := strings.Replace(p.Metadata.Type, "Request", "Response", 1)
	body := map[string]any{"resultCode": 200, "success": true}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch p.Metadata.Type {
	case "ServerCheckRequest":
		body["connectionId"] = "fake"
	case "ConfigQueryRequest":
		content, ok := f.documents[q.key]
		if !ok {
			return payload(kind, map[string]any{"resultCode": 500, "errorCode": 300, "success": false, "message": "config data not exist"}), nil
		}
		body["content"], body["md5"] = content, sum(content)
	case "ConfigPublishRequest":
		f.documents[q.key] = q.Content
		go f.push(q.key)
	case "ConfigRemoveRequest":
		delete(f.documents, q.key)
		go f.push(q.key)
	case "ConfigBatchListenRequest":
		kind = "ConfigChangeBatchListenResponse"
		changed := []key{}
		for _, c := range q.Contexts {
			if content, ok := f.documents[c.key]; ok && sum(content) != c.MD5 {
				changed = append(changed, c.key)
			}
		}
		body["changedConfigs"] = changed
	}
	return payload(kind, body), nil
}

func (f *fake) RequestBiStream(s nacosgrpc.BiRequestStream_RequestBiStreamServer) error {
	f.mu.Lock()
	f.streams[s] = true
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.streams, s)
	}()
	for {
		if _, err := s.Recv(); err != nil { // the set-up, and acknowledgements
			return nil
		}
	}
}

func (f *fake) push(k key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := range f.streams { // any order: each is another client
		s.Send(payload("ConfigChangeNotifyRequest", map[string]any{"dataId": k.DataID, "group": k.Group, "tenant": k.Tenant, "requestId": "1", "module": "config"}))
	}
}

func sum(s string) string {
	h := md5.Sum([]byte(s))
	return hex.EncodeToString(h[:])
}

// client returns a client of a Nacos, and what ends the fake.
func client(t *testing.T) (config_client.IConfigClient, func()) {
	t.Helper()
	server, stop := constant.ServerConfig{}, func() {}
	if *address != "" {
		host, port, err := net.SplitHostPort(*address)
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			t.Fatal(err)
		}
		server.IpAddr, server.Port = host, n
	} else {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		f := &fake{documents: map[key]string{}, streams: map[nacosgrpc.BiRequestStream_RequestBiStreamServer]bool{}}
		s := grpc.NewServer()
		nacosgrpc.RegisterRequestServer(s, f)
		nacosgrpc.RegisterBiRequestStreamServer(s, f)
		go s.Serve(ln)
		stop = s.Stop
		server.IpAddr, server.Port = "127.0.0.1", 1
		server.GrpcPort = uint64(ln.Addr().(*net.TCPAddr).Port)
	}
	t.Cleanup(stop)
	// Below the folder of TestMain: the client writes to it after it is closed.
	dir, err := os.MkdirTemp(".", "")
	if err != nil {
		t.Fatal(err)
	}
	c, err := clients.NewConfigClient(vo.NacosClientParam{
		ClientConfig: &constant.ClientConfig{
			TimeoutMs: 2000, CacheDir: dir + "/cache", LogDir: dir + "/log", LogLevel: "error", NotLoadCacheAtStart: true, DisableUseSnapShot: true,
		},
		ServerConfigs: []constant.ServerConfig{server},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseClient)
	return c, stop
}

const group = "BOOTCONFIG_TEST"

func publish(t *testing.T, c config_client.IConfigClient, id, text string) {
	t.Helper()
	if ok, err := c.PublishConfig(vo.ConfigParam{DataId: id, Group: group, Content: text}); err != nil || !ok {
		t.Fatalf("publishing: %v, %v", ok, err)
	}
}

func TestADocumentOfNacos(t *testing.T) {
	c, stop := client(t)
	if _, err := c.DeleteConfig(vo.ConfigParam{DataId: "settings", Group: group}); err != nil {
		t.Fatal(err)
	}
	p, err := New(c, "settings", group)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, err := p.Fetch(t.Context(), bootconfig.Request{}); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("before it exists: %v", err)
	}
	publish(t, c, "settings", "one")
	first, err := p.Fetch(t.Context(), bootconfig.Request{})
	if err != nil || string(first.Data) != "one" {
		t.Fatalf("%q, %v", first.Data, err)
	}
	known := bootconfig.Request{Version: first.Version}
	if _, err := p.Fetch(t.Context(), known); !errors.Is(err, bootconfig.ErrUnchanged) {
		t.Errorf("again: %v", err)
	}
	known.Wait = 50 * time.Millisecond
	if _, err := p.Fetch(t.Context(), known); !errors.Is(err, bootconfig.ErrUnchanged) {
		t.Errorf("held: %v", err)
	}
	known.Wait = time.Minute
	fetched := make(chan string, 1)
	go func() {
		d, err := p.Fetch(context.Background(), known)
		if err != nil {
			t.Error(err)
		}
		fetched <- string(d.Data)
	}()
	publish(t, c, "settings", "two")
	if got := <-fetched; got != "two" {
		t.Errorf("after the change: %q", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Fetch(ctx, known); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if *address != "" {
		return
	}
	// The client must not answer from its own files.
	stop()
	if d, err := p.Fetch(t.Context(), bootconfig.Request{}); err == nil {
		t.Errorf("without a server: %q", d.Data)
	}
}

func TestTheWholeWayFromNacos(t *testing.T) {
	c, _ := client(t)
	publish(t, c, "level", `{"level":"info"}`)
	p, err := New(c, "level", group)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	type settings struct{ Level string }
	config, err := bootconfig.Open(t.Context(), bootconfig.Options[settings]{Provider: p, Refresh: time.Second, LongPoll: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer config.Close()
	levels := make(chan string, 10)
	config.OnChange(func(s bootconfig.Snapshot[settings]) {
		if s.Value.Level != "" {
			levels <- s.Value.Level
		}
	})
	if got := <-levels; got != "info" {
		t.Errorf("level %q", got)
	}
	publish(t, c, "level", `{"level":"debug"}`)
	if got := <-levels; got != "debug" {
		t.Errorf("level %q", got)
	}
}

func TestWrongOptionsOfNacos(t *testing.T) {
	if _, err := New(nil, "a", group); err == nil {
		t.Error("no client is taken")
	}
	c, _ := client(t)
	if _, err := New(c, "", group); err == nil {
		t.Error("an empty dataID is taken")
	}
	if _, err := New(c, "a", ""); err == nil {
		t.Error("an empty group is taken")
	}
}

func TestMain(m *testing.M) {
	flag.Parse()
	// The client writes a log of its own into the working folder in some cases.
	dir, err := os.MkdirTemp("", "nacos.*")
	if err != nil {
		panic(err)
	}
	if err := os.Chdir(dir); err != nil {
		panic(err)
	}
	status := m.Run()
	os.RemoveAll(dir)
	os.Exit(status)
}
