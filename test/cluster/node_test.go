package cluster_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"outrider.dev/test/cluster"
	"outrider.dev/test/process"
)

// agent is a DaemonSet that changes its node: it installs a CNI plugin behind the others, and
// mounts something for other pods.
const agent = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      terminationGracePeriodSeconds: 1
      hostNetwork: true
      containers:
      - name: agent
        image: ` + cluster.BaseImage + `
        command:
        - sh
        - -ec
        - |
          cat >/opt/cni/bin/.mark <<'EOF'
          #!/bin/sh
          config=$(cat)
          case $CNI_COMMAND in
          ADD) echo "$CNI_ARGS" >>/run/agent/added; echo "$config" | sed 's/.*"prevResult":\({.*}\),"type".*/\1/' ;;
          VERSION) echo '{"cniVersion":"0.4.0","supportedVersions":["0.4.0"]}' ;;
          esac
          EOF
          chmod +x /opt/cni/bin/.mark
          mv /opt/cni/bin/.mark /opt/cni/bin/mark
          sed 's/{"type": "portmap".*/&,{"type":"mark"}/' /etc/cni/net.d/10-pods.conflist >/etc/cni/net.d/.10-pods
          mv /etc/cni/net.d/.10-pods /etc/cni/net.d/05-marked.conflist
          mkdir -p /var/lib/agent/shared
          mount -t tmpfs agent /var/lib/agent/shared
          echo mounted >/var/lib/agent/shared/file
          exec sleep 1h
        securityContext: {privileged: true}
        volumeMounts:
        - {name: lib, mountPath: /var/lib/agent, mountPropagation: Bidirectional}
        - {name: run, mountPath: /run/agent}
        - {name: bin, mountPath: /opt/cni/bin}
        - {name: net, mountPath: /etc/cni/net.d}
      volumes:
      - {name: lib, hostPath: {path: /var/lib/agent, type: DirectoryOrCreate}}
      - {name: run, hostPath: {path: /run/agent, type: DirectoryOrCreate}}
      - {name: bin, hostPath: {path: /opt/cni/bin}}
      - {name: net, hostPath: {path: /etc/cni/net.d}}
`

// user is a pod that has what the agent mounts.
const user = `
apiVersion: v1
kind: Pod
metadata: {name: user}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: user
    image: ` + cluster.BaseImage + `
    command: [sh, -c, "sleep 1h & wait"]
    volumeMounts: [{name: lib, mountPath: /lib/agent, mountPropagation: HostToContainer}]
  volumes: [{name: lib, hostPath: {path: /var/lib/agent, type: DirectoryOrCreate}}]
