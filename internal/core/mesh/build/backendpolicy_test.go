package build

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"outrider.dev/internal/core/mesh"
	"outrider.dev/test/mutants"
)

func backendPolicy(name string, age int, connections uint32, targets ...mesh.PolicyTarget) *mesh.BackendPolicySpec {
	return &mesh.BackendPolicySpec{Kind: mesh.KindBackendPolicy, Namespace: "shop", Name: name, Created: time.Unix(int64(1000-age), 0), Targets: targets,
		Settings: mesh.BackendPolicy{Limits: mesh.Limits{Connections: connections}}}
}

func budget(name string, percent uint32, targets ...mesh.PolicyTarget) *mesh.BackendPolicySpec {
	return &mesh.BackendPolicySpec{Kind: mesh.KindTrafficPolicy, Namespace: "shop", Name: name, Targets: targets,
		Settings: mesh.BackendPolicy{Budget: &mesh.RetryBudget{Percent: percent}}}
}

func portOf(name string, number uint16, p mesh.Protocol) mesh.PortSpec {
	return mesh.PortSpec{Port: mesh.Port{Name: name, Number: number, Protocol: p}}
}

// The policies in use are listed as port=connections, and %percentage if there is a retry budget.
func TestWhichPolicyHolds(t *testing.T) {
	web, http, db := mesh.PolicyTarget{Name: "web"}, mesh.PolicyTarget{Name: "web", Section: "http"}, mesh.PolicyTarget{Name: "web", Section: "db"}
	faulty := backendPolicy("f", 0, 1, web)
	faulty.Settings.Faults = mesh.Faults{HTTPStatus: 503, AbortPercent: 100}
	none := uint32(0)
	retries := backendPolicy("r", 0, 0, web)
	retries.Settings.Limits.Retries = &none
	other := backendPolicy("other", 0, 9, web)
	other.Namespace = "bank"
	for name, tt := range map[string]struct {
		parts     []mesh.Part
		want      string
		conflicts []string // for each conflict, a text that its message must contain
	}{
		"none":                       {nil, "", nil},
		"of the Service":             {[]mesh.Part{backendPolicy("p", 0, 1, web)}, "80=1 81=1", nil},
		"of a port":                  {[]mesh.Part{backendPolicy("p", 0, 1, http)}, "80=1", nil},
		"of a port, and the Service": {[]mesh.Part{backendPolicy("p", 9, 1, web), backendPolicy("q", 0, 2, http)}, "80=2 81=1", []string{"warning: BackendPolicy shop/p: on the port 80 BackendPolicy shop/q counts"}},
		"the older one":              {[]mesh.Part{backendPolicy("a", 0, 1, web), backendPolicy("b", 1, 2, web)}, "80=2 81=2", []string{"BackendPolicy shop/a: is ignored: on the port 80 BackendPolicy shop/b counts; on the port 81"}},
		"of one age the first":       {[]mesh.Part{backendPolicy("b", 0, 2, web), backendPolicy("a", 0, 1, web)}, "80=1 81=1", []string{"BackendPolicy shop/b: is ignored"}},
		"of another namespace":       {[]mesh.Part{other}, "", []string{"BackendPolicy bank/other: there is no Service bank/web"}},
		"no such port":               {[]mesh.Part{backendPolicy("p", 0, 1, mesh.PolicyTarget{Name: "web", Section: "x"})}, "", []string{`shop/p: Service shop/web has no port with the name "x"`}},
		"faults of bytes":            {[]mesh.Part{faulty}, "80=1 81=1", []string{"warning: BackendPolicy shop/f: spec.faults has no effect on the port 81, not declared for HTTP"}},
		"a port of UDP":              {[]mesh.Part{backendPolicy("p", 0, 1, mesh.PolicyTarget{Name: "web", Section: "dns"})}, "", []string{"warning: BackendPolicy shop/p: has no effect on the port 53: UDP and SCTP"}},
		"and a retry budget":         {[]mesh.Part{backendPolicy("p", 0, 1, db), budget("q", 30, web)}, "80=0%30 81=1%30", []string{"XBackendTrafficPolicy shop/q: spec.retryConstraint has no effect on the port 81"}},
		"a budget in place of maxRetries": {[]mesh.Part{retries, budget("q", 30, web)}, "80=0%30 81=0%30",
			[]string{"maxRetries has no effect: the port has a retry budget", "maxRetries has no effect on the port 81", "retryConstraint has no effect on the port 81"}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, order := range []int{1, -1} {
				b := New(mesh.Config{})
				b.Set(svc("shop", "web", "10.0.0.1", portOf("http", 80, mesh.HTTP), portOf("db", 81, mesh.TCP), portOf("dns", 53, mesh.UDP)))
				for i := range tt.parts {
					b.Set(tt.parts[(len(tt.parts)+order*i-(1-order)/2)%len(tt.parts)])
				}
				var got []string
				for _, p := range b.Mesh().ByName("shop", "web").Policies {
					text := fmt.Sprintf("%d=%d", p.Number, p.Limits.Connections)
					if p.Budget != nil {
						text += fmt.Sprintf("%%%d", p.Budget.Percent)
					}
					got = append(got, text)
				}
				if strings.Join(got, " ") != tt.want {
					t.Errorf("%q, want %q", got, tt.want)
				}
				conflicts := b.Conflicts()
				said := ""
				for _, c := range conflicts {
					said += c.Severity + c.Object.String() + ": " + c.Message + "\n"
				}
				for _, want := range tt.conflicts {
					if !strings.Contains(said, want) {
						t.Errorf("conflicts %s\nwant %q", said, want)
					}
				}
				if len(conflicts) != len(tt.conflicts) {
					t.Errorf("%d conflicts, want %d: %s", len(conflicts), len(tt.conflicts), said)
				}
				for _, p := range tt.parts {
					b.Delete(p.Key())
				}
				if s := b.Mesh().ByName("shop", "web"); s.Policies != nil || len(b.Conflicts()) > 0 {
					t.Errorf("without them: %v, %v", s.Policies, b.Conflicts())
				}
			}
		})
	}
}

