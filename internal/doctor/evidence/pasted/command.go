package pasted

import (
	"regexp"
	"strings"
)

// A command is a command of kubectl; verb is "other" for another program.
type command struct {
	verb, resource, pod, namespace, container, output string
	of                                                string // of logs: the workload, or the value of the label that selects the pods
	previous, cut                                     bool
	text                                              string // as it stands, without the prompt
}

// The forms of a prompt, with the command after it.
var (
	prompt  = regexp.MustCompile(`(?m)^[ \t>]*(?:\[[^\]\n]{1,80}\][#$%][ \t]*|PS [^\n>]{1,80}>[ \t]*|[\w.@~:/() ❯➜-]{0,80}[$#%❯➜»][ \t]+|C:[^\n>]{0,80}>[ \t]*)(\S.*)$`)
	kubectl = regexp.MustCompile(`^(?:sudo |time |watch )*(?:kubectl|oc|k|kc|kubecolor|microk8s kubectl|k3s kubectl|minikube kubectl --)[ \t]+(.+)$`)
	bare    = regexp.MustCompile(`(?m)^[ \t>]*((?:kubectl|oc|k|kc) (?:-\S+ \S+ )?(?:get|describe|logs?|events) .+)$`)
	inProse = regexp.MustCompile("(?:kubectl|oc)[ \t]+[^`\"“”)\n]*\\b(?:get|describe|logs|events)\\b[^`\"“”)\n]*")
	program = regexp.MustCompile(`^[a-z][\w./-]*(?:[ \t]|$)`)
)

// commandOf returns the command of a line that has a prompt, or begins with kubectl; false: it has none.
func commandOf(line string) (command, bool) {
	if m := prompt.FindStringSubmatch(line); m != nil {
		if k := kubectl.FindStringSubmatch(m[1]); k != nil {
			return parse(k[1]), true
		}
		return command{verb: "other", text: m[1]}, strings.Contains(line, "$ ") && program.MatchString(m[1])
	}
	if m := bare.FindStringSubmatch(line); m != nil {
		_, rest, _ := strings.Cut(m[1], " ")
		return parse(rest), true
	}
	return command{}, false
}

// inSentence returns the last command that a sentence has.
func inSentence(text string) (c command) {
	if all := inProse.FindAllString(text, -1); len(all) > 0 {
		_, rest, _ := strings.Cut(all[len(all)-1], " ")
		c = parse(strings.TrimRight(rest, " \t:.,"))
	}
	return c
}

// withValue are the options whose value is the next word.
var withValue = map[string]bool{"-n": true, "--namespace": true, "-c": true, "--container": true, "-o": true, "--output": true, "-l": true, "--selector": true, "--tail": true, "--since": true,
	"--since-time": true, "--context": true, "--cluster": true, "--kubeconfig": true, "--field-selector": true, "--sort-by": true, "--for": true, "--limit-bytes": true, "-L": true, "--as": true, "--user": true, "-s": true, "--server": true}

// resources has the names of kinds that commands use.
var resources = map[string]string{"po": "pods", "pod": "pods", "pods": "pods", "ev": "events", "event": "events", "events": "events", "no": "nodes", "node": "nodes", "nodes": "nodes"}

var (
	podName = regexp.MustCompile(`^[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?$`)
	cuts    = map[string]bool{"--tail": true, "--since": true, "--since-time": true, "--limit-bytes": true}
)

// parse reads the words after kubectl.
func parse(rest string) (c command) {
	c.text = "kubectl " + rest
	words := split(rest)
	var plain []string
	for i := 0; i < len(words); i++ {
		word := words[i]
		if strings.ContainsAny(word[:1], "|&;>#") {
			c.cut = c.cut || strings.HasPrefix(word, "|")
			break
		}
		if !strings.HasPrefix(word, "-") {
			plain = append(plain, word)
			continue
		}
		key, value, has := strings.Cut(word, "=")
		if !has && !strings.HasPrefix(key, "--") && len(key) > 2 && withValue[key[:2]] { // -nshop, -oyaml
			key, value, has = key[:2], key[2:], true
		}
		if !has && withValue[key] && i+1 < len(words) {
			i++
			value = words[i]
		}
		c.option(key, value)
	}
	c.words(plain)
	return c
}

func (c *command) option(key, value string) {
	switch key {
	case "-n", "--namespace":
		c.namespace = value
	case "-c", "--container":
		c.container = value
	case "-l", "--selector":
		if _, of, _ := strings.Cut(value, "="); podName.MatchString(of) {
			c.of = of
		}
	case "-o", "--output":
		c.output = value
	case "-p", "--previous":
		c.previous = value != "false"
	}
	c.cut = c.cut || cuts[key]
}

// words reads the words that are no options: VERB RESOURCE NAME, VERB RESOURCE/NAME or logs POD CONTAINER.
func (c *command) words(plain []string) {
	if len(plain) == 0 {
		return
	}
	c.verb, plain = plain[0], plain[1:]
	if c.verb == "log" {
		c.verb = "logs"
	}
	if len(plain) == 0 {
		return
	}
	kind, name, slash := strings.Cut(plain[0], "/")
	switch {
	case slash:
		plain[0] = name
	case c.verb == "logs":
		kind = "pod"
	default:
		plain = plain[1:]
	}
	c.resource = resources[kind]
	if c.resource == "" {
		c.resource = "other"
	}
	if c.resource == "other" && c.verb == "logs" {
		c.of = name
	}
	if len(plain) > 0 && c.resource == "pods" && podName.MatchString(plain[0]) && (c.verb == "logs" || len(plain) == 1) {
		c.pod = plain[0]
	}
	if c.verb == "logs" && len(plain) > 1 && c.container == "" && podName.MatchString(plain[1]) {
		c.container = plain[1]
	}
}

// split splits a command line at its spaces outside of quotes.
func split(line string) (words []string) {
	var word strings.Builder
	var quote rune
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '\'' || r == '"'):
			quote = r
		case quote == 0 && (r == ' ' || r == '\t'):
			if word.Len() > 0 {
				words = append(words, word.String())
			}
			word.Reset()
		default:
			word.WriteRune(r)
		}
	}
	if word.Len() > 0 {
		words = append(words, word.String())
	}
	return words
}
