package view

import (
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// The parts of Envoy's JSON that a summary shows. Missing parts are omitted.
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

// summaries describe a resource of each type in one line.
var summaries = map[string]func(json.RawMessage) (string, error){
	"Cluster":               summaryCluster,
	"Listener":              summaryListener,
	"ClusterLoadAssignment": summaryEndpoints,
	"RouteConfiguration":    summaryRoutes,
	"VirtualHost":           summaryVirtualHost,
}

// summary returns a line about a resource; "" for a type without a summary.
func summary(kind string, body json.RawMessage) string {
	f := summaries[kind]
	if f == nil {
		return ""
	}
	text, err := f(body)
	if err != nil {
		return "not readable: " + err.Error()
	}
	return text
}

func summaryCluster(body json.RawMessage) (string, error) {
	var c struct {
		Type            string          `json:"type"`
		LbPolicy        string          `json:"lbPolicy"`
		TransportSocket json.RawMessage `json:"transportSocket"`
		Matches         []any           `json:"transportSocketMatches"`
		LoadAssignment  *envoyEndpoints `json:"loadAssignment"`
	}
	if err := json.Unmarshal(body, &c); err != nil {
		return "", err
	}
	words := []string{c.Type}
	if c.Type == "" {
		words[0] = "STATIC" // JSON omits the zero value
	}
	if c.LbPolicy != "" {
		words = append(words, c.LbPolicy)
	}
	if c.TransportSocket != nil || len(c.Matches) > 0 {
		words = append(words, "TLS")
	}
	if c.LoadAssignment != nil {
		words = append(words, c.LoadAssignment.text())
	}
	return strings.Join(words, " "), nil
}

func summaryListener(body json.RawMessage) (string, error) {
	var l struct {
		Address      envoyAddress `json:"address"`
		Direction    string       `json:"trafficDirection"`
		FilterChains []any        `json:"filterChains"`
		BindToPort   *bool        `json:"bindToPort"`
	}
	if err := json.Unmarshal(body, &l); err != nil {
		return "", err
	}
	where := l.Address.String()
	if where == "" {
		where = "internal"
	}
	text := fmt.Sprintf("%s %s, %s", where, l.Direction, plural(len(l.FilterChains), "filter chain"))
	if l.BindToPort != nil && !*l.BindToPort {
		text += ", not bound"
	}
	return text, nil
}

func summaryEndpoints(body json.RawMessage) (string, error) {
	var e envoyEndpoints
	if err := json.Unmarshal(body, &e); err != nil {
		return "", err
	}
	return e.text(), nil
}

// text returns the addresses, each with its status unless it is healthy.
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
	if len(out) == 0 {
		return "no endpoint"
	}
	return strings.Join(out, ", ")
}

func summaryRoutes(body json.RawMessage) (string, error) {
	var r struct {
		VirtualHosts []envoyVirtualHost `json:"virtualHosts"`
		Vhds         json.RawMessage    `json:"vhds"`
	}
	if err := json.Unmarshal(body, &r); err != nil {
		return "", err
	}
	text := plural(len(r.VirtualHosts), "virtual host")
	if r.Vhds != nil {
		text += ", and more on demand"
	}
	return text, nil
}

func summaryVirtualHost(body json.RawMessage) (string, error) {
	var v envoyVirtualHost
	if err := json.Unmarshal(body, &v); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s; %s", strings.Join(v.Domains, ", "), plural(len(v.Routes), "route")), nil
}