`

// TestNode is about what happens to a node, and not to a pod alone.
func TestNode(t *testing.T) {
	needCluster(t)
	nightly(t)
	o := options(t, "")
	if err := cluster.Build(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	before := look(t)
	c := up(t, o)
	g := guest{c}
	g.apply(t, user)
	g.wait(t, "Ready", "pod/user")
	g.apply(t, agent)
	t.Run("a DaemonSet's mounts reach the node and pods that run", func(t *testing.T) { testMounts(t, g) })
	t.Run("a CNI plugin that a DaemonSet installs is called", func(t *testing.T) { testPlugin(t, g) })
	t.Run("a container waits for the NRI plugin that its pod requires", func(t *testing.T) { testRequiredPlugin(t, g) })
	t.Run("a container has the programs of another image", func(t *testing.T) { testImageVolume(t, g) })
	t.Run("containerd restarts and pods run on", func(t *testing.T) { testRestartRuntime(t, g) })
	t.Run("a test inside does the same", func(t *testing.T) { testFromInside(t, g) })
	t.Run("the node reboots without drain", func(t *testing.T) { testReboot(t, g) })
	t.Run("and again", func(t *testing.T) { testReboot(t, g) })
	if err := c.Down(); err != nil {
		t.Error(err)
	}
	before.wantNothingLeft(t)
}

func testMounts(t *testing.T, g guest) {
	for _, reader := range [][]string{
		{"cat", "/var/lib/agent/shared/file"},
		{"kubectl", "exec", "user", "--", "cat", "/lib/agent/shared/file"},
	} {
		g.eventually(t, "mounted", reader[0], reader[1:]...)
	}
}

func testPlugin(t *testing.T, g guest) {
	// Pods are made in the old way until containerd has seen the new configuration.
	for range 50 {
		g.kubectl(t, "delete", "pod", "user")
		g.apply(t, user)
		g.wait(t, "Ready", "pod/user")
		if _, err := g.run(t, "grep", "K8S_POD_NAME=user", "/run/agent/added"); err == nil {
			return
		}
	}
	t.Error("the plugin was called for none of 50 pods")
}

// needNRI skips a test of what the distribution's containerd does not have.
func needNRI(t *testing.T, g guest) {
	t.Helper()
	if have, need := g.Runtime(), "containerd-2"; have != need {
		t.Skipf("the runtime is %s, and has neither NRI nor image volumes: set RUNTIME=%s", have, need)
	}
}

func testRequiredPlugin(t *testing.T, g guest) {
	needNRI(t, g)
	if out, err := g.run(t, "test", "-S", "/var/run/nri/nri.sock"); err != nil {
		t.Errorf("plugins have no socket to connect to: %v: %s", err, out)
	}
	g.apply(t, strings.ReplaceAll(user, "{name: user}", `{name: waits, annotations: {required-plugins.noderesource.dev: "[absent]"}}`))
	const waiting = ".status.containerStatuses[0].state.waiting"
	g.kubectl(t, "wait", "--for=jsonpath={"+waiting+".reason}=CreateContainerError", "pod/waits", "--timeout=5m")
	if got := g.kubectl(t, "get", "pod", "waits", "--output=jsonpath={"+waiting+".message}"); !strings.Contains(got, `required plugin "absent" not present`) {
		t.Errorf("it waits for another reason: %s", got)
	}
	g.kubectl(t, "delete", "pod", "waits")
}

// imageVolume is a pod whose own image has one program, which is not the one that it runs.
const imageVolume = `
apiVersion: v1
kind: Pod
metadata: {name: volume}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: app
    image: test.outrider.dev/pause:1
    command: [/tools/bin/busybox, sleep, 1h]
    volumeMounts: [{name: tools, mountPath: /tools}]
  volumes: [{name: tools, image: {reference: "` + cluster.BaseImage + `", pullPolicy: Never}}]
