package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A setter sets a field of a Config from text. Its error says what would be valid.
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

// parsed returns a setter that parses a text and stores the result in a field. If the text cannot be parsed, or
// valid returns false, the error is the text want.
func parsed[T any](field func(*Config) *T, parse func(string) (T, error), valid func(T) bool, want string) setter {
	return func(c *Config, s string) error {
		v, err := parse(s)
		if err != nil || !valid(v) {
			return errors.New(want)
		}
		*field(c) = v
		return nil
	}
}

func duration(field func(*Config) *time.Duration) setter {
	return parsed(field, time.ParseDuration, func(d time.Duration) bool { return d >= 0 }, "a time that is not negative, for example 5s")
}

// drainTime becomes a flag of Envoy, in whole seconds; 0 would mean Envoy's default.
var drainTime = parsed(func(c *Config) *time.Duration { return &c.Envoy.DrainTime }, time.ParseDuration,
	func(d time.Duration) bool {
		return d >= time.Second && d%time.Second == 0 && d/time.Second <= math.MaxUint32
	}, "whole seconds, 1s or more")

var grace = duration(func(c *Config) *time.Duration { return &c.Stop.Grace })

// The number of workers is bounded: each one has a thread, and its own connections to every upstream.
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

// cpus is the container's limit; 0: no limit.
var cpus = parsed(func(c *Config) *int { return &c.Envoy.CPUs }, strconv.Atoi,
	func(n int) bool { return n >= 0 && n <= mostThreads }, "a number from 1 to 1024")

// agentLogLevel reads "debug", or "default:debug" as Istio's annotation has it.
func agentLogLevel(c *Config, s string) error {
	if c.LogLevel.UnmarshalText([]byte(strings.TrimPrefix(s, "default:"))) != nil {
		return errors.New("one of debug, info, warn, error")
	}
	return nil
}

func parsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	return uint16(n), err
}

func port(field func(*Config) *uint16) setter {
	return parsed(field, parsePort, func(n uint16) bool { return n > 0 }, "a port from 1 to 65535")
}

func share(field func(*Config) *float64) setter {
	parse := func(s string) (float64, error) { return strconv.ParseFloat(s, 64) }
	return parsed(field, parse, func(f float64) bool { return f >= 0 && f <= 1 }, "a number from 0 to 1")
}

func boolean(field func(*Config) *bool) setter {
	return parsed(field, strconv.ParseBool, valid, "true or false")
}

// choice sets a field to the value that belongs to a word.
func choice[T any](field func(*Config) *T, want string, values map[string]T) setter {
	return func(c *Config, s string) error {
		v, ok := values[s]
		if !ok {
			return errors.New(want)
		}
		*field(c) = v
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

var addresses = parsed(func(c *Config) *[]netip.Addr { return &c.Pod.Addresses }, parseAddresses, valid, "IP addresses, separated by commas")

// valid accepts every value. It is for those calls of [parsed] whose parse function checks everything itself.
func valid[T any](T) bool { return true }

func verbatim(s string) (string, error) { return s, nil }

func parseAddresses(s string) (out []netip.Addr, err error) {
	for item := range strings.SplitSeq(s, ",") {
		a, err := netip.ParseAddr(strings.TrimSpace(item))
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, nil
}

const networksForm = "networks, separated by commas, for example 10.0.0.0/8,fd00::/8"

func parseNetworks(s string) (out []netip.Prefix, err error) {
	for item := range strings.SplitSeq(s, ",") {
		n, err := netip.ParsePrefix(strings.TrimSpace(item))
		if err != nil {
			return nil, err
		}
		out = append(out, n.Masked())
	}
	return out, nil
}

// metricsFrom reads "any", "node", or networks.
func metricsFrom(c *Config, s string) (err error) {
	switch s {
	case "any":
		c.Callers.Metrics = nil
		return nil
	case "node":
		c.Callers.Metrics = []netip.Prefix{}
		return nil
	}
	if c.Callers.Metrics, err = parseNetworks(s); err != nil {
		return errors.New("any, node, or " + networksForm)
	}
	return nil
}

// levels are the values of Envoy's --log-level.
var levels = []string{"trace", "debug", "info", "warning", "warn", "error", "critical", "off"}

// level reads "warning", and also Istio's form "warning,misc:error".
func level(c *Config, s string) error {
	for item := range strings.SplitSeq(s, ",") {
		if strings.Contains(item, ":") {
			if err := components(c, item); err != nil {
				return err
			}
			continue
		}
		if err := setLevel(&c.Envoy.Level, item); err != nil {
			return err
		}
	}
	return nil
}

// lettersOfComponent are the characters in names of Envoy's loggers.
const lettersOfComponent = "abcdefghijklmnopqrstuvwxyz0123456789_"

func components(c *Config, s string) error {
	for item := range strings.SplitSeq(s, ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(item), ":")
		if !ok || name == "" || strings.Trim(name, lettersOfComponent) != "" {
			return errors.New("component:level, for example misc:error,upstream:debug")
		}
		var l string
		if err := setLevel(&l, value); err != nil {
			return err
		}
		put(&c.Envoy.Components, name, l)
	}
	return nil
}

func setLevel(field *string, s string) error {
	if !slices.Contains(levels, s) {
		return fmt.Errorf("one of %s", strings.Join(levels, ", "))
	}
	if s == "warn" {
		s = "warning"
	}
	*field = s
	return nil
}

// Annotations reads the file that the downward API writes for metadata.annotations: one key="value"
// per line, with the value quoted as in Go. Source: pkg/fieldpath of Kubernetes.
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