// A policy may arrive before its Service. If a Service has many policies, the number of reports is limited.
// If only an endpoint changes, the policies are not computed again.
func TestPoliciesBeforeTheirService(t *testing.T) {
	b := New(mesh.Config{})
	for i := range 100 {
		b.Set(backendPolicy(fmt.Sprintf("p%02d", i), 0, uint32(i+1), mesh.PolicyTarget{Name: "web"}))
	}
	b.Mesh()
	if got := b.Conflicts(); len(got) != maxPolicyConflicts+1 || !strings.Contains(got[0].Message, "there is no Service") {
		t.Errorf("%d conflicts: %v", len(got), got)
	}
	b.Set(selecting(svc("shop", "web", "10.0.0.1", portOf("http", 80, mesh.HTTP)), "app", "web"), svc("shop", "other", "10.0.0.2"))
	before := b.Mesh()
	if s := before.ByName("shop", "web"); s.Policy(80).Limits.Connections != 1 || s.Policy(81) != (mesh.BackendPolicy{}) {
		t.Errorf("%+v", s.Policies)
	}
	web := mesh.Key{Kind: mesh.KindService, Namespace: "shop", Name: "web"}
	judged := b.services.byName[web].policies
	b.Set(pod("shop", "web-1", "10.1.0.1", "app", "web"))
	b.Mesh()
	if b.services.byName[web].policies != judged {
		t.Error("the policies are judged again after a change of endpoints")
	}
	b.Set(backendPolicy("p00", 0, 7, mesh.PolicyTarget{Name: "web"}))
	changed, _ := mesh.Changed(before, b.Mesh())
	if len(changed) != 1 || changed[0].New.Policy(80).Limits.Connections != 7 {
		t.Errorf("a change of one policy changed %d services", len(changed))
	}
}

func TestMutantsOfPolicies(t *testing.T) {
	mutants.Run(t, "TestWhichPolicyHolds|TestPoliciesBeforeTheirService", map[string]mutants.Mutant{
		"the younger one counts":           {File: "backendpolicy.go", From: `x.Created.Compare(y.Created)`, To: `y.Created.Compare(x.Created)`},
		"the last by name counts":          {File: "backendpolicy.go", From: `cmp.Compare(x.Name, y.Name)`, To: `cmp.Compare(y.Name, x.Name)`},
		"the last one counts":              {File: "backendpolicy.go", From: `first[at] == nil`, To: `true`},
		"the one of the Service counts":    {File: "backendpolicy.go", From: `cmp.Or(first[place{kind, port.Name}], first[place{kind, ""}])`, To: `cmp.Or(first[place{kind, ""}], first[place{kind, port.Name}])`},
		"UDP has policies":                 {File: "backendpolicy.go", From: `mesh.Captured(spec.ServicePorts())`, To: `spec.ServicePorts()`},
		"bytes have faults":                {File: "verdict.go", From: `!port.Protocol.IsHTTP() && port.Protocol != mesh.Unknown`, To: `false`},
		"a budget beside maxRetries":       {File: "verdict.go", From: `withBudget || of.BudgetFrom != ""`, To: `withBudget`},
		"a conflict of a part is none":     {File: "verdict.go", From: `v.Without = others`, To: ``},
		"a conflict as a whole is in part": {File: "verdict.go", From: `len(others) > 0 && len(others)+len(uncaptured) == len(ports)`, To: `false`},
		"all are reported":                 {File: "backendpolicy.go", From: `len(out.conflicts) >= maxPolicyConflicts`, To: `false`},
		"they are judged once":             {File: "services.go", From: `s.touch(n).policies = nil`, To: `s.touch(n)`},
		"they are judged always":           {File: "update.go", From: `s.policies == nil`, To: `true`},
	})
}
