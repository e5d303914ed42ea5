package witness

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"outrider.dev/internal/doctor/evidence"
)

var (
	gap = regexp.MustCompile(`[ \t]{2,}|\t`)
	// head matches the first line of a table of Services, Endpoints or EndpointSlices.
	head = regexp.MustCompile(`^[ \t>|]*(?:NAMESPACE\s+)?NAME\s.*(?:CLUSTER-IP|ENDPOINTS|TARGET|READY)`)
	// field matches a line of a description.
	field    = regexp.MustCompile(`^[ \t>]*([A-Z][A-Za-z ]*[A-Za-z]):[ \t]*(.*)$`)
	rowPorts = regexp.MustCompile(`\b(\d{1,5})(?::\d{1,5})?/(?:TCP|UDP|SCTP)`)
	number   = regexp.MustCompile(`\d{1,5}`)
	sliceEnd = regexp.MustCompile(`-[a-z0-9]{5}$`)
)

const none = "<none>"

// readTables reads what kubectl printed for people of Services and their endpoints.
func (r *Record) readTables(t text) {
	var columns []string
	d := map[string]string{} // the fields of the description that is being read
	at := 0
	for i, line := range t.lines {
		if columns == nil {
			r.addLoose(&t, i+1, line)
		}
		switch m := field.FindStringSubmatch(line); {
		case len(line) > 4096:
		case head.MatchString(line):
			columns = gap.Split(strings.Trim(line, " \t>|"), -1)
		case columns != nil:
			cells := gap.Split(strings.Trim(line, " \t>|"), -1)
			if len(cells) < 2 || len(cells) > len(columns) || len(cells) < len(columns)-1 {
				columns = nil
				break
			}
			row := map[string]string{}
			for j, cell := range cells {
				row[columns[j]] = cell
			}
			r.addRow(&t, i+1, row)
		case m != nil:
			if m[1] == "Name" {
				r.addDescribed(&t, at, d)
				d, at = map[string]string{}, i+1
			}
			if key := m[1]; d[key] == "" {
				d[key] = m[2]
				if strings.HasPrefix(key, "Endpoint") || key == "NotReadyAddresses" || key == "Addresses" {
					at = i + 1
				}
			} else if key == "Port" || key == "TargetPort" {
				d[key] += "," + m[2]
			}
		case strings.TrimSpace(line) == "":
			r.addDescribed(&t, at, d)
			d = map[string]string{}
		}
	}
	r.addDescribed(&t, at, d)
}

// cell returns the first column of a row, by the names of columns, whose name begins with one of some texts.
func cell(row map[string]string, begins ...string) string {
	for _, b := range begins {
		for _, key := range slices.Sorted(maps.Keys(row)) {
			if strings.HasPrefix(key, b) && row[key] != "" {
				return row[key]
			}
		}
	}
	return ""
}

// A row is a line of kubectl get pods, of pods other than the one that is diagnosed.
type row struct {
	namespace, name, status string
	node                    string // empty: not known
	share                   string // of its containers that are ready, as 0/2
	ready                   bool
	labels                  map[string]string // nil: not known
	quote                   evidence.Quote
}

// addPodRow adds a line of kubectl get pods.
func (r *Record) addPodRow(t *text, line int, cells map[string]string) {
	name := strings.TrimPrefix(cells["NAME"], "pod/")
	ready, of, has := strings.Cut(cells["READY"], "/")
	if has && name == r.pod.Object.Name && cells["STATUS"] != "" {
		r.keepOwn(cells)
		return
	}
	if !has || cells["STATUS"] == "" {
		return
	}
	namespace := cmp.Or(cells["NAMESPACE"], t.about(line).namespace)
	r.keepRow(row{namespace, name, cells["STATUS"], cells["NODE"], cells["READY"], ready == of || cells["STATUS"] == "Completed", labelsOf(cells["LABELS"]), t.quote(line, r.secrets)})
}

// labelsOf reads the labels in a cell; nil: it has none.
func labelsOf(cell string) (out map[string]string) {
	for one := range strings.SplitSeq(cell, ",") {
		if key, value, is := strings.Cut(one, "="); is {
			if out == nil {
				out = map[string]string{}
			}
			out[key] = value
		}
	}
	return out
}

