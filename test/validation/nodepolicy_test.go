package validation

import (
	"encoding/json"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"sigs.k8s.io/yaml"

	"outrider.dev/test/chart"
)

// The admission policy lets outrider-node write the label and the taint of its own node, and nothing else.
func TestNodePolicy(t *testing.T) {
	all, err := chart.Objects(map[string]any{"node": map[string]any{"enabled": true}}, "1.34")
	if err != nil {
		t.Fatal(err)
	}
	var policy struct {
		Spec struct {
			MatchConditions []struct{ Expression string }
			Variables       []struct{ Name, Expression string }
			Validations     []struct{ Expression, Message string }
		}
	}
	for _, o := range all {
		if o.Kind == "ValidatingAdmissionPolicy" {
			if err := yaml.Unmarshal([]byte(o.Text), &policy); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(policy.Spec.Validations) != 4 {
		t.Fatalf("%d validations", len(policy.Spec.Validations))
	}
	env, err := cel.NewEnv(cel.Variable("object", cel.DynType), cel.Variable("oldObject", cel.DynType), cel.Variable("request", cel.DynType), cel.Variable("variables", cel.DynType))
	if err != nil {
		t.Fatal(err)
	}
	eval := func(expression string, in map[string]any) any {
		t.Helper()
		ast, issues := env.Compile(expression)
		if issues.Err() != nil {
			t.Fatalf("%s: %v", expression, issues.Err())
		}
		program, err := env.Program(ast)
		if err != nil {
			t.Fatal(err)
		}
		out, _, err := program.Eval(in)
		if err != nil {
			t.Fatalf("%s: %v", expression, err)
		}
		return out
	}
	refused := func(object, old, node string) string {
		t.Helper()
		in := map[string]any{"variables": map[string]any{}}
		for name, text := range map[string]string{"object": object, "oldObject": old,
			"request": `{"userInfo":{"username":"system:serviceaccount:outrider-system:outrider-node","extra":{"authentication.kubernetes.io/node-name":["` + node + `"]}}}`} {
			var v any
			if err := json.Unmarshal([]byte(text), &v); err != nil {
				t.Fatal(err)
			}
			in[name] = v
		}
		for _, c := range policy.Spec.MatchConditions {
			if eval(c.Expression, in) != any(types.True) {
				t.Fatalf("%s is not about outrider-node", c.Expression)
			}
		}
		for _, v := range policy.Spec.Variables {
			in["variables"].(map[string]any)[v.Name] = eval(v.Expression, in)
		}
		for _, v := range policy.Spec.Validations {
			if eval(v.Expression, in) != any(types.True) {
				return v.Message
			}
		}
		return ""
	}
	const (
		plain  = `{"metadata":{"name":"a","labels":{"zone":"z"}},"spec":{"taints":[{"key":"t","effect":"NoSchedule"}]}}`
		serves = `{"metadata":{"name":"a","labels":{"zone":"z","outrider.dev/node":"installed","outrider.dev/node-validator":"on"}},"spec":{"taints":[{"key":"t","effect":"NoSchedule"}]}}`
		taint  = `{"metadata":{"name":"a","labels":{"zone":"z"}},"spec":{"taints":[{"key":"t","effect":"NoSchedule"},{"key":"outrider.dev/node-not-serving","effect":"NoSchedule"}]}}`
		bare   = `{"metadata":{"name":"a"},"spec":{}}`
	)
	for _, ok := range [][2]string{{serves, plain}, {plain, serves}, {taint, serves}, {serves, taint}, {bare, bare}} {
		if why := refused(ok[0], ok[1], "a"); why != "" {
			t.Errorf("%s to %s is refused: %s", ok[1], ok[0], why)
		}
	}
	if refused(serves, plain, "b") == "" {
		t.Error("another node's object is written")
	}
	for _, object := range []string{
		bare,
		`{"metadata":{"name":"a","labels":{"zone":"y"}},"spec":{"taints":[{"key":"t","effect":"NoSchedule"}]}}`,
		`{"metadata":{"name":"a","labels":{"zone":"z","x":"y"}},"spec":{"taints":[{"key":"t","effect":"NoSchedule"}]}}`,
		`{"metadata":{"name":"a","labels":{"zone":"z"}},"spec":{"taints":[]}}`,
		`{"metadata":{"name":"a","labels":{"zone":"z"}},"spec":{"unschedulable":true,"taints":[{"key":"t","effect":"NoSchedule"}]}}`,
		`{"metadata":{"name":"a","labels":{"zone":"z"},"annotations":{"x":"y"}},"spec":{"taints":[{"key":"t","effect":"NoSchedule"}]}}`,
	} {
		if refused(object, plain, "a") == "" {
			t.Errorf("%s is written", object)
		}
	}
}
