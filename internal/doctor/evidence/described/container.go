package described

import (
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A unit reads the lines of a container.
type unit struct {
	kind   string // section
	indent int    // of its keys
	key    string // the last one
	sub    string // the last one of a state
	spec   corev1.Container
	status corev1.ContainerStatus
	known  Known
	has    bool // it has a state
	state  *corev1.ContainerState
	argv   *[]string // the command or the arguments, while they are read
}

// line reads a line of a container.
func (u *unit) line(text string) {
	indent, key, value, _, is := cut(text)
	read, known := unitFields[key]
	if u.indent < 0 {
		if !is || !known {
			return
		}
		u.indent = indent
	}
	switch {
	case is && known && indent == u.indent:
		u.key, u.sub, u.argv = key, "", nil
		read(u, value)
	case u.argv != nil:
		u.argument(text)
	case u.state != nil && (u.key == "State" || u.key == "Last State"):
		u.ofState(key, value, text)
	case u.key == "Limits", u.key == "Requests":
		u.resource(text)
	case u.key == "Environment":
		u.variable(text)
	case u.key == "Environment Variables from":
		u.variables(text)
	case u.key == "Mounts":
		u.mount(text)
	}
}

// unitFields has the fields of a container.
var unitFields = map[string]func(u *unit, value string){
	"Container ID":               func(u *unit, v string) { u.status.ContainerID = v },
	"Image":                      func(u *unit, v string) { u.spec.Image = v },
	"Image ID":                   func(u *unit, v string) { u.status.ImageID = v },
	"Port":                       (*unit).ports,
	"Ports":                      (*unit).ports,
	"Host Port":                  func(*unit, string) {},
	"Host Ports":                 func(*unit, string) {},
	"SeccompProfile":             func(*unit, string) {},
	"Command":                    func(u *unit, v string) { u.argv = &u.spec.Command },
	"Args":                       func(u *unit, v string) { u.argv = &u.spec.Args },
	"State":                      func(u *unit, v string) { u.begin(&u.status.State, v) },
	"Last State":                 func(u *unit, v string) { u.begin(&u.status.LastTerminationState, v) },
	"Ready":                      func(u *unit, v string) { u.status.Ready = v == "True" },
	"Restart Count":              (*unit).restarts,
	"Restart Policy":             (*unit).policy,
	"Limits":                     func(*unit, string) {},
	"Requests":                   func(*unit, string) {},
	"Liveness":                   func(u *unit, v string) { u.spec.LivenessProbe = probe(v) },
	"Readiness":                  func(u *unit, v string) { u.spec.ReadinessProbe = probe(v) },
	"Startup":                    func(u *unit, v string) { u.spec.StartupProbe = probe(v) },
	"Environment":                func(*unit, string) {},
	"Environment Variables from": func(*unit, string) {},
	"Mounts":                     func(*unit, string) {},
	"Devices":                    func(*unit, string) {},
}

func (u *unit) restarts(value string) {
	if n := number(value); n >= 0 {
		u.status.RestartCount, u.known.Restarts = int32(n), true
	}
}

func (u *unit) policy(value string) {
	p := corev1.ContainerRestartPolicy(value)
	u.spec.RestartPolicy = &p
}

// argument reads a line of a command. A line with less indent than its first belongs to an argument that has several
// lines, as do all lines after the option of a shell that makes the next argument a script.
func (u *unit) argument(text string) {
	indent, words := len(text)-len(strings.TrimLeft(text, " \t")), *u.argv
	script := len(words) > 1 && isScript.MatchString(words[len(words)-2])
	if n := len(words); n > 0 && (script || indent <= u.indent && u.indent > 0) {
		add(&words[n-1], strings.TrimPrefix(text, strings.Repeat(" ", u.indent+2)))
		return
	}
	if trimmed := strings.TrimSpace(text); trimmed != "" {
		*u.argv = append(words, trimmed)
	}
}

var isScript = regexp.MustCompile(`^-[a-z]*c$`)

// begin begins a state.
func (u *unit) begin(s *corev1.ContainerState, value string) {
	u.state = s
	switch value {
	case "Running":
		s.Running = &corev1.ContainerStateRunning{}
	case "Waiting":
		s.Waiting = &corev1.ContainerStateWaiting{}
	case "Terminated":
		s.Terminated = &corev1.ContainerStateTerminated{}
	default:
		u.state = nil
		return
	}
	u.has = true
}

// ofState reads a line of a state.
func (u *unit) ofState(key, value, text string) {
	read, known := stateReaders[key]
	switch {
	case known:
		u.sub = key
		read(u.state, value)
	case u.sub == "Message" && u.state.Terminated != nil: // of several lines
		add(&u.state.Terminated.Message, strings.TrimSpace(text))
	}
}

var stateReaders = map[string]func(s *corev1.ContainerState, value string){
	"Reason": func(s *corev1.ContainerState, v string) {
		if s.Waiting != nil {
			s.Waiting.Reason = v
		}
		if s.Terminated != nil {
			s.Terminated.Reason = v
		}
	},
	"Message": func(s *corev1.ContainerState, v string) {
		if s.Waiting != nil {
			s.Waiting.Message = v
		}
		if s.Terminated != nil {
			s.Terminated.Message = v
		}
	},
	"Exit Code": func(s *corev1.ContainerState, v string) {
		if s.Terminated != nil {
			s.Terminated.ExitCode = int32(number(v))
		}
	},
	"Signal": func(s *corev1.ContainerState, v string) {
		if s.Terminated != nil {
			s.Terminated.Signal = int32(max(number(v), 0))
		}
	},
	"Started": func(s *corev1.ContainerState, v string) {
		if s.Running != nil {
			s.Running.StartedAt = value(instant(v))
		}
		if s.Terminated != nil {
			s.Terminated.StartedAt = value(instant(v))
		}
	},
	"Finished": func(s *corev1.ContainerState, v string) {
		if s.Terminated != nil {
			s.Terminated.FinishedAt = value(instant(v))
		}
	},
}

func value(t *metav1.Time) metav1.Time {
	if t == nil {
		return metav1.Time{}
	}
	return *t
}