// addRow adds a Service, or a pod, by a row of a table.
func (r *Record) addRow(t *text, line int, row map[string]string) {
	if row["READY"] != "" {
		r.addPodRow(t, line, row)
		return
	}
	kind, name, has := strings.Cut(row["NAME"], "/")
	if !has {
		kind, name = "", row["NAME"]
	}
	endpoints, isSlice := row["ENDPOINTS"], row["ADDRESSTYPE"] != ""
	if isSlice {
		name = sliceEnd.ReplaceAllString(name, "")
	}
	kind, _, _ = strings.Cut(kind, ".")
	s := r.service(cmp.Or(row["NAMESPACE"], t.about(line).namespace), name)
	if s == nil || strings.ContainsAny(name, " <") || kind != "" && !slices.Contains([]string{"service", "svc", "endpoints", "ep", "endpointslice"}, kind) {
		return
	}
	q := t.quote(line, r.secrets)
	if ip := row["CLUSTER-IP"]; ip != "" {
		s.addIP(ip)
		s.source, s.selector = &q, labelsOf(row["SELECTOR"])
		for _, m := range rowPorts.FindAllStringSubmatch(row["PORT(S)"], 64) {
			s.ports[port(m[1])] = cmp.Or(s.ports[port(m[1])], "")
		}
	}
	if target := cell(row, "TARGET"); target != "" {
		s.source = &q
		s.setTargets(cell(row, "PORT"), target)
	}
	if endpoints != "" {
		s.setEndpoints(listed(endpoints, row["PORTS"], isSlice), 0, q)
	}
}

// kindOfService matches the cell that only a Service has.
var kindOfService = regexp.MustCompile(`^(?:ClusterIP|NodePort|LoadBalancer|ExternalName)$`)

// addLoose adds a Service by a row without the head of its table, as grep leaves it.
func (r *Record) addLoose(t *text, line int, row string) {
	if len(row) > 500 || !strings.ContainsAny(row, "\t ") {
		return
	}
	cells := gap.Split(strings.Trim(row, " \t>|"), -1)
	at := slices.IndexFunc(cells, kindOfService.MatchString)
	if at < 1 || at > 2 || len(cells) < at+4 {
		return
	}
	found := map[string]string{"NAME": cells[at-1], "TYPE": cells[at], "CLUSTER-IP": cells[at+1], "EXTERNAL-IP": cells[at+2], "PORT(S)": cells[at+3]}
	if at == 2 {
		found["NAMESPACE"] = cells[0]
	}
	r.addRow(t, line, found)
}

// listed returns the addresses of a cell of endpoints, in a table of slices with the ports of another cell.
func listed(cell, ports string, isSlice bool) (out []string) {
	cell, _, _ = strings.Cut(cell, " + ")
	for one := range strings.SplitSeq(cell, ",") {
		one = strings.TrimSpace(one)
		if one == none || one == "" || one == "<unset>" {
			continue
		}
		if all := number.FindAllString(ports, 64); isSlice && len(all) > 0 {
			for _, p := range all {
				out = append(out, netJoin(one, port(p)))
			}
			continue
		}
		out = append(out, one)
	}
	return out
}

func port(digits string) uint16 {
	n, err := strconv.ParseUint(digits, 10, 16)
	if err != nil {
		return 0
	}
	return uint16(n)
}

// setTargets sets the ports of the Service's pods by those of the Service, as long as both lists are as long.
func (s *service) setTargets(ports, targets string) {
	all, to := number.FindAllString(ports, 64), strings.Split(targets, ",")
	for i, t := range to {
		t, _, _ = strings.Cut(strings.TrimSpace(t), "/")
		if len(all) == len(to) {
			s.ports[port(all[i])] = t
		}
	}
}

// addDescribed adds a Service by its description, or by that of its Endpoints.
func (r *Record) addDescribed(t *text, line int, d map[string]string) {
	_, endpoints := d["Endpoints"]
	_, addresses := d["Addresses"]
	if line == 0 || d["Name"] == "" || strings.Contains(d["Name"], " ") || !endpoints && !addresses && d["TargetPort"] == "" {
		return
	}
	s := r.service(cmp.Or(d["Namespace"], t.about(line).namespace), d["Name"])
	if s == nil {
		return
	}
	q := t.quote(line, r.secrets)
	if labels := labelsOf(d["Selector"]); labels != nil {
		s.selector = labels
	}
	for ip := range strings.SplitSeq(cmp.Or(d["IPs"], d["IP"]), ",") {
		s.addIP(strings.TrimSpace(ip))
	}
	if d["TargetPort"] != "" {
		var ports []string
		for _, m := range rowPorts.FindAllStringSubmatch(d["Port"], 64) {
			ports = append(ports, m[1])
		}
		s.setTargets(strings.Join(ports, ","), d["TargetPort"])
		s.source = &evidence.Quote{Source: q.Source, Text: "TargetPort: " + d["TargetPort"]}
	}
	switch {
	case endpoints:
		s.setEndpoints(listed(d["Endpoints"], "", false), 0, q)
	case addresses:
		s.setEndpoints(listed(d["Addresses"], "", false), len(listed(d["NotReadyAddresses"], "", false)), q)
	}
}
