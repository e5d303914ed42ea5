package cni

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/node/socket"
	"outrider.dev/test/ns"
)

const (
	result = `{"cniVersion":"1.0.0","ips":[{"address":"10.9.0.2/24"}],"x":1e3}`
	work   = `{"capture":["-i","*"]}`
)

// input returns a configuration as containerd passes it to the plugin.
func input(annotations map[string]string, prev string) []byte {
	in := map[string]any{"cniVersion": "1.0.0", "name": "cbr0", "type": Program,
		"runtimeConfig": map[string]any{"io.kubernetes.cri.pod-annotations": annotations, "dns": map[string]any{"Servers": []string{"10.96.0.10"}, "Searches": nil}}}
	if prev != "" {
		in["prevResult"] = json.RawMessage(prev)
	}
	text, _ := json.Marshal(in)
	return text
}

func TestAdd(t *testing.T) {
	ns.RequireRoot(t)
	path := filepath.Join(t.TempDir(), "node.sock")
	asked := make(chan socket.Question, 1)
	answer := make(chan error, 1)
	go socket.Serve(t.Context(), path, func(_ context.Context, q socket.Question) error { asked <- q; return <-answer })
	add := func(text []byte) (string, error) {
		var out bytes.Buffer
		err := plugin{stdout: &out, socket: path}.add(&skel.CmdArgs{ContainerID: "4f", Netns: "/run/netns/a", StdinData: text})
		return out.String(), err
	}
	// The plugin has started before the daemon listens, and waits for a moment.
	answer <- nil
	if out, err := add(input(map[string]string{contract.NodeAnnotation: work}, result)); err != nil || out != result {
		t.Errorf("the result is %s, %v", out, err)
	}
	if q := <-asked; q.Sandbox != "4f" || q.Namespace != "/run/netns/a" || q.Work != work || len(q.Nameservers) != 1 || q.Nameservers[0].String() != "10.96.0.10" {
		t.Errorf("the daemon is asked %+v", q)
	}
	answer <- errors.New("no nftables")
	if out, err := add(input(map[string]string{contract.NodeAnnotation: work}, result)); err == nil || !strings.Contains(err.Error(), "no nftables") || out != "" {
		t.Errorf("a pod that is not captured: %s, %v", out, err)
	}
	<-asked
	if out, err := add(input(map[string]string{"a": "b"}, result)); err != nil || out != result || len(asked) > 0 {
		t.Errorf("a pod without the annotation: %s, %v", out, err)
	}
	answer <- errors.New("too late")
	if err := (plugin{socket: path}).del(&skel.CmdArgs{ContainerID: "4f", StdinData: input(map[string]string{contract.NodeAnnotation: work}, "")}); err != nil {
		t.Errorf("the end of a sandbox: %v", err)
	}
	if q := <-asked; q.Sandbox != "4f" || q.Namespace != "" {
		t.Errorf("at the end the daemon is asked %+v", q)
	}
	for _, text := range []string{"", "{", `{"runtimeConfig":7,"prevResult":{}}`, string(input(nil, "")), string(input(nil, "null"))} {
		if out, err := add([]byte(text)); err == nil {
			t.Errorf("%q: %s", text, out)
		}
	}
}

func TestTheDaemonDoesNotRun(t *testing.T) {
	err := ask(t.Context(), filepath.Join(t.TempDir(), "none.sock"), socket.Question{})
	if !errors.Is(err, socket.ErrAbsent) || !strings.Contains(err.Error(), "the pod waits") {
		t.Error(err)
	}
}

// As a process with the protocol's variables, the plugin reports its version, accepts a deletion for which there
// is nothing to do, and reports an error in the protocol's format.
func TestProtocol(t *testing.T) {
	if os.Getenv("CNI_COMMAND") != "" {
		os.Exit(Main(os.Stdout))
	}
	run := func(command string, stdin []byte) (string, error) {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestProtocol$")
		cmd.Env = append(os.Environ(), "CNI_COMMAND="+command, "CNI_CONTAINERID=4f", "CNI_NETNS=/run/netns/none", "CNI_IFNAME=eth0", "CNI_PATH=/opt/cni/bin", "CNI_NETNS_OVERRIDE=1")
		cmd.Stdin = bytes.NewReader(stdin)
		out, err := cmd.Output()
		return string(out), err
	}
	if out, err := run("VERSION", []byte(`{"cniVersion":"1.1.0"}`)); err != nil || !strings.Contains(out, `"supportedVersions"`) || !strings.Contains(out, `"1.1.0"`) {
		t.Errorf("VERSION: %s, %v", out, err)
	}
	for _, command := range []string{"DEL", "CHECK"} {
		if out, err := run(command, input(nil, result)); err != nil || out != "" {
			t.Errorf("%s: %s, %v", command, out, err)
		}
	}
	if out, err := run("ADD", input(nil, result)); err != nil || out != result {
		t.Errorf("ADD: %s, %v", out, err)
	}
	var failure struct {
		Code uint
		Msg  string
	}
	out, err := run("ADD", input(nil, ""))
	if err == nil || json.Unmarshal([]byte(out), &failure) != nil || failure.Code == 0 || !strings.Contains(failure.Msg, "prevResult") {
		t.Errorf("ADD without a result: %s, %v", out, err)
	}
}

func FuzzConf(f *testing.F) {
	f.Add(input(map[string]string{contract.NodeAnnotation: work}, result))
	f.Add([]byte(`{"prevResult":{},"runtimeConfig":{"dns":{"servers":["x"]}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if c, err := parse(text); err == nil && !json.Valid(c.PrevResult) {
			t.Errorf("%q has the result %q", text, c.PrevResult)
		}
	})
}

// This is the cost for pods without Outrider, because the plugin runs for every pod on the node.
func BenchmarkPodWithoutAnnotation(b *testing.B) {
	dir := b.TempDir()
	exe := filepath.Join(dir, Program)
	if out, err := exec.Command("go", "build", "-o", exe, "outrider.dev/cmd/outrider-node").CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	stdin := input(nil, result)
	for b.Loop() {
		cmd := exec.Command(exe)
		cmd.Env = []string{"CNI_COMMAND=ADD", "CNI_CONTAINERID=4f", "CNI_NETNS=/run/netns/none", "CNI_IFNAME=eth0", "CNI_PATH=/opt/cni/bin", "CNI_NETNS_OVERRIDE=1"}
		cmd.Stdin = bytes.NewReader(stdin)
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
	}
}
