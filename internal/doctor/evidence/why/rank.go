package why

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// A sign is a row of the table of ranks: what a line of a rank looks like.
type sign struct {
	rank rank
	form *regexp.Regexp
}

// signs rank lines without regard to their level; the first that fits counts. A line that states a level up to info has
// no rank.
var signs = []sign{
	// Go, Rust, C++, glibc, the runtimes of Java, .NET, Node, PHP, Swift and OCaml, Spring Boot.
	{fatal, regexp.MustCompile(`\bpanic: |(?i:\bfatal error\b)|^fatal: |thread '.*' panicked at|\bException in thread |(?i:\bunhandled (?:exception|rejection|promise))|UnhandledPromiseRejection|(?i:\buncaught \w*(?:exception|error))|terminate called|APPLICATION FAILED TO START`)},
	{fatal, regexp.MustCompile(`exec format error|(?i:segmentation fault|illegal instruction\b|\bbus error\b)|error while loading shared libraries|stack smashing|OutOfMemoryError|Assertion .*failed|heap out of memory|executable file not found`)},
	// An exception: its class, perhaps in packages, at the beginning of a line; Ruby has it at the end, Elixir in brackets.
	{thrown, regexp.MustCompile(`^(?:[A-Za-z_$][\w$]*(?:\.|\\|::|/))*[A-Za-z_$][\w$]*(?:Error|Exception|Failure|Fault|Errno::\w+|NotFound|DoesNotExist)(?: \[\w+\])?(?::|$| *\(|: )`)},
	{thrown, regexp.MustCompile(`^(?:[a-z_]\w*\.)+[A-Z]\w+: `)},
	{thrown, regexp.MustCompile(`^Errno::[A-Z]+|: .+ \((?:[A-Z]\w*::)*[A-Z]\w*(?:Error|Exception|NotFound|Invalid|ENOENT|EACCES|E[A-Z]{3,})\)$|^\*\* \(\w`)},
	{thrown, regexp.MustCompile(`^(?:(?i:error|fatal|failed|failure)(?: \w+){0,3}|[\w./-]{1,40}: (?i:error|fatal))(?:\[\w+\])?: `)},
	{thrown, regexp.MustCompile(`^(?:\S+: )?(?:/\S*/)?(?:ba|da|a|z|k)?sh: |^\S+: line \d+: |^exec[ :]|^env: |^(?:standard_init_linux|OCI runtime)|^Can't locate \S+ in @INC`)},
	{thrown, regexp.MustCompile(`^SQLSTATE\[`)},
}

// words are texts of lines without a level that tell what was wrong, in lower case.
var words = []string{
	"not found", "no such file", "permission denied", "operation not permitted", "out of memory", "no space left", "read-only file system", "address already in use", "address in use",
	"missing", "is required", "are required", "must be", "must not", "is not set", "not defined", "undefined", "not configured", "no value", "invalid", "cannot", "can't", "could not", "couldn't", "unable to",
	"failed", "failure", "unsupported", "not supported", "unknown", "unrecognized", "unexpected", "denied", "expired", "unauthorized", "forbidden", "aborted", "too many", "timed out", "timeout", "refused",
	"does not exist", "doesn't exist", "already exists", "mismatch", "illegal", "bad ", "died", "error", "exception", "wrong", "exceeded", "not allowed", "conflict", "corrupt",
	"not enough", "insufficient", "low disk", "low-disk", "disk full", "refusing", "refuses",
}

// consequences match lines that only say that the program ends; another line has the reason.
var consequences = regexp.MustCompile(`(?i)\b(?:shutting down|shut ?down|exiting|aborting|stopping|stopped|terminating|giving up|exited with|exit(?:ed)? (?:code|status)|elifecycle|complete log of this run|command failed|lifecycle script|startup failed|failed to start(?: application)?$|application run failed|rake aborted|backtrace|see full trace)\b|npm (?:ERR!|error)|RUST_BACKTRACE|^Tasks: TOP`)

// endings are the words of which messages consist that say that a program ends, or gave up its lead, and not why.
var endings = setOf("a an the of with by to due and is was has had been will be being its it now not no any only at in on " +
	"exit exits exiting exited exitcode quit quitting bye goodbye shut shutting shutdown down stop stops stopping stopped terminate terminating terminated termination " +
	"abort aborts aborting aborted give gives giving gave up end ends ending ended finish finished done die dies dying died kill killed crash crashed crashing " +
	"fail fails failed failure failing fatal error errors exception unsuccessful unsuccessfully unexpectedly abnormally prematurely immediately start starting started startup boot run running " +
	"code status rc signal process program application app service server main task job worker daemon child parent pod container command script runtime system instance pid self " +
	"leader leaderelection election leadership lead lost lose losing master lease lock longer")

