package docs

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"
	"sigs.k8s.io/yaml"
)

// documents lists all pages with commands, including those that need a cluster.
var documents = []string{"../../*.md", "../../docs/*.md", "../../docs/*/*.md", "../../examples/*/*.md", "../../skills/*/*.md"}

var (
	fenced = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")
	span   = regexp.MustCompile("`((?:outrider|outriderd|outrider-agent|kubectl) [^`\n]+)`")
	flag   = regexp.MustCompile(`(?m)^ +(?:-(\w), )?--([\w-]+)(?: (\w+))?`)
	listed = regexp.MustCompile(`(?m)^  ([a-z][\w-]*) `)
)

// A command is a command line on a page.
type command struct {
	page string
	args []string
	fail bool // the page shows the command with a failure
}

// On the pages, each command line of outrider, outriderd, outrider-agent and kubectl uses existing subcommands and flags,
// each chart value fits the chart's schema, and each make target exists. The commands in sh blocks, which need no
// cluster, are also run, by [TestCommandsOfThePages].
func TestCommandsHaveTheirFlags(t *testing.T) {
	h := helps{bin: commands(t), known: map[string]help{}}
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	ours := 0
	for _, c := range commandLines(t) {
		switch name := filepath.Base(c.args[0]); name {
		case "outrider", "outriderd", "outrider-agent":
			ours++
			h.check(t, c, name)
		case "kubectl":
			checkKubectl(t, c)
		case "helm":
			h.checkValues(t, c)
		case "make":
			for _, target := range c.args[1:] {
				if !strings.Contains(target, "=") && !strings.HasPrefix(target, "-") && !regexp.MustCompile(`(?m)^(?:[\w -]* )?`+target+`(?: [\w -]*)?:`).Match(makefile) {
					t.Errorf("%s: make has no target %q", c.page, target)
				}
			}
		}
	}
	if ours < 100 {
		t.Errorf("%d commands found: the test looks in the wrong place", ours)
	}
}

// The chart accepts the values in each yaml block that begins with "# values.yaml".
func TestValuesOfThePages(t *testing.T) {
	bin := filepath.Join(commands(t), "outrider")
	n := 0
	eachPage(t, documents, func(page, text string) {
		for _, m := range fenced.FindAllStringSubmatch(text, -1) {
			if m[1] != "yaml" || !strings.HasPrefix(m[2], "# values.yaml\n") {
				continue
			}
			n++
			cmd := exec.Command(bin, "manifest", "-f", "-")
			cmd.Stdin = strings.NewReader(m[2])
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			if err := cmd.Run(); err != nil {
				t.Errorf("%s: %v: %s\n%s", page, err, &stderr, m[2])
			}
		}
	})
	if n < 2 {
		t.Errorf("%d blocks found: the test looks in the wrong place", n)
	}
}

// eachPage calls do for each file that matches a pattern. It fails the test if a pattern matches no file.
func eachPage(t *testing.T, patterns []string, do func(page, text string)) {
	t.Helper()
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %d files", pattern, err, len(files))
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			do(strings.TrimPrefix(file, "../../"), string(text))
		}
	}
}

// commandLines returns the command lines in the sh and console blocks of all pages, and inline code
// that begins with one of Outrider's commands. In a console block, only text after a prompt counts.
func commandLines(t *testing.T) []command {
	t.Helper()
	var out []command
	eachPage(t, documents, func(page, text string) {
		for _, m := range fenced.FindAllStringSubmatch(text, -1) {
			switch script := m[2]; m[1] {
			case "console":
				out = append(out, callsOf(t, page, typed(script), strings.Contains(script, "\nError:"))...)
			case "sh":
				out = append(out, callsOf(t, page, script, false)...)
			}
		}
		for _, m := range span.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
			if !strings.ContainsAny(m[1], "[<…") && !strings.Contains(m[1], "...") { // otherwise it is a synopsis, not a command line
				out = append(out, callsOf(t, page, m[1]+"\n", false)...)
			}
		}
	})
	return out
}

