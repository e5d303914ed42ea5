package pasted

import (
	"regexp"
	"slices"
	"strings"
)

// A Run says which run of a container a name or a heading means.
type Run int

// The runs.
const (
	Unsaid  Run = iota
	Current     // the one that runs now
	Before      // the one before a restart
	First       // the first one
)

// runs has the words that say of which run a log is. The first row that fits counts. The word "last" alone is of the run
// that ended, as in lastState.
var runs = []struct {
	words *regexp.Regexp
	run   Run
}{
	{regexp.MustCompile(`\b(?:(?:1st|first)[ ](?:ever )?(?:run|start|attempt|try|boot|launch)|run[ ](?:1|one))\b`), First},
	{regexp.MustCompile(`\b(?:after (?:the |its |it )?(?:\w+ )?(?:restart|restarted|crash)|(?:2nd|second) (?:run|start|attempt)|current(?:ly)?|now|new|latest|present|running|live)\b`), Current},
	{regexp.MustCompile(`\b(?:previous|previously|prev|before (?:the |its |it )?(?:\w+ )?(?:restart|restarted|crash|crashed|died)|old|older|crash|crashed|crashing|dead|died|terminated|last|p)\b`), Before},
}

// roles has the words for containers of a kind. proxy: those of meshes; else those of the application.
var roles = []struct {
	word  string
	proxy bool
}{{"proxy", true}, {"sidecar", true}, {"mesh", true}, {"envoy", true}, {"dataplane", true}, {"app", false}, {"application", false}, {"main", false}, {"workload", false}, {"service", false}}

// neutral are words in the names of logs that say nothing about the container.
var neutral = regexp.MustCompile(`^(?:logs?|txt|out|err|errs|errors?|stderr|stdout|output|container|containers|pod|pods|tail|head|lines?|full|only|part|partial|excerpt|snippet|extract|of|the|its|it|from|in|at|a|an|to|for|` +
	`kubectl|dump|copy|copied|paste|pasted|start|starts|startup|boot|run|restart|restarts|restarted|before|after|during|first|second|1st|2nd|try|attempt|all|json|raw|utc|ts|timestamps|[0-9]+|[0-9]{4}[0-9t]*z?)$`)

// separator splits names and headings into words.
var separator = regexp.MustCompile(`[^a-z0-9]+`)

func words(text string) []string {
	return slices.DeleteFunc(separator.Split(strings.ToLower(text), -1), func(w string) bool { return w == "" })
}

// RunOf returns the run that the name of a file means.
func RunOf(name string) Run { return runIn(words(name)) }

// runIn returns the run that a text means, without the words of the containers' names.
func runIn(said []string) Run {
	text := strings.Join(said, " ")
	for _, r := range runs {
		if r.words.MatchString(text) {
			return r.run
		}
	}
	return Unsaid
}

// A Pod has the names that a log may have been named after.
type Pod struct {
	Name, Namespace string
	Apps, Proxies   []string // containers; proxies of meshes apart
	Others          []string // init containers and others, which no role means
	Primary         string   // by the pod's annotation; may be empty
}

func (p Pod) all() []string { return slices.Concat(p.Apps, p.Proxies, p.Others) }

// ByFile finds the container and the run that the name of a file means, in any style: words of the container, of the
// pod, of its run, and those that say nothing may stand in any order. A word of something else makes it mean none.
func (p Pod) ByFile(name string) (container string, run Run, ok bool) {
	said := words(name)
	container, rest := p.named(said)
	run = runIn(rest)
	own := words(p.Name + " " + p.Namespace)
	role := ""
	for _, w := range rest {
		switch {
		case empty(w, own):
		case slices.ContainsFunc(roles, func(r struct {
			word  string
			proxy bool
		}) bool {
			return r.word == w
		}):
			role = w
		default:
			return "", Unsaid, false
		}
	}
	if container == "" {
		container = p.ofRole(rest)
	} else if role != "" && !slices.Contains(p.role(role), container) {
		return "", Unsaid, false
	}
	return container, run, container != ""
}

// ByHeading finds the container and the run that the heading of a log means: one that it names, or, in a short one, the
// only one of a role.
func (p Pod) ByHeading(heading string) (container string, run Run, ok bool) {
	said := words(heading)
	container, rest := p.named(said)
	if container == "" && len(said) <= 12 {
		container = p.ofRole(rest)
	}
	return container, runIn(rest), container != ""
}

// PartOfFile finds the container that the name of a file means by a word that no other container's name has, and the word.
func (p Pod) PartOfFile(name string) (container, word string, run Run, ok bool) {
	said := words(name)
	container, word = p.byWord(said)
	if container == "" || !p.Neutral(name, words(container)...) {
		return "", "", Unsaid, false
	}
	return container, word, runIn(said), true
}