func setOf(words string) map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(words) {
		set[w] = true
	}
	return set
}

// onlyEnds reports whether a message says that its program ends, and nothing else: of its words that are no number,
// each is one of such messages. A heading is none: its message is in the next line.
func onlyEnds(text string) bool {
	if _, is := headingOf(text); is || len(text) > 120 {
		return false
	}
	said := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	return len(said) > 0 && !slices.ContainsFunc(said, func(w string) bool { return !endings[w] && strings.Trim(w, "0123456789") != "" })
}

// rankOf returns the rank of a line.
func rankOf(line string) rank {
	line = strings.TrimRight(plain(line[:min(len(line), mostOfLine)]), " \r\t")
	if line == "" || isFrame(line) || isCause(line) {
		return nothing
	}
	level := LevelOf(line)
	if level == Debug || level == Info {
		return nothing
	}
	r := nothing
	text := Say(line)
	indented := line[0] == ' ' || line[0] == '\t'
	i := slices.IndexFunc(signs, func(s sign) bool { return s.form.MatchString(text) || s.rank == fatal && s.form.MatchString(line) })
	switch {
	case level == Fatal:
		r = fatal
	case i >= 0 && (!indented || !strings.HasPrefix(line, "    ")):
		r = signs[i].rank
	case level == Error:
		r = asError
	case level == NoLevel && !indented && tells(text):
		r = told
	}
	switch {
	case r == nothing:
	case onlyEnds(text):
		r = ending
	case consequences.MatchString(text):
		r = weaker[r]
	}
	return r
}

// weaker has the ranks of lines that tell of an end too.
var weaker = map[rank]rank{told: nothing, asError: told, thrown: asError, fatal: thrown}

func tells(text string) bool {
	text = strings.ToLower(text)
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
}

// frames match lines of a stack trace below its header: of Java, .NET, Node, Python, Go, Rust, Ruby, PHP and C++.
var frames = regexp.MustCompile(`^\s*(?:at |\.\.\. \d+ (?:more|common)|File "|#\d+[ :]|\d+: +(?:0x|[\w<]+::)|created by |goroutine \d|--- End of|\^+$|[~^]+$|\+\d+ vendor frames|During handling|The above exception|Traceback \(|stack backtrace|\[signal |note: run with)|:\d+:in [` + "`" + `'"][^'"]*['"]$|^\s+\S+:\d+ \+0x|\(\.\.\.\)$|\(0x[0-9a-f]+[,)]|^from \S+:\d+`)

func isFrame(line string) bool { return frames.MatchString(line) }

// causes match lines of a stack trace that say what caused the error above: of Java, .NET, Rust's anyhow, Node.
var causes = []*regexp.Regexp{
	regexp.MustCompile(`^\s*(?:Caused by|caused by|Suppressed): *(\S.*)$`),
	regexp.MustCompile(`^ *---> (\S.*)$`),
	regexp.MustCompile(`^ {2,6}\d+: (\S.*)$`),
	regexp.MustCompile(`^ {2}\[cause\]: (\S.*)$`),
}

// causeOf returns the cause that a line names.
func causeOf(line string) (string, bool) {
	if isFrame(line) {
		return "", false
	}
	for _, form := range causes {
		if m := form.FindStringSubmatch(line); m != nil {
			return m[1], true
		}
	}
	return "", false
}

func isCause(line string) bool {
	_, is := causeOf(line)
	return is
}

// A heading is a line whose message is in the next line.
type heading struct {
	form  *regexp.Regexp
	keep  bool // it says something by itself
	lines int  // number of the next lines that belong to it; 0: one
}

var headings = []heading{
	{regexp.MustCompile(`^$|^[\w.]+\[\d+\]$`), false, 0}, // .NET's console, after its level
	{regexp.MustCompile(`panicked at .*:\d+:\d+:$`), false, 0},
	{regexp.MustCompile(`^rake aborted!$|^APPLICATION FAILED TO START$|^(?i:unhandled|uncaught) \w+:?$`), false, 0},
	{regexp.MustCompile(`^[\w.\\:]+(?:Exception|Error)$`), true, 0},
	{regexp.MustCompile(`\bvalidation errors? for \w+$`), true, 2},
	{regexp.MustCompile(`\S:$`), true, 0},
	{regexp.MustCompile(`^terminate called after throwing`), true, 0},
}

// headingOf returns the kind of heading that a message is, and false if it is none.
func headingOf(text string) (heading, bool) {
	for _, h := range headings {
		if h.form.MatchString(text) {
			return h, true
		}
	}
	return heading{}, false
}
