package gate

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A Probe is a Kubernetes probe, as in a pod's JSON. Fields that only the kubelet needs
// are ignored.
type Probe struct {
	HTTPGet   *HTTPGet   `json:"httpGet"`
	TCPSocket *TCPSocket `json:"tcpSocket"`
	Exec      *Exec      `json:"exec"`
	GRPC      *GRPC      `json:"grpc"`

	InitialDelaySeconds int `json:"initialDelaySeconds"`
	TimeoutSeconds      int `json:"timeoutSeconds"`
	PeriodSeconds       int `json:"periodSeconds"`
	SuccessThreshold    int `json:"successThreshold"`
	FailureThreshold    int `json:"failureThreshold"`
}

// A Hook is a postStart hook of Kubernetes.
type Hook struct {
	Exec    *Exec    `json:"exec"`
	HTTPGet *HTTPGet `json:"httpGet"`
	Sleep   *Sleep   `json:"sleep"`
}

// HTTPGet is a probe or a hook that sends a GET request.
type HTTPGet struct {
	Path        string   `json:"path"`
	Port        Port     `json:"port"`
	Host        string   `json:"host"`
	Scheme      string   `json:"scheme"`
	HTTPHeaders []Header `json:"httpHeaders"`
}

// A Header is an HTTP header of the request of an [HTTPGet].
type Header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// TCPSocket is a check that connects to a TCP port.
type TCPSocket struct {
	Port Port   `json:"port"`
	Host string `json:"host"`
}

// Exec is a program that runs in the container.
type Exec struct {
	Command []string `json:"command"`
}

// GRPC is a check by gRPC's health protocol.
type GRPC struct {
	Port    Port    `json:"port"`
	Service *string `json:"service"`
}

// Sleep is a hook that only waits.
type Sleep struct {
	Seconds int64 `json:"seconds"`
}

// A Port is a port number. A pod may also give the name of a container's port, but that can
// be resolved only with the whole pod spec.
type Port uint16

// UnmarshalJSON parses a number, or a number as a string.
func (p *Port) UnmarshalJSON(b []byte) error {
	text := strings.Trim(string(b), `"`)
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 {
		return fmt.Errorf("port %s: want a number from 1 to 65535, not a name", b)
	}
	*p = Port(n)
	return nil
}

// ParseProbe parses a probe from JSON, and applies Kubernetes' defaults.
func ParseProbe(text string) (*Probe, error) {
	var p Probe
	if err := parse(text, &p); err != nil {
		return nil, err
	}
	n := 0
	for _, has := range []bool{p.HTTPGet != nil, p.TCPSocket != nil, p.Exec != nil, p.GRPC != nil} {
		if has {
			n++
		}
	}
	if n != 1 {
		return nil, fmt.Errorf("%q: want one of httpGet, tcpSocket, exec, grpc", text)
	}
	var port error
	switch {
	case p.HTTPGet != nil:
		port = p.HTTPGet.check()
	case p.TCPSocket != nil:
		port = needsPort("tcpSocket", p.TCPSocket.Port)
	case p.GRPC != nil:
		port = needsPort("grpc", p.GRPC.Port)
	default:
		port = p.Exec.check()
	}
	numbers := []struct {
		field string
		value *int
		least int // the default
		limit int
	}{
		{"initialDelaySeconds", &p.InitialDelaySeconds, 0, 1 << 30},
		{"timeoutSeconds", &p.TimeoutSeconds, 1, 1 << 30},
		{"periodSeconds", &p.PeriodSeconds, 10, 1 << 30},
		{"successThreshold", &p.SuccessThreshold, 1, 1 << 30},
		{"failureThreshold", &p.FailureThreshold, 3, 1<<31 - 1},
	}
	for _, n := range numbers {
		switch {
		case *n.value == 0:
			*n.value = n.least
		case *n.value < 0 || *n.value > n.limit:
			return nil, fmt.Errorf("%s is %d, want 1 to %d", n.field, *n.value, n.limit)
		}
	}
	return &p, port
}

// ParseHook parses a postStart hook from JSON. It must have exactly one action.
func ParseHook(text string) (*Hook, error) {
	var h Hook
	if err := parse(text, &h); err != nil {
		return nil, err
	}
	switch {
	case h.Exec != nil && h.HTTPGet == nil && h.Sleep == nil:
		return &h, h.Exec.check()
	case h.Exec == nil && h.HTTPGet != nil && h.Sleep == nil:
		return &h, h.HTTPGet.check()
	case h.Exec == nil && h.HTTPGet == nil && h.Sleep != nil:
		if s := h.Sleep.Seconds; s < 0 || s > int64(time.Duration(1<<62)/time.Second) {
			return nil, fmt.Errorf("sleep.seconds is %d, want a length of time", s)
		}
		return &h, nil
	}
	return nil, fmt.Errorf("%q: want one of exec, httpGet, sleep", text)
}

func parse(text string, into any) error {
	err := json.Unmarshal([]byte(text), into)
	var field *json.UnmarshalTypeError
	if errors.As(err, &field) {
		return fmt.Errorf("%q: %s is a %s, want a %s", text, field.Field, field.Value, field.Type)
	}
	var syntax *json.SyntaxError
	if err != nil && !errors.As(err, &syntax) {
		return err
	}
	if err != nil {
		return fmt.Errorf("%q: %w; want JSON as in a pod, {\"httpGet\":{\"path\":\"/ready\",\"port\":8080}}", text, err)
	}
	return nil
}

func (h *HTTPGet) check() error {
	switch strings.ToUpper(h.Scheme) {
	case "":
		h.Scheme = "HTTP"
	case "HTTP", "HTTPS":
	default:
		return fmt.Errorf("httpGet.scheme is %q, want HTTP or HTTPS", h.Scheme)
	}
	return needsPort("httpGet", h.Port)
}

func (e *Exec) check() error {
	if len(e.Command) == 0 {
		return errors.New("exec.command is empty")
	}
	return nil
}

func needsPort(field string, p Port) error {
	if p == 0 {
		return fmt.Errorf("%s.port is missing", field)
	}
	return nil
}
