package localpod

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/lab/localpod/containerinit"
	"outrider.dev/test/ns"
)

// A pod that could change the machine is refused before anything is created. The error names the field.
func TestAPodThatWouldChangeTheMachineIsRefused(t *testing.T) {
	const pod = "spec: {POD containers: [{name: app, command: [\"true\"], volumeMounts: [{name: v, mountPath: /v}], CONTAINER}], volumes: [{name: v, VOLUME}]}"
	tests := map[string]struct {
		pod, container, volume string
		keys                   []string // keys of the ConfigMap
		field                  string
	}{
		"a privileged container":           {container: "securityContext: {privileged: true}", field: "spec.containers[0].securityContext.privileged"},
		"SYS_ADMIN":                        {container: "securityContext: {capabilities: {add: [SYS_ADMIN]}}", field: "spec.containers[0].securityContext.capabilities.add"},
		"SYS_PTRACE, which we run with":    {container: "securityContext: {capabilities: {add: [CAP_SYS_PTRACE], drop: [ALL]}}", field: "spec.containers[0].securityContext.capabilities.add"},
		"all capabilities but one":         {container: "securityContext: {capabilities: {add: [ALL], drop: [CHOWN]}}", field: "spec.containers[0].securityContext.capabilities.add"},
		"a parameter of the kernel":        {pod: "securityContext: {sysctls: [{name: net.ipv4.ip_forward, value: \"1\"}, {name: kernel.core_pattern, value: x}]},", field: "spec.securityContext.sysctls[1].name"},
		"a parameter by a path":            {pod: "securityContext: {sysctls: [{name: net/../kernel/core_pattern, value: x}]},", field: "spec.securityContext.sysctls[0].name"},
		"a parameter by dots":              {pod: "securityContext: {sysctls: [{name: net....kernel.core_pattern, value: x}]},", field: "spec.securityContext.sysctls[0].name"},
		"a key that leads out of a volume": {volume: "configMap: {name: c}", keys: []string{"../../../tmp/outrider-hostile"}, field: "spec.volumes[0].configMap"},
		"two dots as a key":                {volume: "configMap: {name: c}", keys: []string{".."}, field: "spec.volumes[0].configMap"},
		"a path that leads out":            {volume: "configMap: {name: c, items: [{key: k, path: ../x}]}", keys: []string{"k"}, field: "spec.volumes[0].configMap.items[0].path"},
		"the machine's files":              {volume: "hostPath: {path: /etc}", field: "spec.volumes[0].hostPath"},
		"the machine's network":            {pod: "hostNetwork: true,", field: "spec.hostNetwork"},
		"the machine's processes":          {pod: "hostPID: true,", field: "spec.hostPID"},
	}
	addrs := []netip.Addr{netip.MustParseAddr("10.244.0.2")}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.volume == "" {
				tt.volume = "emptyDir: {}"
			}
			var w world
			w.t = t
			o := w.options(strings.NewReplacer("POD ", tt.pod, ", CONTAINER", strings.TrimSuffix(", "+tt.container, ", "), "VOLUME", tt.volume).Replace(pod))
			data := map[string]string{}
			for _, k := range tt.keys {
				data[k] = "x"
			}
			o.ConfigMaps = []corev1.ConfigMap{{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Data: data}}
			o.setDefaults()
			err := facts{Options: &o, host: addrs, addrs: addrs}.check()
			var refused *SpecError
			if !errors.As(err, &refused) || refused.Field != tt.field {
				t.Errorf("%v, want a refusal of %s", err, tt.field)
			}
			o.AllowPrivileged = true
			if err := (facts{Options: &o, host: addrs, addrs: addrs}).check(); strings.Contains(tt.field, "containers[0]") && err != nil {
				t.Errorf("though it is allowed: %v", err)
			}
		})
	}
}

// Files that a container leaves in a shared volume cannot redirect a later container's mount to the machine's
// files, and a device that a container creates cannot be opened.
func TestAContainerStaysWithinItsFiles(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	w := newWorld(t)
	w.wait(w.run(w.options(strings.ReplaceAll(`
metadata: {name: hostile}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  volumes: [{name: e, emptyDir: {}}, {name: f, emptyDir: {}}]
  initContainers:
  - {name: before, command: [sh, -c, "ln -s OUTSIDE /e/link; mknod /dev/disk c 1 5; mknod /dev/shm/disk c 1 5; mknod /e/disk c 1 5; for d in /dev/disk /dev/shm/disk /e/disk; do head -c 1 $d 2>&1; done; true"], volumeMounts: [{name: e, mountPath: /e}]}
  containers:
  - {name: app, command: ["true"], volumeMounts: [{name: e, mountPath: /e}, {name: f, mountPath: /e/link/in}, {name: f, mountPath: OUTSIDE/by-name}]}
`, "OUTSIDE", containerinit.OldRoot+outside))))
	if made, err := os.ReadDir(outside); err != nil || len(made) > 0 {
		t.Errorf("mount points were made among the machine's files: %v, %v", made, err)
	}
	if got := strings.Count(w.logOf("before"), "Permission denied"); got != 3 {
		t.Errorf("%d devices of 3 are of no use:\n%s", got, w.logOf("before"))
	}
}

// A container cannot overwrite this program through /proc/PID/exe of a process that has not executed the command
// yet.
func TestTheProgramIsReadOnlyToContainers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var s unix.Statfs_t
	if err := unix.Statfs(fmt.Sprintf("/proc/%d/exe", w.node.keeper.Process.Pid), &s); err != nil {
		t.Fatal(err)
	}
	if s.Flags&unix.ST_RDONLY == 0 {
		t.Error("the program of the node's first process is on a mount that can be written")
	}
}

// A program whose main does not call Become cannot create a node, because it would start itself endlessly.
func TestAForgetfulProgramMakesNoNode(t *testing.T) {
	ns.RequireRoot(t)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), asWhat+"=forgetful")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "containerinit.Become") {
		t.Errorf("%v: %s", err, out)
	}
}
