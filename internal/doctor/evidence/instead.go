package evidence

import (
	"bytes"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/base/cli/visible"
)

// MostInstead is the largest number of bytes of a text that stands in place of a log.
const MostInstead = 4 << 10

var (
	// ofLogs matches what kubectl, the API server and the kubelet say when there is no log to give. Sources:
	// k8s.io/kubectl/pkg/cmd/logs, pkg/registry/core/pod, pkg/kubelet (kubelet_pods.go, kuberuntime).
	ofLogs = regexp.MustCompile(`^(?:Error from server\b.*(?:/containerLogs/|\bpods/log\b|container "?[\w.-]+"? in pod|container [\w.-]+ is not valid for pod|a container name must be specified)` +
		`|error: (?:a container name must be specified|container [\w.-]+ is not valid for pod|cannot get the logs from|expected 'logs|no logs found)` +
		`|unable to retrieve container logs for |failed to try resolving symlinks in path |failed to get container status )`)
	// ofClient matches what kubectl says of any request: also in the log of a container that runs kubectl.
	ofClient = regexp.MustCompile(`^(?:Error from server\b|Unable to connect to the server: |The connection to the server \S+ was refused|error: (?:You must be logged in to the server|context "|stat .*kubeconfig))`)
	// ofService matches the addresses of the API server that a pod has: its Service, and the default of kubectl.
	ofService = regexp.MustCompile(`(?:\d+\.){3}\d+:443\b|localhost:8080\b`)
	// chooses matches the note with which kubectl begins when it chose the container itself.
	chooses = regexp.MustCompile(`^Default(?:ed|ing) container `)
	// usesClient matches images and commands with which a container talks to the API server as kubectl does.
	usesClient = regexp.MustCompile(`(?i)kube|\boc\b|k8s|helm|argo|flux`)
)

// OfKubectl reports whether a line is an answer of kubectl, the API server or the kubelet about a log, and none of a
// container.
func OfKubectl(line []byte) bool { return ofLogs.Match(line) }

// Instead returns the answer of kubectl that a text has in place of the log of a container; empty: it may be the log.
// What kubectl says of any request counts if nothing shows that the container itself runs kubectl, nor names an address
// that a pod calls.
func (p *Pod) Instead(text []byte, container string) (says string) {
	spec := slices.Concat(p.Object.Spec.InitContainers, p.Object.Spec.Containers)
	i := slices.IndexFunc(spec, func(c corev1.Container) bool { return c.Name == container })
	asks := i < 0 || usesClient.MatchString(strings.Join(slices.Concat([]string{container, spec[i].Image}, spec[i].Command, spec[i].Args), " "))
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(line)
		switch {
		case len(line) == 0 || chooses.Match(line):
		case OfKubectl(line), !asks && ofClient.Match(line) && !ofService.Match(line):
			if says == "" {
				says = visible.Text(string(line))
			}
		default:
			return ""
		}
	}
	return says
}
