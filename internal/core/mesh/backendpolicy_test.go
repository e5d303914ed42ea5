package mesh

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"outrider.dev/test/mutants"
)

func backendPolicy(name string, age int, connections uint32, targets ...PolicyTarget) *BackendPolicySpec {
	return &BackendPolicySpec{Kind: KindBackendPolicy, Namespace: "shop", Name: name, Created: time.Unix(int64(1000-age), 0), Targets: targets,
		Settings: BackendPolicy{Limits: Limits{Connections: connections}}}
}

func budget(name string, percent uint32, targets ...PolicyTarget) *BackendPolicySpec {
	return &BackendPolicySpec{Kind: KindTrafficPolicy, Namespace: "shop", Name: name, Targets: targets,
		Settings: BackendPolicy{Budget: &RetryBudget{Percent: percent}}}
}

func portOf(name string, number uint16, p Protocol) PortSpec {
	return PortSpec{Port: Port{Name: name, Number: number, Protocol: p}}
}

// What holds is shown as port=connections, with % and the budget; the conflicts by their messages.
func TestWhichPolicyHolds(t *testing.T) {
	web, http, db := PolicyTarget{Name: "web"}, PolicyTarget{"web", "http"}, PolicyTarget{"web", "db"}
	faulty := backendPolicy("f", 0, 1, web)
	faulty.Settings.Faults = Faults{HTTPStatus: 503, AbortPercent: 100}
	none := uint32(0)
	retries := backendPolicy("r", 0, 0, web)
	retries.Settings.Limits.Retries = &none
	other := backendPolicy("other", 0, 9, web)
	other.Namespace = "bank"
	for name, tt := range map[string]struct {
		parts     []Part
		want      string
		conflicts []string // a part of each
	}{
		"none":                       {nil, "", nil},
		"of the Service":             {[]Part{backendPolicy("p", 0, 1, web)}, "80=1 81=1", nil},
		"of a port":                  {[]Part{backendPolicy("p", 0, 1, http)}, "80=1", nil},
		"of a port, and the Service": {[]Part{backendPolicy("p", 9, 1, web), backendPolicy("q", 0, 2, http)}, "80=2 81=1", []string{"warning: BackendPolicy shop/p: on the port 80 BackendPolicy shop/q counts"}},
		"the older one":              {[]Part{backendPolicy("a", 0, 1, web), backendPolicy("b", 1, 2, web)}, "80=2 81=2", []string{"BackendPolicy shop/a: is ignored: on the port 80 BackendPolicy shop/b counts; on the port 81"}},
		"of one age the first":       {[]Part{backendPolicy("b", 0, 2, web), backendPolicy("a", 0, 1, web)}, "80=1 81=1", []string{"BackendPolicy shop/b: is ignored"}},
		"of another namespace":       {[]Part{other}, "", []string{"BackendPolicy bank/other: there is no Service bank/web"}},
		"no such port":               {[]Part{backendPolicy("p", 0, 1, PolicyTarget{"web", "x"})}, "", []string{`shop/p: Service shop/web has no port with the name "x"`}},
		"faults of bytes":            {[]Part{faulty}, "80=1 81=1", []string{"warning: BackendPolicy shop/f: spec.faults has no effect on the port 81, not declared for HTTP"}},
		"a port of UDP":              {[]Part{backendPolicy("p", 0, 1, PolicyTarget{"web", "dns"})}, "", []string{"warning: BackendPolicy shop/p: has no effect on the port 53: UDP"}},
		"and a retry budget":         {[]Part{backendPolicy("p", 0, 1, db), budget("q", 30, web)}, "80=0%30 81=1%30", []string{"XBackendTrafficPolicy shop/q: spec.retryConstraint has no effect on the port 81"}},
		"a budget in place of maxRetries": {[]Part{retries, budget("q", 30, web)}, "80=0%30 81=0%30",
			[]string{"maxRetries has no effect: the port has a retry budget", "maxRetries has no effect on the port 81", "retryConstraint has no effect on the port 81"}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, order := range []int{1, -1} {
				b := NewBuilder(Config{})
				b.Set(svc("shop", "web", "10.0.0.1", portOf("http", 80, HTTP), portOf("db", 81, TCP), portOf("dns", 53, UDP)))
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

// A policy may come before its Service; with many on one Service what is reported is bounded, and a
// change of its endpoints does not judge them again.
func TestPoliciesBeforeTheirService(t *testing.T) {
	b := NewBuilder(Config{})
	for i := range 100 {
		b.Set(backendPolicy(fmt.Sprintf("p%02d", i), 0, uint32(i+1), PolicyTarget{Name: "web"}))
	}
	b.Mesh()
	if got := b.Conflicts(); len(got) != maxPolicyConflicts+1 || !strings.Contains(got[0].Message, "there is no Service") {
		t.Errorf("%d conflicts: %v", len(got), got)
	}
	b.Set(selecting(svc("shop", "web", "10.0.0.1", portOf("http", 80, HTTP)), "app", "web"), svc("shop", "other", "10.0.0.2"))
	before := b.Mesh()
	if s := before.ByName("shop", "web"); s.Policy(80).Limits.Connections != 1 || s.Policy(81) != (BackendPolicy{}) {
		t.Errorf("%+v", s.Policies)
	}
	judged := b.services[name{"shop", "web"}].policies
	b.Set(pod("shop", "web-1", "10.1.0.1", "app", "web"))
	b.Mesh()
	if b.services[name{"shop", "web"}].policies != judged {
		t.Error("the policies are judged again after a change of endpoints")
	}
	b.Set(backendPolicy("p00", 0, 7, PolicyTarget{Name: "web"}))
	changed, _ := Changed(before, b.Mesh())
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
		"UDP has policies":                 {File: "backendpolicy.go", From: `port.Protocol == UDP || len(out) > 0 && out[len(out)-1].Number == port.Number`, To: `len(out) > 0 && out[len(out)-1].Number == port.Number`},
		"bytes have faults":                {File: "backendpolicy.go", From: `!port.Protocol.IsHTTP() && port.Protocol != Unknown`, To: `false`},
		"a budget beside maxRetries":       {File: "backendpolicy.go", From: `withBudget || of.BudgetFrom != ""`, To: `withBudget`},
		"a conflict of a part is none":     {File: "backendpolicy.go", From: `v.Without = others`, To: ``},
		"a conflict as a whole is in part": {File: "backendpolicy.go", From: `len(others) > 0 && len(others)+len(udp) == len(ports)`, To: `false`},
		"all are reported":                 {File: "backendpolicy.go", From: `len(out.conflicts) >= maxPolicyConflicts`, To: `false`},
		"they are judged once":             {File: "backendpolicy.go", From: `b.service(n).policies = nil`, To: `b.service(n)`},
		"they are judged always":           {File: "update.go", From: `s.policies == nil`, To: `true`},
	})
}
