package controlplane

import (
	"bytes"
	_ "embed"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"time"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/xds"
)

// maxShown limits each list on the status page, because browsers render 10,000 rows too slowly.
const maxShown = 1000

// statusText is the template of the status page, for people with a browser. It has no script and loads
// nothing.
//
//go:embed status.html
var statusText string

var statusPage = template.Must(template.New("status").Funcs(template.FuncMap{
	"time":    func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"day":     func(t time.Time) string { return t.UTC().Format(time.DateOnly) },
	"proxy":   proxyRow,
	"warning": func(problem string) bool { return strings.HasPrefix(problem, contract.WarningPrefix) },
}).Parse(statusText))

// An overview is the content of the status page.
type overview struct {
	Version, Envoy, Replica     string
	Began, Now                  time.Time
	Ready                       []string // reasons why the control plane is not ready; empty: it is
	Troubles                    []string // requests to the API server that were refused or not answered
	Problems                    []string // problems of objects in the mesh
	ProblemsLeft                int
	Source                      string
	Services, Workloads         int
	Roots                       []rootRow
	Expiry                      time.Time // expiry of the signing certificate
	Proxies                     []xds.ProxyStatus
	ProxiesAll, ProxiesLeft     int
	ProxiesBehind, ProxiesWrong int
}

type rootRow struct {
	Name  string
	Until time.Time
}

func (p *plane) overview() overview {
	s := overview{
		Version: p.o.Version, Envoy: contract.EnvoyVersion, Replica: p.o.Replica, Began: p.began, Now: time.Now(),
		Ready: p.missing(), Source: "cluster", Expiry: p.authority.Expiry(),
	}
	if p.o.Folder != "" {
		s.Source = "folder " + p.o.Folder
	}
	if p.cluster != nil {
		s.Troubles = p.cluster.Trouble()
	}
	problems, _ := p.mesh.Problems()
	s.Problems, s.ProblemsLeft = first(problems)
	s.Services, s.Workloads = p.current().Len()
	for _, c := range p.authority.Roots() {
		s.Roots = append(s.Roots, rootRow{c.Subject.CommonName, c.NotAfter})
	}
	all := p.connected()
	for _, one := range all {
		switch r := proxyRow(one); {
		case r.Rejected != "":
			s.ProxiesWrong++
		case !r.InSync:
			s.ProxiesBehind++
		}
	}
	s.ProxiesAll = len(all)
	s.Proxies, s.ProxiesLeft = first(all)
	return s
}

// first returns the part of a list that is shown, and the number of other entries.
func first[T any](all []T) ([]T, int) {
	n := min(len(all), maxShown)
	return all[:n], len(all) - n
}

// A row describes one proxy in the table of the status page.
type row struct {
	Acked    string // accepted versions of all types, joined by commas
	InSync   bool
	Rejected string // type and reason of the first rejection
}

func proxyRow(p xds.ProxyStatus) row {
	r := row{InSync: true}
	var acked []string
	for _, t := range p.Types {
		if t.Rejected != nil && r.Rejected == "" {
			r.Rejected = t.Type + ": " + t.Rejected.Reason
		}
		if t.Pending > 0 || t.Sent != "" && t.Acked == "" || t.Rejected != nil {
			r.InSync = false
		}
		if t.Acked != "" && !slices.Contains(acked, t.Acked) {
			acked = append(acked, t.Acked)
		}
	}
	r.Acked = strings.Join(acked, ", ")
	return r
}

func (p *plane) status(w http.ResponseWriter, _ *http.Request) {
	var out bytes.Buffer
	if err := statusPage.Execute(&out, p.overview()); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	w.Write(out.Bytes()) // an error means that the client has disconnected
}
