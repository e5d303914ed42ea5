package nacos

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	nacosgrpc "github.com/nacos-group/nacos-sdk-go/v2/api/grpc"
	"github.com/nacos-group/nacos-sdk-go/v2/clients"
	"github.com/nacos-group/nacos-sdk-go/v2/clients/config_client"
	"github.com/nacos-group/nacos-sdk-go/v2/common/constant"
	"github.com/nacos-group/nacos-sdk-go/v2/vo"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"
	"outrider.dev/bootconfig"
	"outrider.dev/bootconfig/internal/providertest"
)

var program = flag.String("nacos", "../../.cache/configcentres/nacos/nacos.jar", "path of the server of Nacos; make centres builds it")

// fake is the part of Nacos 2 that a configuration client uses: one unary method, and a stream on which
// the server pushes changes of documents that the client watches.
type fake struct {
	nacosgrpc.UnimplementedRequestServer
	nacosgrpc.UnimplementedBiRequestStreamServer
	address string
	server  *grpc.Server

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
		if _, err := s.Recv(); err != nil { // ignores the set-up message and acknowledgements
			return nil
		}
	}
}

func (f *fake) push(k key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := range f.streams { // any order: each stream belongs to another client
		s.Send(payload("ConfigChangeNotifyRequest", map[string]any{"dataId": k.DataID, "group": k.Group, "tenant": k.Tenant, "requestId": "1", "module": "config"}))
	}
}

func sum(s string) string {
	h := md5.Sum([]byte(s))
	return hex.EncodeToString(h[:])
}

// start starts the fake; after a stop, it still has its documents.
func (f *fake) start(t *testing.T) {
	ln, err := net.Listen("tcp", f.address)
	if err != nil {
		t.Fatal(err)
	}
	f.server = grpc.NewServer()
	nacosgrpc.RegisterRequestServer(f.server, f)
	nacosgrpc.RegisterBiRequestStreamServer(f.server, f)
	go f.server.Serve(ln)
}

func (f *fake) kill(*testing.T) { f.server.Stop() }

// client returns a client of a Nacos server whose gRPC service listens on port.
func client(t *testing.T, port uint64) config_client.IConfigClient {
	t.Helper()
	// Use a folder that TestMain removes, because the client still writes to it after it is closed, when
	// t.TempDir would be removed.
	dir, err := os.MkdirTemp(".", "")
	if err != nil {
		t.Fatal(err)
	}
	c, err := clients.NewConfigClient(vo.NacosClientParam{
		ClientConfig: &constant.ClientConfig{
			TimeoutMs: 2000, CacheDir: dir + "/cache", LogDir: dir + "/log", LogLevel: "error", NotLoadCacheAtStart: true, DisableUseSnapShot: true,
		},
		ServerConfigs: []constant.ServerConfig{{IpAddr: "127.0.0.1", Port: 1, GrpcPort: port}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseClient)
	return c
}

const group = "BOOTCONFIG_TEST"

// publish writes a document. It fails while the server is still starting.
func publish(c config_client.IConfigClient, name, document string) error {
	ok, err := c.PublishConfig(vo.ConfigParam{DataId: name, Group: group, Content: document})
	if err == nil && !ok {
		err = errors.New("not published")
	}
	return err
}

func suite(t *testing.T, port int, kill, start func(*testing.T)) {
	writer := client(t, uint64(port))
	providertest.Centre{
		Provider: func(t *testing.T, name string) bootconfig.Provider {
			p, err := New(client(t, uint64(port)), name, group)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { p.Close() })
			return p
		},
		Put: func(name, document string) error { return publish(writer, name, document) },
		Delete: func(name string) error {
			_, err := writer.DeleteConfig(vo.ConfigParam{DataId: name, Group: group})
			return err
		},
		Kill: kill, Start: start, Missing: "the document does not exist",
	}.Run(t)
}

func TestAFake(t *testing.T) {
	port := providertest.Port(t)
	f := &fake{
		address:   fmt.Sprint("127.0.0.1:", port),
		documents: map[key]string{}, streams: map[nacosgrpc.BiRequestStream_RequestBiStreamServer]bool{},
	}
	f.start(t)
	t.Cleanup(func() { f.kill(t) })
	suite(t, port, f.kill, f.start)
}

// The server listens on all addresses and accepts all callers, so it must run in a network namespace. TestMain
// has started this process in one.
func TestARealServer(t *testing.T) {
	jar := providertest.Program(t, *program)
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes a network namespace")
	}
	java, err := exec.LookPath("java")
	if err != nil {
		t.Skip("needs Java: ", err)
	}
	const port = 8848
	grpcPort := port + int(constant.RpcPortOffset)
	var c config_client.IConfigClient
	server := providertest.Start(t, t.TempDir(), func() error {
		if conn, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", grpcPort)); err != nil {
			return err
		} else {
			conn.Close()
		}
		if c == nil {
			c = client(t, uint64(grpcPort))
		}
		return publish(c, "ready", "x")
	}, java, "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", // these halve the time that it takes to start
		"-Dderby.system.durability=test", // on a busy disk the database would otherwise not be ready after 10 s, and the server would give up
		"-Dnacos.home=.", "-Dnacos.standalone=true", "-jar", jar,
		"--server.address=127.0.0.1", "--server.port="+strconv.Itoa(port), "--nacos.inetutils.ip-address=127.0.0.1")
	suite(t, grpcPort, server.Kill, server.Start)
}

func TestWrongOptionsOfNacos(t *testing.T) {
	if _, err := New(nil, "a", group); err == nil {
		t.Error("no client is taken")
	}
	c := client(t, 1)
	if _, err := New(c, "", group); err == nil {
		t.Error("an empty dataID is taken")
	}
	if _, err := New(c, "a", ""); err == nil {
		t.Error("an empty group is taken")
	}
}

func TestMain(m *testing.M) {
	flag.Parse()
	var err error
	if *program, err = filepath.Abs(*program); err != nil {
		panic(err)
	}
	if _, err := os.Stat(*program); err == nil && os.Geteuid() == 0 {
		providertest.Isolate()
	}
	// In some cases the client writes its own log into the working folder.
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