`

func testImageVolume(t *testing.T, g guest) {
	needNRI(t, g)
	g.apply(t, imageVolume)
	g.wait(t, "Ready", "pod/volume")
	g.kubectl(t, "delete", "pod", "volume")
}

// insideVariable names the cluster's directory to this program when it is run inside.
const insideVariable = "OUTRIDER_TEST_INSIDE"

func testFromInside(t *testing.T, g guest) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := g.Enter(t.Context(), self, "-test.run=^TestFromInside$", "-test.v")
	cmd.Env = append(cmd.Env, insideVariable+"="+g.Dir())
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestFromInside ") {
		t.Errorf("%v:\n%s", err, out)
	}
}

func TestFromInside(t *testing.T) {
	dir := os.Getenv(insideVariable)
	if dir == "" {
		t.Skip("is run in a cluster, by TestNode")
	}
	c, err := cluster.Inside(dir)
	if err != nil {
		t.Fatal(err)
	}
	testRestartRuntime(t, guest{c})
	if err := c.Down(); err == nil {
		t.Error("a test inside of a cluster ended it and is there")
	}
}

func testRestartRuntime(t *testing.T, g guest) {
	process, err := g.run(t, "pidof", "containerd")
	if err != nil {
		t.Fatal(err)
	}
	container := g.container(t)
	start := time.Now()
	if err := g.RestartRuntime(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("containerd answers after %v", time.Since(start).Round(time.Millisecond))
	if now, err := g.run(t, "pidof", "containerd"); err != nil || now == process {
		t.Errorf("containerd is process %s, and was %s: %v", now, process, err)
	}
	g.newPod(t)
	if now := g.container(t); now != container {
		t.Errorf("the container is %s, and was %s", now, container)
	}
	g.eventually(t, "mounted", "kubectl", "exec", "user", "--", "cat", "/lib/agent/shared/file")
}

// testReboot leaves on the node what a reboot takes away, and what it does not.
func testReboot(t *testing.T, g guest) {
	g.wait(t, "Ready", "pod/user")
	const onDisk, inMemory = "/opt/kept /etc/kept /var/lib/kept", "/run/lost /var/lib/agent/mount/lost"
	const leave = "mkdir -p /var/lib/agent/mount; mount -t tmpfs lost /var/lib/agent/mount; nft add table inet lost; touch "
	if out, err := g.run(t, "sh", "-ec", leave+onDisk+" "+inMemory); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const boot = "--output=jsonpath={.status.nodeInfo.bootID}"
	booted, shims, container := g.kubectl(t, "get", "node", "node1", boot), g.shims(t), g.container(t)
	servers, _ := g.run(t, "pidof", "etcd", "kube-apiserver", "coredns")

	start := time.Now()
	if err := g.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("the node is ready after %v", time.Since(start).Round(time.Millisecond))

	if now := g.kubectl(t, "get", "node", "node1", boot); now == booted {
		t.Errorf("the boot ID is %s as before", now)
	}
	if now, _ := g.run(t, "pidof", "etcd", "kube-apiserver", "coredns"); now != servers {
		t.Errorf("the control plane runs as processes %s, and was %s", now, servers)
	}
	if out, err := g.run(t, "ls", strings.Fields(onDisk)...); err != nil {
		t.Errorf("gone from the disk: %s", out)
	}
	for _, file := range strings.Fields(inMemory) {
		if out, err := g.run(t, "ls", file); err == nil {
			t.Errorf("outlived the reboot: %s", out)
		}
	}
	if out, err := g.run(t, "nft", "list", "table", "inet", "lost"); err == nil {
		t.Errorf("outlived the reboot: %s", out)
	}
	process.Eventually(t, "another container than "+container, func() bool { return g.container(t) != container })
	g.wait(t, "Ready", "pod/user")
	for _, shim := range g.shims(t) {
		if slices.Contains(shims, shim) {
			t.Errorf("the shim %s outlived the reboot", shim)
		}
	}
	g.newPod(t)
	testMounts(t, g) // the DaemonSet's pod is back
	if out, err := g.run(t, "kubectl", "--server=https://10.96.0.1", "get", "nodes"); err != nil {
		t.Errorf("the Service of the API server: %v: %s", err, out)
	}
}

// run runs a command on the node.
func (g guest) run(t *testing.T, name string, args ...string) (string, error) {
	t.Helper()
	out, err := g.Enter(t.Context(), name, args...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func (g guest) apply(t *testing.T, manifest string) {
	t.Helper()
	if err := g.Apply(t.Context(), manifest); err != nil {
		t.Fatal(err)
	}
}

// eventually waits until a command prints want.
func (g guest) eventually(t *testing.T, want, name string, args ...string) {
	t.Helper()
	var got string
	for start := time.Now(); time.Since(start) < 5*time.Minute; time.Sleep(100 * time.Millisecond) {
		if got, _ = g.run(t, name, args...); got == want {
			return
		}
	}
	t.Errorf("%s %s: %q, want %q", name, strings.Join(args, " "), got, want)
}

// container returns the id of the user's container that runs.
func (g guest) container(t *testing.T) string {
	t.Helper()
	return g.kubectl(t, "get", "pod", "user", "--output=jsonpath={.status.containerStatuses[0].containerID}")
}

// shims returns the processes that hold containers.
func (g guest) shims(t *testing.T) []string {
	t.Helper()
	out, _ := g.run(t, "pidof", "containerd-shim-runc-v2") // fails if there are none
	return strings.Fields(out)
}

// newPod shows that pods can be made.
func (g guest) newPod(t *testing.T) {
	t.Helper()
	g.apply(t, strings.ReplaceAll(user, "{name: user}", "{name: new}"))
	g.wait(t, "Ready", "pod/new")
	g.kubectl(t, "delete", "pod", "new")
}
