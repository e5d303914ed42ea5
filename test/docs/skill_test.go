package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// skillFolder returns a folder with what the commands of a skill read: an incident, and a manifest with a mistake.
func skillFolder(t *testing.T) string {
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "incident"), os.DirFS("../../testdata/incidents/awesome-go-istio-race")); err != nil {
		t.Fatal(err)
	}
	const manifest = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: app, image: "example.com/app:1", command: [/app]}
      - {name: istio-proxy, image: "istio/proxyv2:1.27.1", args: [proxy, sidecar], lifecycle: {postStart: {exec: {command: [pilot-agent, wait]}}}, readinessProbe: {httpGet: {path: /healthz/ready, port: 15021}}}
`
	if err := os.WriteFile(filepath.Join(dir, "deployment.yaml"), []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// The front matter of each skill is as the specification of Agent Skills (agentskills.io) wants it.
func TestFrontMatterOfSkills(t *testing.T) {
	eachPage(t, []string{"../../skills/*/SKILL.md"}, func(page, text string) {
		_, rest, begins := strings.Cut(text, "---\n")
		front, body, ends := strings.Cut(rest, "\n---\n")
		var skill struct{ Name, Description, Compatibility string }
		err := yaml.UnmarshalStrict([]byte(front), &skill)
		switch n := len(skill.Description); {
		case !begins || !ends || err != nil:
			t.Errorf("%s has no front matter: %v", page, err)
		case skill.Name != filepath.Base(filepath.Dir(page)) || !regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`).MatchString(skill.Name) || len(skill.Name) > 64:
			t.Errorf("%s: the name is %q, want that of its folder", page, skill.Name)
		case n == 0 || n > 1024 || len(skill.Compatibility) > 500:
			t.Errorf("%s: the description has %d characters, and the compatibility %d", page, n, len(skill.Compatibility))
		case strings.Count(body, "\n") > 500:
			t.Errorf("%s has more than 500 lines", page)
		}
	})
}

// A toolset is a file of HolmesGPT's custom toolsets, with the fields that are used. HolmesGPT refuses others. Source:
// holmes/core/tools.py of HolmesGPT (Toolset, YAMLTool, ToolParameter).
type toolset struct {
	Description     string                     `json:"description"`
	Tags            []string                   `json:"tags"`
	Prerequisites   []struct{ Command string } `json:"prerequisites"`
	LLMInstructions string                     `json:"llm_instructions"`
	Tools           []tool                     `json:"tools"`
}

type tool struct {
	Name            string `json:"name"`
	Description     string `json:"description"`
	UserDescription string `json:"user_description"`
	Command         string `json:"command"`
	Parameters      map[string]struct {
		Description string   `json:"description"`
		Enum        []string `json:"enum"`
	} `json:"parameters"`
}

// placeholder matches a parameter in a command. HolmesGPT fills it by Jinja, quoted for a shell.
var placeholder = regexp.MustCompile(`\{\{ (\w+) \}\}`)

// Each command of the toolset runs: on an incident where it reads files, else up to the cluster, which is not there.
// No value of a parameter is taken as a flag.
func TestToolsetOfHolmesGPT(t *testing.T) {
	text, err := os.ReadFile("../../skills/outrider/holmesgpt-toolset.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Toolsets map[string]toolset `json:"toolsets"`
	}
	if err := yaml.UnmarshalStrict(text, &file); err != nil || len(file.Toolsets) != 1 {
		t.Fatalf("%d toolsets, %v", len(file.Toolsets), err)
	}
	set := file.Toolsets["outrider"]
	run := func(command string) (string, int) {
		cmd := exec.Command("sh", "-c", command)
		cmd.Dir = skillFolder(t)
		cmd.Env = append(os.Environ(), "KUBECONFIG=/nonexistent", "PATH="+commands(t)+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
	for _, p := range set.Prerequisites {
		if out, status := run(p.Command); status != 0 {
			t.Errorf("%s: exit status %d\n%s", p.Command, status, out)
		}
	}
	if len(set.Tools) == 0 || set.Description == "" || set.LLMInstructions == "" {
		t.Error("the toolset has no tools, or does not say what it is for")
	}
	values := map[string]string{"pod": "web-1", "namespace": "shop", "kind": "deploy", "name": "web", "path": "incident", "code": "startup-race"}
	for _, tool := range set.Tools {
		for _, m := range placeholder.FindAllStringSubmatch(tool.Command+tool.UserDescription, -1) {
			if p, has := tool.Parameters[m[1]]; !has || p.Description == "" || values[m[1]] == "" {
				t.Errorf("%s: the parameter %s is not described, or this test has no value for it", tool.Name, m[1])
			}
		}
		fill := func(value func(name string) string) string {
			return placeholder.ReplaceAllStringFunc(tool.Command, func(p string) string { return "'" + value(placeholder.FindStringSubmatch(p)[1]) + "'" })
		}
		out, status := run(fill(func(name string) string { return values[name] }))
		if status != 0 && !strings.Contains(out, "names no cluster") && !strings.Contains(out, "kubectl") {
			t.Errorf("%s: exit status %d\n%s", tool.Name, status, out)
		}
		if out, _ := run(fill(func(string) string { return "--help" })); strings.Contains(out, "Usage:") {
			t.Errorf("%s takes the value of a parameter as a flag", tool.Name)
		}
	}
}
