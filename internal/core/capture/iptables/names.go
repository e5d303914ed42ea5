package iptables

import (
	"fmt"
	"regexp"
	"strings"

	"outrider.dev/internal/core/capture"
)

// prefix is the beginning of our chains' names in the kernel.
const prefix = "OUTRIDER_"

// maxName is XT_EXTENSION_MAXNAMELEN without the final NUL.
const maxName = 28

// tables is the order in which tables are written: parking is in the filter table, and must exist
// before the nat table redirects connections to it.
var tables = []capture.Table{capture.Filter, capture.Mangle, capture.Raw, capture.NAT}

// families are in the order in which they are read.
var families = []capture.Families{capture.IPv4, capture.IPv6}

// builtins maps hooks to the kernel's chains at these hooks.
var builtins = map[capture.Hook]string{
	capture.Prerouting: "PREROUTING",
	capture.Input:      "INPUT",
	capture.Output:     "OUTPUT",
}

func hookOf(builtin string) (capture.Hook, error) {
	// any order: names are unique.
	for hook, name := range builtins {
		if name == builtin {
			return hook, nil
		}
	}
	return capture.NoHook, fmt.Errorf("chain %s: we write no rules there", builtin)
}

// kernelName returns the kernel's name of a chain.
func kernelName(name string) (string, error) {
	k := prefix + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
	if !capture.ValidName(name) || len(k) > maxName {
		return "", fmt.Errorf("chain %q: iptables accepts lower case letters, digits and dashes, at most %d", name, maxName-len(prefix))
	}
	return k, nil
}

// chainName is the inverse of kernelName.
func chainName(kernel string) (string, error) {
	name := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(kernel, prefix), "_", "-"))
	if k, err := kernelName(name); err != nil || k != kernel {
		return "", fmt.Errorf("chain %s: not a name that we write", kernel)
	}
	return name, nil
}

func isOurs(chain string) bool { return strings.HasPrefix(chain, prefix) }

// jumpTo returns the only rule that we add to a chain of the kernel. It is the same in every version, so that
// each version can remove it.
func jumpTo(kernel string) string { return "-m comment --comment outrider -j " + kernel }

// quote quotes s as iptables-save does.
func quote(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_'
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return `"` + escapes.Replace(s) + `"`
}

var escapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`, `'`, `\'`)

var (
	wordForm = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|[^\s"]+`)
	escaped  = regexp.MustCompile(`\\(.)`)
)

// split divides a line into words. iptables-save quotes only whole words.
func split(line string) ([]string, error) {
	words := wordForm.FindAllString(line, -1)
	for i, w := range words {
		if strings.HasPrefix(w, `"`) {
			words[i] = escaped.ReplaceAllString(w[1:len(w)-1], "$1")
		}
	}
	if strings.TrimSpace(wordForm.ReplaceAllString(line, "")) != "" {
		return nil, fmt.Errorf("a quote is open at the end of %q", line)
	}
	return words, nil
}
