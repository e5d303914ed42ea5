package view

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// The parts of Envoy's JSON that a summary shows.
type envoyAddress struct {
	SocketAddress *struct {
		Address   string `json:"address"`
		PortValue int    `json:"portValue"`
	} `json:"socketAddress"`
	Pipe *struct {
		Path string `json:"path"`
	} `json:"pipe"`
}

// String returns "" if there is no address, as for Envoy's internal listeners.
func (a envoyAddress) String() string {
	switch {
	case a.SocketAddress != nil:
		return net.JoinHostPort(a.SocketAddress.Address, strconv.Itoa(a.SocketAddress.PortValue))
	case a.Pipe != nil:
		return a.Pipe.Path
	}
	return ""
}

type envoyEndpoints struct {
	Endpoints []struct {
		LbEndpoints []struct {
			HealthStatus string `json:"healthStatus"`
			Endpoint     struct {
				Address envoyAddress `json:"address"`
			} `json:"endpoint"`
		} `json:"lbEndpoints"`
	} `json:"endpoints"`
}

type envoyVirtualHost struct {
	Domains []string          `json:"domains"`
	Routes  []json.RawMessage `json:"routes"`
}

type envoyCluster struct {
	Type            string          `json:"type"`
	LbPolicy        string          `json:"lbPolicy"`
	TransportSocket json.RawMessage `json:"transportSocket"`
	Matches         []any           `json:"transportSocketMatches"`
	LoadAssignment  *envoyEndpoints `json:"loadAssignment"`
}

type envoyListener struct {
	Address      envoyAddress `json:"address"`
	Direction    string       `json:"trafficDirection"`
	FilterChains []any        `json:"filterChains"`
	BindToPort   *bool        `json:"bindToPort"`
}

type envoyRoutes struct {
	VirtualHosts []envoyVirtualHost `json:"virtualHosts"`
	Vhds         json.RawMessage    `json:"vhds"`
}

// summaries maps types of resources to functions that describe a resource in one line.
var summaries = map[string]func(json.RawMessage) string{
	"Cluster":               summaryBy(envoyCluster.text),
	"Listener":              summaryBy(envoyListener.text),
	"ClusterLoadAssignment": summaryBy(envoyEndpoints.text),
	"RouteConfiguration":    summaryBy(envoyRoutes.text),
	"VirtualHost":           summaryBy(envoyVirtualHost.text),
}

func summaryBy[T any](text func(T) string) func(json.RawMessage) string {
	return func(body json.RawMessage) string {
		var v T
		if err := json.Unmarshal(body, &v); err != nil {
			return "not readable: " + err.Error()
		}
		return text(v)
	}
}

// summary returns a line about a resource; "" for a type without a summary.
func summary(kind string, body json.RawMessage) string {
	if by := summaries[kind]; by != nil {
		return by(body)
	}
	return ""
}

func (c envoyCluster) text() string {
	words := []string{cmp.Or(c.Type, "STATIC")} // JSON omits the zero value
	if c.LbPolicy != "" {
		words = append(words, c.LbPolicy)
	}
	if c.TransportSocket != nil || len(c.Matches) > 0 {
		words = append(words, "TLS")
	}
	if c.LoadAssignment != nil {
		words = append(words, c.LoadAssignment.text())
	}
	return strings.Join(words, " ")
}

func (l envoyListener) text() string {
	text := fmt.Sprintf("%s %s, %s", cmp.Or(l.Address.String(), "internal"), l.Direction, plural(len(l.FilterChains), "filter chain"))
	if l.BindToPort != nil && !*l.BindToPort {
		text += ", not bound"
	}
	return text
}

// text returns the addresses of all endpoints, with the health status of each unhealthy endpoint.
func (e envoyEndpoints) text() string {
	var out []string
	for _, locality := range e.Endpoints {
		for _, one := range locality.LbEndpoints {
			text := one.Endpoint.Address.String()
			if h := one.HealthStatus; h != "" && h != "HEALTHY" && h != "UNKNOWN" {
				text += " " + h
			}
			out = append(out, text)
		}
	}
	return cmp.Or(strings.Join(out, ", "), "no endpoint")
}

func (r envoyRoutes) text() string {
	text := plural(len(r.VirtualHosts), "virtual host")
	if r.Vhds != nil {
		text += ", and more on demand"
	}
	return text
}

func (v envoyVirtualHost) text() string {
	return fmt.Sprintf("%s; %s", strings.Join(v.Domains, ", "), plural(len(v.Routes), "route"))
}
