// Package cni is a CNI plugin that runs after the main plugin, for each new sandbox, before any
// container starts. It asks the daemon on its node to capture the connections of pods that need it, and
// returns the main plugin's result unchanged.
//
// It runs for every pod on the node. Without Outrider's annotation it does nothing. With the annotation
// it fails unless the daemon has done its part; the kubelet then retries, so the pod waits.
package cni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/node/socket"
)

// Program is the plugin's name, both in the configuration and as a file.
const Program = "outrider-cni"

// annotations is the capability by which containerd and CRI-O pass a pod's annotations to plugins.
const annotations = "io.kubernetes.cri.pod-annotations"

// Entry is the plugin's entry in a network configuration.
const Entry = `{"type":"` + Program + `","capabilities":{"` + annotations + `":true,"dns":true}}`

// The wait for a daemon that does not run is short: another process takes over within milliseconds, and
// after a longer absence the kubelet retries.
const (
	patience = 3 * time.Second
	retry    = 20 * time.Millisecond
)

// Main runs the plugin with the environment and standard input of the process, according to the CNI
// protocol, and returns the exit status.
func Main(stdout io.Writer) int {
	p := plugin{stdout: stdout, socket: contract.NodeSocket}
	nothing := func(*skel.CmdArgs) error { return nil }
	// STATUS always succeeds, because a failure would make the whole node NotReady. The node's label
	// and taint say the same only to pods that need the plugin.
	err := skel.PluginMainFuncsWithError(skel.CNIFuncs{Add: p.add, Del: p.del, Check: nothing, GC: nothing, Status: nothing},
		version.All, "Outrider's CNI plugin: outrider-node installs it; a container runtime runs it")
	if err != nil {
		_ = json.NewEncoder(stdout).Encode(err)
		return 1
	}
	return 0
}

type plugin struct {
	stdout io.Writer
	socket string
}

// conf contains the fields of the configuration that the plugin reads.
type conf struct {
	PrevResult json.RawMessage `json:"prevResult"`
	Runtime    struct {
		Annotations map[string]string `json:"io.kubernetes.cri.pod-annotations"`
		DNS         struct {
			Servers []netip.Addr `json:"servers"` // containerd writes "Servers"
		} `json:"dns"`
	} `json:"runtimeConfig"`
}

// failed returns a CNI error. Codes below 100 are defined by the specification, such as "try again
// later".
func failed(err error) error {
	return types.NewError(types.ErrTryAgainLater, "outrider-node: "+err.Error(), "")
}

func (p plugin) add(args *skel.CmdArgs) error {
	c, err := parse(args.StdinData)
	if err != nil {
		return types.NewError(types.ErrDecodingFailure, "outrider-cni: the configuration on standard input: "+err.Error(), "")
	}
	if work, ok := c.Runtime.Annotations[contract.NodeAnnotation]; ok {
		ctx, cancel := context.WithTimeoutCause(context.Background(), socket.Timeout, errors.New("no answer in time"))
		defer cancel()
		err := ask(ctx, p.socket, socket.Question{Sandbox: args.ContainerID, Pod: podOf(args.Args), Namespace: args.Netns, Work: work, Nameservers: c.Runtime.DNS.Servers})
		if err != nil {
			return failed(err)
		}
	}
	_, err = p.stdout.Write(c.PrevResult)
	return err
}

// podOf returns NAMESPACE/NAME of the pod in CNI_ARGS, which the runtimes of Kubernetes set; empty: it has none.
func podOf(args string) string {
	var namespace, name string
	for pair := range strings.SplitSeq(args, ";") {
		switch key, value, _ := strings.Cut(pair, "="); key {
		case "K8S_POD_NAMESPACE":
			namespace = value
		case "K8S_POD_NAME":
			name = value
		}
	}
	if name == "" {
		return ""
	}
	return namespace + "/" + name
}

// forgetting limits how long the end of a sandbox waits for the daemon. The runtime also reports the end to the
// daemon.
const forgetting = time.Second

// del reports to the daemon that a sandbox has ended. It never fails, because a sandbox that cannot end would
// block its pod's name.
func (p plugin) del(args *skel.CmdArgs) error {
	var c conf
	if json.Unmarshal(args.StdinData, &c) == nil && c.Runtime.Annotations[contract.NodeAnnotation] != "" {
		ctx, cancel := context.WithTimeout(context.Background(), forgetting)
		defer cancel()
		_ = socket.Ask(ctx, p.socket, socket.Question{Sandbox: args.ContainerID})
	}
	return nil
}

func parse(text []byte) (conf, error) {
	var c conf
	if err := json.Unmarshal(text, &c); err != nil {
		return c, err
	}
	if len(c.PrevResult) == 0 || string(c.PrevResult) == "null" {
		return c, errors.New("there is no prevResult: the plugin must come after the network's main plugin")
	}
	return c, nil
}

// ask sends a question to the daemon. If no daemon runs, it waits for one, but only for a few seconds.
func ask(ctx context.Context, path string, q socket.Question) error {
	waited := time.After(patience)
	for {
		err := socket.Ask(ctx, path, q)
		if !errors.Is(err, socket.ErrAbsent) {
			return err
		}
		select {
		case <-waited:
			return fmt.Errorf("%w; the pod waits for it", err)
		case <-time.After(retry):
		}
	}
}
