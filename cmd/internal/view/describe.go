package view

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/core/controlplane/debugapi"
	"outrider.dev/internal/ops/report"
)

// Descriptions prints descriptions of pods.
func Descriptions(w io.Writer, t cli.Terminal, output string, all []report.Pod) error {
	if output == "json" {
		return cli.WriteJSON(w, all)
	}
	p := &printer{Terminal: t}
	each(p, all, p.description)
	return p.print(w)
}

func (p *printer) description(d report.Pod) {
	p.line("%s", p.paint(bold, d.Name+"."+d.Namespace))
	p.injection(d.Injection)
	if o := d.Order; o != nil {
		var ways []string
		for _, way := range o.Ways {
			ways = append(ways, string(way))
		}
		p.section("Order", "", or(len(ways) == 0, "nothing waits for the proxy", "by "+strings.Join(ways, ", ")))
		p.item("start", "", strings.Join(o.Start, ", "))
		for _, e := range o.Edges {
			p.item("edge", "", e)
		}
		for _, why := range o.Why {
			p.item("why", "", why)
		}
	}
	p.captured(d)
	p.proxy(d.Proxy)
	p.connection(d)
	for _, n := range d.Notes {
		p.item("note", faint, n)
	}
}

// section prints the first line of a section: its name and a text.
func (p *printer) section(name, colour, text string) {
	p.line("%-15s%s", name, p.paint(colour, text))
}

func (p *printer) injection(i report.Injection) {
	text := string(i.State)
	if i.Revision != "" {
		text += ", revision " + i.Revision
	}
	p.section("Injection", verdictColour(i.State == report.Injected || i.State == report.WillBe), text)
	p.item("rule", "", fmt.Sprintf("%s (%s)", i.Reason, i.Code))
	if i.Hint != "" {
		p.item("hint", bold, i.Hint)
	}
	for _, w := range i.Warnings {
		p.item("warning", yellow, w)
	}
}

func (p *printer) captured(d report.Pod) {
	c := d.Capture
	switch {
	case d.Order == nil: // the pod was not injected
		return
	case c == nil:
		p.section("Capture", "", "none")
		return
	}
	p.section("Capture", "", fmt.Sprintf("%s, by %s", c.Mode, c.By))
	if c.Mode != "park only" && c.Mode != "NONE" {
		p.item("inbound", "", selected("ports", c.InboundPorts, c.ExcludeInboundPorts))
		p.item("outbound", "", selected("addresses", c.OutboundRanges, c.ExcludeOutboundRanges))
		if c.OutboundPorts != "" || c.ExcludeOutboundPorts != "" {
			p.item("", "", selected("ports, whatever the address:", c.OutboundPorts, c.ExcludeOutboundPorts))
		}
		p.item("DNS", "", or(c.DNS, "queries go to the agent", "not captured"))
	}
	p.item("early", "", or(c.Park == "off", "connections are refused", "connections wait until the proxy listens"))
}

// selected describes the ports or address ranges that are captured; list may be "*" for all.
func selected(what, list, except string) string {
	text := what + " " + list
	switch list {
	case "":
		text = "no " + strings.TrimSuffix(what, ", whatever the address:")
	case "*":
		text = "all " + what
	}
	if except != "" {
		text += " but " + except
	}
	return strings.ReplaceAll(text, ",", ", ")
}

func (p *printer) proxy(x *report.Proxy) {
	if x == nil {
		return
	}
	if x.State == "" {
		p.section("Proxy", "", x.Kind)
	} else {
		p.section("Proxy", verdictColour(x.State == report.Ready), fmt.Sprintf("%s, %s, %s", x.Kind, x.State, plural(int(x.Restarts), "restart")))
	}
	p.item("image", "", x.Image)
	if x.Next != "" {
		p.item("", yellow, "a new pod gets "+x.Next+"; outrider upgrade pods gives it to this one")
	}
	if x.Agent != "" || x.Envoy != "" {
		p.item("versions", "", fmt.Sprintf("agent %s, Envoy %s", cmp.Or(x.Agent, "-"), cmp.Or(x.Envoy, "-")))
	}
	if x.Skew != "" {
		p.item("skew", yellow, x.Skew)
	}
}

func (p *printer) connection(d report.Pod) {
	c := d.ControlPlane
	if c == nil {
		return
	}
	text := "not connected"
	if c.Replica != "" {
		text = or(c.Synced, "synced", "not synced") + ", with " + c.Replica + " since " + c.Since.UTC().Format(time.RFC3339)
	}
	p.section("Control plane", verdictColour(c.Synced), text)
	for _, problem := range c.Problems {
		p.item("", red, debugapi.OneLine(problem))
	}
}
