package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// A report is all that was measured. Times are in milliseconds.
type report struct {
	Machine     machine         `json:"machine"`
	Commands    []commandRow    `json:"commands"`
	Connections []connectionRow `json:"connections"`
	Limits      []limitRow      `json:"limits"`
	Notes       []string        `json:"notes,omitempty"`
}

type commandRow struct {
	Case     string  `json:"case"`
	N        int     `json:"n"`
	Wall     spread  `json:"wall_ms"`
	CPU      float64 `json:"cpu_ms_median"`
	Memory   float64 `json:"max_rss_mib_median"`
	MemoryN  int     `json:"max_rss_n"`
	Baseline string  `json:"baseline,omitempty"`
	Ratio    float64 `json:"ratio,omitempty"` // of the medians of wall time
}

type connectionRow struct {
	Case  string `json:"case"`
	N     int    `json:"n"`
	Delay spread `json:"delay_ms"`
}

type limitRow struct {
	Limit   string  `json:"park_limit"`
	N       int     `json:"n"`
	Refused spread  `json:"refused_after_ms"`
	Parked  float64 `json:"parked_syns_median"`
}

type spread struct {
	Min    float64 `json:"min"`
	Median float64 `json:"median"`
	Max    float64 `json:"max"`
}

func spreadOf(times []time.Duration) spread {
	ms := milliseconds(times)
	return spread{round3(slices.Min(ms)), median(ms), round3(slices.Max(ms))}
}

func milliseconds(times []time.Duration) []float64 {
	var out []float64
	for _, t := range times {
		out = append(out, float64(t)/float64(time.Millisecond))
	}
	return out
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return round3((sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2)
}

func round3(f float64) float64 { return math.Round(f*1000) / 1000 }

func newCommandRow(c testCase, s samples) commandRow {
	return commandRow{
		Case: c.name, N: len(s.wall), Baseline: c.baseline,
		Wall: spreadOf(s.wall), CPU: median(milliseconds(s.cpu)), Memory: median(s.memory), MemoryN: len(s.memory),
	}
}

// compare fills in the ratios.
func compare(rows []commandRow) {
	for i, r := range rows {
		b := slices.IndexFunc(rows, func(b commandRow) bool { return b.Case == r.Baseline })
		if b >= 0 && rows[b].Wall.Median > 0 {
			rows[i].Ratio = round3(r.Wall.Median / rows[b].Wall.Median)
		}
	}
}

func (r *report) write(w io.Writer, output string) error {
	if output == "json" {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		return e.Encode(r)
	}
	_, err := io.WriteString(w, r.text())
	return err
}

func (r *report) text() string {
	m := r.Machine
	memoryRuns := 0
	if len(r.Commands) > 0 {
		memoryRuns = r.Commands[0].MemoryN
	}
	var b strings.Builder
	fmt.Fprintf(&b, `kernel %s, %d processors, %s
outrider-agent: %.1f MiB (%d bytes)
load average (1, 5, 15 min): %s at the begin, %s at the end

Commands in a fresh network namespace, from fork to exit, in ms. CPU with the command's
children. RSS is the peak of its own process, in MiB, from %d runs that were not timed.
Ratio: of the medians of wall time.

`, m.Kernel, m.Processors, m.NFT, float64(m.AgentBytes)/(1<<20), m.AgentBytes, m.LoadBegin, m.LoadEnd, memoryRuns)
	writeTable(&b, r.commandTable())
	b.WriteString(`
Connections of an app (IPv4, outbound), in ms. While it waits, the kernel retries every
second: a parked one should wait for 0 to 1 s more than it must.

`)
	writeTable(&b, r.connectionTable())
	b.WriteString(`
Without a listener: from the first SYN to "Connection refused", in ms.

`)
	writeTable(&b, r.limitTable())
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "\nnote: %s\n", n)
	}
	return b.String()
}

func (r *report) commandTable() [][]string {
	rows := [][]string{{"case", "n", "min", "median", "max", "CPU", "RSS", "ratio", "to"}}
	for _, c := range r.Commands {
		ratio := ""
		if c.Ratio > 0 {
			ratio = fmt.Sprintf("%.2f", c.Ratio)
		}
		rows = append(rows, slices.Concat([]string{c.Case, fmt.Sprint(c.N)}, c.Wall.cells(),
			[]string{decimal(c.CPU), decimal(c.Memory), ratio, c.Baseline}))
	}
	return rows
}

func (r *report) connectionTable() [][]string {
	rows := [][]string{{"case", "n", "min", "median", "max"}}
	for _, c := range r.Connections {
		rows = append(rows, append([]string{c.Case, fmt.Sprint(c.N)}, c.Delay.cells()...))
	}
	return rows
}

func (r *report) limitTable() [][]string {
	rows := [][]string{{"--park-limit", "n", "min", "median", "max", "SYNs parked"}}
	for _, l := range r.Limits {
		rows = append(rows, slices.Concat([]string{l.Limit, fmt.Sprint(l.N)}, l.Refused.cells(), []string{fmt.Sprint(l.Parked)}))
	}
	return rows
}

func (s spread) cells() []string { return []string{decimal(s.Min), decimal(s.Median), decimal(s.Max)} }

func decimal(f float64) string { return fmt.Sprintf("%.1f", f) }

// writeTable aligns columns: words to the left, numbers to the right. The first row is
// the head.
func writeTable(b *strings.Builder, rows [][]string) {
	words := func(column int) bool { return column == 0 || rows[0][column] == "to" }
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if words(i) {
				line.WriteString(cell + pad + "  ")
			} else {
				line.WriteString(pad + cell + "  ")
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}