// typed returns the command lines in a console block: those after a prompt, with their continuation lines. If the
// block has no prompt, it returns the lines that begin with one of Outrider's commands or with make.
func typed(text string) string {
	var out strings.Builder
	prompts, end := strings.HasPrefix(text, "$ ") || strings.Contains(text, "\n$ "), ""
	for line := range strings.Lines(text) {
		command, ok := strings.CutPrefix(line, "$ ")
		if !prompts {
			ok = regexp.MustCompile(`^(make|outrider[d]?|outrider-agent) `).MatchString(line)
		}
		switch {
		case end != "":
			if strings.TrimSpace(line) == end || end == `\` && !strings.HasSuffix(strings.TrimSpace(line), end) {
				end = ""
			}
		case !ok:
			continue
		case strings.HasSuffix(strings.TrimSpace(line), `\`):
			end = `\`
		default:
			if m := regexp.MustCompile(`<<'(\w+)'`).FindStringSubmatch(line); m != nil {
				end = m[1]
			}
		}
		out.WriteString(command)
	}
	return out.String()
}

// callsOf returns the simple commands of a script. A word that is not constant, for example a variable, becomes empty.
func callsOf(t *testing.T, page, script string, fail bool) (out []command) {
	t.Helper()
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(script), page)
	if err != nil {
		t.Errorf("%s: %v\n%s", page, err, script)
		return nil
	}
	syntax.Walk(file, func(node syntax.Node) bool {
		call, ok := node.(*syntax.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		c := command{page: page, fail: fail}
		for _, word := range call.Args {
			text, err := expand.Literal(&expand.Config{Env: expand.FuncEnviron(func(string) string { return "" })}, word)
			if err != nil {
				text = "" // this line is output of a command
			}
			c.args = append(c.args, text)
		}
		out = append(out, c)
		return true
	})
	return out
}

// A help holds the flags and subcommands in a command's help text.
type help struct {
	commands []string
	flags    map[string]bool // by name, such as -f and --filename; true if the flag has a value
}

type helps struct {
	bin   string
	known map[string]help // cached results of the method of, by the words of the command
}

// of returns the help of a command, and reports whether the command exists.
func (h helps) of(words ...string) (help, bool) {
	key := strings.Join(words, " ")
	if known, ok := h.known[key]; ok {
		return known, known.flags != nil
	}
	args := append(slices.Clone(words[1:]), "--help")
	text, err := exec.Command(filepath.Join(h.bin, words[0]), args...).Output()
	if err != nil {
		h.known[key] = help{}
		return help{}, false
	}
	out := help{flags: map[string]bool{"-h": false, "--help": false}}
	if _, after, ok := strings.Cut(string(text), "Available Commands:\n"); ok {
		list, _, _ := strings.Cut(after, "\n\n")
		for _, m := range listed.FindAllStringSubmatch(list, -1) {
			out.commands = append(out.commands, m[1])
		}
	}
	if at := strings.Index(string(text), "\nFlags:\n"); at >= 0 {
		for _, m := range flag.FindAllStringSubmatch(string(text[at:]), -1) {
			out.flags["--"+m[2]] = m[3] != ""
			if m[1] != "" {
				out.flags["-"+m[1]] = m[3] != ""
			}
		}
	}
	h.known[key] = out
	return out, true
}

// check fails the test for subcommands and flags of a command line that the command's help lacks.
func (h helps) check(t *testing.T, c command, name string) {
	words, rest := []string{name}, c.args[1:]
	help, ok := h.of(words...)
	for ok && len(rest) > 0 && len(help.commands) > 0 && !strings.HasPrefix(rest[0], "-") {
		if len(words) > 1 && !slices.Contains(help.commands, rest[0]) {
			break // an argument, so the subcommand's name is complete
		}
		words, rest = append(words, rest[0]), rest[1:]
		help, ok = h.of(words...)
	}
	if !ok {
		t.Errorf("%s: %q is no command: %q", c.page, strings.Join(words, " "), c.args)
		return
	}
	for i := 0; i < len(rest); i++ {
		arg := rest[i]
		if arg == "--" {
			break
		}
		name, _, inline := strings.Cut(arg, "=")
		if len(arg) < 2 || arg[0] != '-' {
			continue
		}
		value, ok := help.flags[name]
		switch short := name[:2]; {
		case ok:
			if value && !inline {
				i++
			}
		case !strings.HasPrefix(name, "--") && len(name) > 2 && help.flags[short]:
			// the value follows immediately, as in -n1
		default:
			t.Errorf("%s: %s has no flag %s: %q", c.page, strings.Join(words, " "), name, c.args)
		}
	}
	if len(words) > 1 && slices.Contains([]string{"install", "upgrade", "manifest", "check"}, words[1]) {
		h.checkValues(t, c)
	}
}

// kubectlFlags has kubectl's commands that the pages use, with those of their flags that the pages use. All of them take
// -n and --context.
var kubectlFlags = map[string]string{
	"annotate": "--overwrite", "apply": "-f -k --dry-run --validate --server-side", "auth": "--all-namespaces", "cluster-info": "", "config": "", "cordon": "",
	"create": "-f --dry-run -o --from-file --from-literal --docker-server --docker-username --docker-password --image --port", "debug": "-c -it --image --profile",
	"delete": "-f -l -A --field-selector --ignore-not-found --wait", "describe": "-l -A", "exec": "-c -it", "explain": "--recursive", "expose": "",
	"get": "-A -l -o -w -L --field-selector --show-labels", "label": "-l --overwrite --all", "logs": "-c -l -f --all-containers --prefix --previous --since --tail --timestamps", "outrider": "",
	"patch": "--type --patch -p", "port-forward": "", "replace": "-f --force", "rollout": "-l --timeout", "run": "-it --image --restart --rm --command",
	"scale": "--replicas", "set": "-c --limits --requests", "taint": "--overwrite", "top": "-l -A --containers", "version": "",
}

// checkKubectl fails the test for commands and flags that are not in kubectlFlags, and for patches that are not YAML.
func checkKubectl(t *testing.T, c command) {
	var verb string
	var flags []string
	for i := 1; i < len(c.args) && c.args[i] != "--"; i++ {
		name, value, inline := strings.Cut(c.args[i], "=")
		switch {
		case name == "-n" || name == "--context":
			i++ // its value
		case strings.HasPrefix(name, "-") && name != "-":
			flags = append(flags, name)
			if !inline && i+1 < len(c.args) {
				value = c.args[i+1]
			}
			var patch map[string]any
			if name == "--patch" && yaml.Unmarshal([]byte(value), &patch) != nil {
				t.Errorf("%s: the patch is not YAML: %q", c.page, value)
			}
		case verb == "":
			verb = name
		}
	}
	known, ok := kubectlFlags[verb]
	if !ok {
		t.Errorf("%s: kubectl has no command %q, or it is not in the table: %q", c.page, verb, c.args)
	}
	for _, name := range flags {
		if !slices.Contains(strings.Fields(known), name) {
			t.Errorf("%s: kubectl %s has no flag %s, or it is not in the table: %q", c.page, verb, name, c.args)
		}
	}
}

// checkValues renders the chart with the values in a command line, and fails the test if that fails.
func (h helps) checkValues(t *testing.T, c command) {
	args := []string{"manifest"}
	for i, arg := range c.args {
		name, value, inline := strings.Cut(arg, "=")
		if !inline && i+1 < len(c.args) {
			value = c.args[i+1]
		}
		switch name {
		case "--set", "--profile":
			args = append(args, name, value)
		case "--values":
			args = append(args, "-f", value)
		}
	}
	if len(args) == 1 {
		return
	}
	cmd := exec.Command(filepath.Join(h.bin, "outrider"), args...)
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); (err != nil) != c.fail {
		t.Errorf("%s: %q: %v\n%s", c.page, c.args, err, out)
	}
}
