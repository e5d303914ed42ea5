package netns

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"outrider.dev/test/ns"
)

// command runs a program in the network namespace of the calling thread, and returns its output.
func command(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Errorf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// volatile matches the parts of a listing that change with traffic or time.
var volatile = regexp.MustCompile(`(?m)^#.*\n|\[\d+:\d+\]|packets \d+ bytes \d+|^:.*\n`)

// saved returns the rules of an iptables variant, without counters, without comments, and without the policies of
// builtin chains.
func saved(t testing.TB, pod *ns.Namespace, variant string) string {
	t.Helper()
	var out string
	pod.Do(func() {
		for _, save := range []string{variant + "-save", strings.Replace(variant, "iptables", "ip6tables", 1) + "-save"} {
			out += command(t, save)
		}
	})
	out = volatile.ReplaceAllString(out, "")
	// Ignore empty tables, which iptables-save creates, or which are left from Outrider's rules.
	lines := slices.DeleteFunc(strings.Split(out, "\n"), func(l string) bool { return !strings.HasPrefix(l, "-A") })
	return strings.Join(lines, "\n")
}