// PartOfHeading is PartOfFile for a heading, which must be short: a sentence has words by chance.
func (p Pod) PartOfHeading(heading string) (container, word string, run Run, ok bool) {
	said := words(heading)
	if len(said) > mostShort {
		return "", "", Unsaid, false
	}
	container, word = p.byWord(said)
	return container, word, runIn(said), container != ""
}

// mostShort is the number of words of a short heading.
const mostShort = 8

// byWord returns the only container whose name, of several words, has one of those that are said, and the word. Words that
// two containers have, and those of roles, mean none.
func (p Pod) byWord(said []string) (container, word string) {
	for _, w := range said {
		if len(w) < 3 || p.role(w) != nil || empty(w, nil) {
			continue
		}
		var of []string
		for _, c := range p.all() {
			if slices.Contains(words(c), w) {
				of = append(of, c)
			}
		}
		switch {
		case len(of) == 0:
		case len(of) > 1, container != "" && container != of[0]:
			return "", ""
		default:
			container, word = of[0], w
		}
	}
	return container, word
}

// Neutral reports whether the name of a file has no word of something else than the pod, a run, a role or some others.
func (p Pod) Neutral(name string, others ...string) bool {
	own := words(p.Name + " " + p.Namespace)
	return !slices.ContainsFunc(words(name), func(w string) bool {
		return !empty(w, own) && p.role(w) == nil && !slices.Contains(others, w)
	})
}

// empty reports whether a word of a name is of the pod's own name, of a run, or says nothing.
func empty(w string, own []string) bool {
	return slices.Contains(own, w) || neutral.MatchString(w) || runIn([]string{w}) != Unsaid
}

// IsAside reports whether a heading says that the text below it is of something else than the pod, or did not happen.
func IsAside(heading string) bool { return aside.MatchString(heading) }

// named returns the container whose name a text has, word by word, and the other words; empty: none, or several. A name
// that is a part of a longer one does not count.
func (p Pod) named(said []string) (container string, rest []string) {
	all := p.all()
	slices.SortStableFunc(all, func(a, b string) int { return len(words(b)) - len(words(a)) })
	rest = slices.Clone(said)
	own := words(p.Name)
	if at := index(rest, own); at >= 0 && len(own) > 1 {
		rest = slices.Delete(rest, at, at+len(own))
	}
	several := false
	for _, c := range all {
		name := words(c)
		for at := index(rest, name); at >= 0 && len(name) > 0; at = index(rest, name) {
			rest = slices.Delete(rest, at, at+len(name))
			several = several || container != "" && container != c
			container = c
		}
	}
	if several { // and no role counts either
		return "", nil
	}
	return container, rest
}

func index(in, of []string) int {
	for i := 0; i+len(of) <= len(in); i++ {
		if slices.Equal(in[i:i+len(of)], of) {
			return i
		}
	}
	return -1
}

// ofRole returns the only container of the roles that the words name; empty: there are none, or several.
func (p Pod) ofRole(said []string) string {
	found := ""
	for _, w := range said {
		of := p.role(w)
		switch {
		case of == nil:
		case len(of) != 1, found != "" && found != of[0]:
			return ""
		default:
			found = of[0]
		}
	}
	return found
}

// role returns the containers of a role; nil: the word is none.
func (p Pod) role(word string) []string {
	for _, r := range roles {
		switch {
		case r.word != word:
		case r.proxy:
			of := slices.DeleteFunc(p.all(), func(c string) bool { return !slices.Contains(words(c), word) })
			switch {
			case word == "sidecar" && len(of) == 0 && len(p.Apps) > 1: // any of them may be meant
				of = p.all()
			default:
				of = append(of, p.Proxies...)
			}
			slices.Sort(of)
			return slices.Compact(append([]string{}, of...))
		default:
			return append([]string{}, p.Apps...)
		}
	}
	return nil
}

// Unmarked removes the part of the name of a log that says of which run it is, if it is at the beginning or the end, and
// reports whether that is the run before.
func Unmarked(base string) (rest string, previous bool) {
	for found := true; found; { // app-logs-previous has two
		found = false
		for _, m := range marks {
			if rest, ok := m.cut(base); ok && base != "" {
				base, previous, found = rest, previous || m.previous, true
				break
			}
		}
	}
	return base, previous
}

// A mark is a part of the name of a log that says of which run it is.
type mark struct {
	word     string
	previous bool
}

var marks = []mark{{"previous", true}, {"prev", true}, {"current", false}, {"logs", false}, {"log", false}}

// cut removes the mark from the beginning or the end of a name, and returns false if it is at neither.
func (m mark) cut(base string) (rest string, ok bool) {
	if base == m.word {
		return "", true
	}
	for _, between := range []string{".", "-", "_"} {
		if rest, ok := strings.CutSuffix(base, between+m.word); ok && rest != "" {
			return rest, true
		}
		if rest, ok := strings.CutPrefix(base, m.word+between); ok && rest != "" {
			return rest, true
		}
	}
	return base, false
}
