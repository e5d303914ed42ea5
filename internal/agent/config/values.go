package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// The errors of these functions are what would have been right.
var (
	errDuration = errors.New("a time that is not negative, for example 5s")
	errPort     = errors.New("a port from 1 to 65535")
	errThreads  = errors.New("a number from 1 to 1024")
	errShare    = errors.New("a number from 0 to 1")
	errBool     = errors.New("true or false")
)

// A setter sets a field of a Config from text.
type setter = func(*Config, string) error

func text(field func(*Config) *string) setter {
	return func(c *Config, s string) error { *field(c) = s; return nil }
}

func list(field func(*Config) *[]string) setter {
	return func(c *Config, s string) error {
		*field(c) = nil
		for item := range strings.SplitSeq(s, ",") {
			if item = strings.TrimSpace(item); item != "" {
				*field(c) = append(*field(c), item)
			}
		}
		return nil
	}
}

func duration(field func(*Config) *time.Duration) setter {
	return func(c *Config, s string) error {
		d, err := time.ParseDuration(s)
		if err != nil || d < 0 {
			return errDuration
		}
		*field(c) = d
		return nil
	}
}

// seconds is a duration of whole seconds, one at least.
func seconds(field func(*Config) *time.Duration) setter {
	return func(c *Config, s string) error {
		d, err := time.ParseDuration(s)
		if err != nil || d < time.Second || d%time.Second != 0 || d/time.Second > math.MaxUint32 {
			return errors.New("whole seconds, 1s or more")
		}
		*field(c) = d
		return nil
	}
}

// drainTime is a flag of Envoy's too, in whole seconds; 0 would be its default there.
var drainTime = seconds(func(c *Config) *time.Duration { return &c.Envoy.DrainTime })

// leastGrace is what the kubelet gives a pod that asks for less (minimumGracePeriodInSeconds
// in pkg/kubelet/kuberuntime).
const leastGrace = 2 * time.Second

var grace = duration(func(c *Config) *time.Duration { return &c.Stop.Grace })

// Each worker has a thread, and its own connections to every upstream.
const (
	mostThreads = 1024
	allCores    = -1 // Istio's concurrency: 0
)

func concurrency(c *Config, s string) error {
	n, err := strconv.ParseUint(s, 10, 16)
	switch {
	case err != nil || n > mostThreads:
		return errors.New("a number from 1 to 1024, or 0 for all processors")
	case n == 0:
		c.Envoy.Concurrency = allCores
	default:
		c.Envoy.Concurrency = int(n)
	}
	return nil
}

// cpus is the container's limit; 0 is none.
func cpus(c *Config, s string) error {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n > mostThreads {
		return errThreads
	}
	c.Envoy.CPUs = int(n)
	return nil
}

// agentLogLevel reads "debug", or as Istio's annotation "default:debug".
func agentLogLevel(c *Config, s string) error {
	if c.LogLevel.UnmarshalText([]byte(strings.TrimPrefix(s, "default:"))) != nil {
		return errors.New("one of debug, info, warn, error")
	}
	return nil
}

func port(field func(*Config) *uint16) setter {
	return func(c *Config, s string) error {
		n, err := strconv.ParseUint(s, 10, 16)
		if err != nil || n == 0 {
			return errPort
		}
		*field(c) = uint16(n)
		return nil
	}
}

func share(field func(*Config) *float64) setter {
	return func(c *Config, s string) error {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || !(f >= 0 && f <= 1) {
			return errShare
		}
		*field(c) = f
		return nil
	}
}

func boolean(field func(*Config) *bool) setter {
	return func(c *Config, s string) error {
		b, err := strconv.ParseBool(s)
		if err != nil {
			return errBool
		}
		*field(c) = b
		return nil
	}
}

func object(field func(*Config) *json.RawMessage) setter {
	return func(c *Config, s string) error {
		if !json.Valid([]byte(s)) || !bytes.HasPrefix(bytes.TrimSpace([]byte(s)), []byte("{")) {
			return errors.New("a JSON object")
		}
		*field(c) = json.RawMessage(s)
		return nil
	}
}

func addresses(c *Config, s string) error {
	var out []netip.Addr
	for item := range strings.SplitSeq(s, ",") {
		a, err := netip.ParseAddr(strings.TrimSpace(item))
		if err != nil {
			return errors.New("IP addresses, separated by commas")
		}
		out = append(out, a)
	}
	c.Pod.Addresses = out
	return nil
}

// levels of Envoy, as its --log-level takes them.
var levels = []string{"trace", "debug", "info", "warning", "warn", "error", "critical", "off"}

// level reads "warning", or as Istio's --proxyLogLevel also "warning,misc:error".
func level(c *Config, s string) error {
	for item := range strings.SplitSeq(s, ",") {
		if strings.Contains(item, ":") {
			if err := components(c, item); err != nil {
				return err
			}
			continue
		}
		if err := knownLevel(item); err != nil {
			return err
		}
		c.Envoy.Level = normalLevel(item)
	}
	return nil
}

// component is a name of Envoy's loggers.
var component = regexp.MustCompile(`^[a-z0-9_]+$`)

func components(c *Config, s string) error {
	for item := range strings.SplitSeq(s, ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(item), ":")
		if !ok || !component.MatchString(name) {
			return errors.New("component:level, for example misc:error,upstream:debug")
		}
		if err := knownLevel(value); err != nil {
			return err
		}
		if c.Envoy.Components == nil {
			c.Envoy.Components = map[string]string{}
		}
		c.Envoy.Components[name] = normalLevel(value)
	}
	return nil
}

func knownLevel(s string) error {
	for _, l := range levels {
		if s == l {
			return nil
		}
	}
	return fmt.Errorf("one of %s", strings.Join(levels, ", "))
}

func normalLevel(s string) string {
	if s == "warn" {
		return "warning"
	}
	return s
}

// Annotations reads the file that the downward API writes for metadata.annotations:
// key="value" a line, the value quoted as Go does. Source: pkg/fieldpath of Kubernetes.
func Annotations(data []byte) (map[string]string, error) {
	out := map[string]string{}
	for i, line := range strings.Split(string(data), "\n") {
		if line == "" {
			continue
		}
		key, quoted, ok := strings.Cut(line, "=")
		value, err := strconv.Unquote(quoted)
		if !ok || err != nil {
			return out, fmt.Errorf("line %d: not a key with a quoted value", i+1)
		}
		out[key] = value
	}
	return out, nil
}
