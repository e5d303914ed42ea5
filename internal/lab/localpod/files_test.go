package localpod

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/lab/localpod/containerinit"
)

// A container sees the files, links and devices that it should. Each case is a command in a container and its
// expected output.
func TestFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct{ container, script, want string }{
		"the machine's files, as a copy":            {"", "touch " + dir + "/mine /etc/mine && ls " + dir + " /etc/mine | tr '\\n' ' '", "/etc/mine  " + dir + ": mine"},
		"a read-only root":                          {"securityContext: {readOnlyRootFilesystem: true}", "touch /etc/mine 2>&1 || touch /run/x 2>&1 || touch /e/x && echo volume", "touch: cannot touch '/etc/mine': Read-only file system\ntouch: cannot touch '/run/x': Read-only file system\nvolume"},
		"a volume shared with another container":    {"", "cat /e/greeting", "hello"},
		"a part of a volume":                        {"", "ls /sub; ls -d /e/deep/er", "there\n/e/deep/er"},
		"one file of a config map":                  {"", "cat /etc/app.conf; touch /etc/app.conf 2>/dev/null || echo fixed", "key=1\nfixed"},
		"a secret with a mode, and a group":         {"", "cat /secret/password; stat -c %a /secret/password", "open sesame\n440"},
		"its own labels":                            {"", "cat /down/labels", `tier="web"`},
		"a token":                                   {"", "cat /down/token", "token for vault"},
		"files of another group":                    {"securityContext: {runAsUser: 1000}", "touch /e/x && stat -c %g /e/x; id -G", "2000\n1000 2000"},
		"only its own processes":                    {"", "echo $$$$; set -- /proc/[0-9]*; echo $#", "1\n1"},
		"what a runtime hides":                      {"", "cat /proc/timer_list | wc -c; touch /proc/sys/kernel/hostname 2>&1 | grep -c Read-only; ls /run /.outrider 2>/dev/null | wc -l", "0\n1\n1"},
		"a device that it made is of no use":        {"", "mknod /x c 1 3 && cat /x 2>&1", "cat: /x: Permission denied"},
		"its names":                                 {"", "hostname | cut -c1; grep -c $(hostname) /etc/hosts; grep -c shop.example /etc/hosts", "t\n2\n1"},
		"capabilities: the usual ones":              {"", "grep CapEff /proc/self/status | cut -f2", "00000000a80425fb"},
		"capabilities: one more, less all":          {"securityContext: {capabilities: {drop: [ALL], add: [NET_ADMIN]}}", "grep CapEff /proc/self/status | cut -f2; ip addr add 192.0.2.1/32 dev lo; ip addr | grep -c 192.0.2.1", "0000000000001000\n1"},
		"capabilities: none for a user":             {"securityContext: {runAsUser: 1000, allowPrivilegeEscalation: false}", "grep -E 'CapEff|NoNewPrivs' /proc/self/status | cut -f2", "0000000000000000\n1"},
		"a port below 1024 for a user":              {"securityContext: {runAsUser: 1000}", "cat /proc/sys/net/ipv4/ip_unprivileged_port_start", "0"},
		"variables in variables and in the command": {"env: [{name: A, value: a}, {name: B, value: '$(A)b $$(A) $(C)'}]", "echo $B '$(A)'", "ab $(A) $(C) a"},
		"the environment that it is given":          {"env: [{name: M, valueFrom: {resourceFieldRef: {resource: requests.memory, divisor: 1Mi}}}], resources: {requests: {memory: 64Mi}}, envFrom: [{prefix: C_, configMapRef: {name: conf}}]", "echo $M $C_level $HOME $PATH; env | wc -l", "64 3 /root /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n8"},
		"a working directory that it finds":         {"workingDir: /e", "pwd", "/e"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			text := `
metadata: {name: files, labels: {tier: web}}
spec:
  restartPolicy: Never
  securityContext: {fsGroup: 2000}
  hostAliases: [{ip: 192.0.2.7, hostnames: [shop.example]}]
  volumes:
  - {name: e, emptyDir: {}}
  - {name: conf, configMap: {name: conf, items: [{key: app, path: app.conf}]}}
  - {name: secret, secret: {secretName: s, defaultMode: 256}}
  - name: down
    projected:
      sources:
      - {downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}
      - {serviceAccountToken: {path: token, audience: vault}}
  initContainers:
  - {name: before, command: [sh, -c, "echo hello > /e/greeting; touch /sub/there"], volumeMounts: [{name: e, mountPath: /e}, {name: e, mountPath: /sub, subPath: deep/er}]}
  containers:
  - {name: app, command: [sh, -c, SCRIPT], volumeMounts: [{name: e, mountPath: /e}, {name: e, mountPath: /sub, subPath: deep/er}, {name: conf, mountPath: /etc/app.conf, subPath: app.conf, readOnly: true},
     {name: secret, mountPath: /secret, readOnly: true}, {name: down, mountPath: /down}], CONTAINER}
`
			quoted := strings.ReplaceAll(strings.ReplaceAll(tt.script, `\`, `\\`), `"`, `\"`)
			text = strings.ReplaceAll(strings.ReplaceAll(text, "SCRIPT", `"`+quoted+`"`), ", CONTAINER", strings.TrimSuffix(", "+tt.container, ", "))
			o := w.options(text)
			o.ConfigMaps = []corev1.ConfigMap{{ObjectMeta: metav1.ObjectMeta{Name: "conf"}, Data: map[string]string{"app": "key=1\n", "level": "3"}}}
			o.Secrets = []corev1.Secret{{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Data: map[string][]byte{"password": []byte("open sesame\n")}}}
			o.Token = func(audience string) ([]byte, error) { return []byte("token for " + audience), nil }
			w.wait(w.run(o))
			if diff := cmp.Diff(tt.want, strings.TrimSpace(w.logOf("app"))); diff != "" {
				t.Errorf("it saw (-want +got):\n%s", diff)
			}
		})
	}
	t.Cleanup(func() {
		for _, made := range []string{filepath.Join(dir, "mine"), "/etc/mine", "/x", "/e", "/sub", "/down", "/secret", containerinit.OldRoot} {
			if _, err := os.Lstat(made); err == nil {
				t.Errorf("the machine has %s", made)
			}
		}
	})
}

// On a kernel without overlays, containers see the machine's directories read-only, and can still write to
// volumes.
func TestWithoutOverlay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.options(`
metadata: {name: bare}
spec:
  volumes: [{name: v, emptyDir: {}}]
  containers: [{name: app, command: [sh, -c, "touch /usr/x 2>/dev/null || touch /v/x /x && ls /v /proc/self/status"], volumeMounts: [{name: v, mountPath: /v}]}]
`)
	o.setDefaults()
	f := facts{Options: &o, node: "node", host: w.node.Addresses(), addrs: w.node.Addresses()}
	box, err := w.node.newSandbox(9, facts{Options: &o, addrs: mustAddrs(t, w.node)})
	if err != nil {
		t.Fatal(err)
	}
	defer box.Close()
	specs, err := f.specs(box.dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	specs[0].order.Root.Overlay = false
	specs[0].order.Root.Files = nil // without an overlay, /etc is read-only, and these files cannot be written
	var lines []string
	c, err := box.start(specs[0], func(l string) { lines = append(lines, l) })
	if err != nil {
		t.Fatal(err)
	}
	if code := c.wait(); code != 0 || len(lines) < 2 {
		t.Errorf("exit code %d, %q", code, lines)
	}
}
