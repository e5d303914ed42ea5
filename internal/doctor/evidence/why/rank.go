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
	{crash, regexp.MustCompile(`\bpanic: |(?i:\bfatal error\b)|^fatal: |thread '.*' panicked at|\bException in thread |(?i:\bunhandled (?:exception|rejection|promise))|UnhandledPromiseRejection|(?i:\buncaught \w*(?:exception|error))|terminate called|APPLICATION FAILED TO START`)},
	{crash, regexp.MustCompile(`exec format error|(?i:segmentation fault|illegal instruction\b|\bbus error\b)|error while loading shared libraries|stack smashing|OutOfMemoryError|Assertion .*failed|heap out of memory|executable file not found`)},
	// A test that failed: of the runners of Go, Python, JavaScript, Ruby, .NET, PHP.
	{crash, regexp.MustCompile(`^(?:[\w.]+(?:\.|::))?Assert\w*(?:Error|Failed\w*)\b|^Failed asserting that|^--- FAIL: |^FAILED \S+::|^rspec \S+:\d+ # |^not ok \d|^● .+ › |^Failed [\w.]+\.\w+ \[`)},
	// An exception: its class, perhaps in packages, at the beginning of a line; Ruby has it at the end, Elixir in brackets.
	{thrown, regexp.MustCompile(`^(?:[A-Za-z_$][\w$]*(?:\.|\\|::|/))*[A-Za-z_$][\w$]*(?:Error|Exception|Failure|Fault|Errno::\w+|NotFound|DoesNotExist)(?: \[\w+\])?(?::|$| *\(|: )`)},
	{thrown, regexp.MustCompile(`^(?:[a-z_]\w*\.)+[A-Z]\w+: `)},
	{thrown, regexp.MustCompile(`^Errno::[A-Z]+|: .+ \((?:[A-Z]\w*::)*[A-Z]\w*(?:Error|Exception|NotFound|Invalid|ENOENT|EACCES|E[A-Z]{3,})\)$|^\*\* \(\w`)},
	{thrown, regexp.MustCompile(`^(?:(?i:error|fatal|failed|failure)(?: \w+){0,3}|[\w./-]{1,40}: (?i:error|fatal))(?:\[\w+\])?: |^make(?:\[\d+\])?: \*\*\* |^curl: \(\d|^\S+:\d+:\d+: (?i:error|fatal)|^\S+\(\d+,\d+\): error |^error in |^Unrecognized VM option`)},
	{thrown, regexp.MustCompile(`^(?:\S+: )?(?:/\S*/)?(?:ba|da|a|z|k)?sh: |^\S+: line \d+: |^\S+: \d+: \w+: |^exec[ :]|^env: |^(?:standard_init_linux|OCI runtime)|^Can't locate \S+ in @INC`)},
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
	"load loading loaded config configuration configurations initialization initialize initializing init errors setup bootstrap bootstrapping " +
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
	r := nothing
	level, text := LevelOf(line), Say(line)
	if level == Debug || level == Info {
		return nothing
	}
	indented := line[0] == ' ' || line[0] == '\t'
	i := slices.IndexFunc(signs, func(s sign) bool {
		return s.form.MatchString(text) || s.rank == crash && s.form.MatchString(strings.TrimLeft(line, " \t"))
	})
	switch {
	case i >= 0 && (!indented || !strings.HasPrefix(line, "    ") || assertion.MatchString(text)):
		r = signs[i].rank
		if level == Fatal && r < fatal {
			r = fatal
		}
	case level == Fatal:
		r = fatal
	case level == Error:
		r = asError
	case level == NoLevel && !indented && tells(text):
		r = told
	}
	switch {
	case r == nothing || noMessage.MatchString(text):
		return nothing
	case onlyEnds(text) || isGeneral(text):
		return ending
	case isHeading(text) || !consequences.MatchString(text):
		return r
	case r < crash && isVague(text):
		return ending
	case r == crash || !isGiven(text):
		return weaker[r]
	}
	return r
}

// weaker has the ranks of lines that tell of an end too, and of no reason that is in the table.
var weaker = map[rank]rank{told: nothing, asError: told, thrown: asError, fatal: thrown, crash: fatal}

// noMessage matches what is no sentence: a URL, a duration.
var noMessage = regexp.MustCompile(`^\S+://\S+$|^[\d.]+m?s$`)

// general are parts of sentences that follow the reason, in lower case: the program, or the one that started it, sums up
// that something failed, or says where to read more.
var general = []string{
	"contains errors", "error found in", "errors found in", "error(s) found in", "errors in configuration file", "cannot load config file", "could not read config file", "node validation exception",
	"could not create the java virtual machine", "fatal exception has occurred", "did not exit normally", "init function returned error", "registration as a ", "initialization aborted", "unable to open logs",
	"no listening sockets", "could not create any", "for more details", "for more information", "for more help", "please make sure", "please refer", "please read", "check the log", "see above", "see previous errors", "see the log",
	"[help 1]", "[help 2]", "error found at", "error occurred at", "could not read from remote", "compilation failed", "compilation terminated", "could not compile", "error generating configuration in phase",
	"bootstrap checks failed", "no app loaded", "unable to load app ", "worker failed to boot", "execution halted", "command failed with", "exit status ", "exit code ", "background on this error", "prepare to shut",
	"terminated abnormally", "curl failed to verify", "some files/attrs were not transferred", "not recoverable", "data dictionary initialization", "there are test failures", "there were failing tests",
	"tests run:", "assertions: ", "test result: failed", "test failed, to rerun", "failures!", "(with errors)",
}

// generalForms match such sentences by their beginning, or as a whole.
var generalForms = []*regexp.Regexp{
	regexp.MustCompile(`^(?i:please )?(?i:see|refer|check|consult|visit|try|run|usage|did you mean)\b`),
	regexp.MustCompile(`^(?i:npm (?:err|error)\b|thrown in|error command failed|re-run \w+ with)`),
	regexp.MustCompile(`^make(?:\[\d+\])?: \*\*\* .*Error \d`),
	regexp.MustCompile(`^(?:\(\w+\) )?(?i:error: )?(?i:failed to (?:initiali[sz]e|boot|start|load|parse|run|execute))(?: the| a)?[ \w()\[\]]{0,48}$`),
	regexp.MustCompile(`(?i:initiali[sz]ation|startup|boot|build) failed\b\W*(?:with an exception)?\W*$`),
	regexp.MustCompile(`^(?i:tests?:? .*(?:fail|error)|test (?:suites|files) |failures?!?:?$|failed!? +-|failed tests \d|there (?:was|were) \d+ (?:failure|error)|terminating, \d+ bad)`),
	regexp.MustCompile(`^(?:=+ .*)?\d+ (?:failed|failing|examples?)\b|compiled with \d+ error|^Fatal error during .*(?i:startup)`),
}

// isGeneral reports whether a message follows the reason, and has none.
func isGeneral(text string) bool {
	lower := strings.ToLower(text)
	return slices.ContainsFunc(general, func(part string) bool { return strings.Contains(lower, part) }) ||
		slices.ContainsFunc(generalForms, func(form *regexp.Regexp) bool { return form.MatchString(text) })
}

// isGiven reports whether a message has a reason of the table.
func isGiven(text string) bool {
	c, _ := classOf(text)
	return c != nil
}

// objects match what names something: a text in quotes, a file, a setting.
var objects = regexp.MustCompile("[\"'`][^\"'`]+[\"'`]|(?:^|[\\s=])/[\\w.-]+|[\\w-]+\\.[\\w-]+|\\b\\w+=\\S|\\[[^\\]]+\\]")

// isMentioned reports whether a line of a low level has a reason of the table, in a message with more parts than one.
func isMentioned(line string) bool {
	level := LevelOf(line)
	if level != Debug && level != Info && level != Warning {
		return false
	}
	text := Say(line)
	return strings.Contains(text, ": ") && !onlyEnds(text) && isGiven(text)
}

// crashScore is the least score of a crash.
const crashScore = 100

// score returns how much a line tells of the reason, in steps of a class: so that of two lines that tell as much, the
// one whose class comes first in the table counts. A line that says no more than that there is an end has less than any
// other, and a crash more; else its rank counts, that its reason is in the table, and that it names something.
func score(line string) int {
	r := rankOf(line)
	if r <= ending {
		return int(r)
	}
	s := 2 * int(r)
	if r == crash {
		s = crashScore
	}
	text := Say(line)
	for i := range classes {
		if _, fits := classes[i].fits(text); fits {
			return (s+6)*len(classes) + len(classes) - 1 - i
		}
	}
	switch {
	case saysMore.MatchString(text):
		s += 6
	case tells(text):
		s++
	}
	switch {
	case isVague(text):
		s -= 3
	case namesOne(text):
		s++
	}
	return s * len(classes)
}

// saysMore matches reasons that are in no row of the table, since no advice follows from their words.
var saysMore = regexp.MustCompile(`(?i)not supported|must (?:not )?be\b|too (?:low|high|old|large|small|many)|n[o']t match|mismatch|not (?:a valid|enough|allowed|installed|mounted|unique)|\bno such|does not exist|already`)

// namesOne reports whether a message names something, or wraps another.
func namesOne(text string) bool { return objects.MatchString(text) || strings.Contains(text, ": ") }

// isVague reports whether a message is short, and names nothing.
func isVague(text string) bool {
	return len(strings.Fields(text)) <= vague && !namesOne(text) && !isGiven(text)
}

// vague is the largest number of words of a message that names nothing.
const vague = 4

func tells(text string) bool {
	text = strings.ToLower(text)
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
}

// frames match lines of a stack trace below its header: of Java, .NET, Node, Python, Go, Rust, Ruby, PHP and C++.
var frames = regexp.MustCompile(`^\s*(?:at |\.\.\. \d+ (?:more|common)|File "|#\d+[ :]|\d+: +(?:0x|[\w<]+::)|created by |goroutine \d|--- End of|\^+$|[~^]+$|\+\d+ vendor frames|During handling|The above exception|Traceback \(|stack backtrace|\[signal |note: run with)|:\d+:in [` + "`" + `'"][^'"]*['"]$|^\s+\S+:\d+ \+0x|\(\.\.\.\)$|^\S+\(0x[0-9a-f]+[,)]|^from \S+:\d+`)

func isFrame(line string) bool { return frames.MatchString(line) }

// causes match lines of a stack trace that say what caused the error above: of Java, .NET, Rust's anyhow, Node.
var causes = []*regexp.Regexp{
	regexp.MustCompile(`^\s*(?:Caused by|caused by|Suppressed): *(\S.*)$`),
	regexp.MustCompile(`^ *---> (\S.*)$`),
	regexp.MustCompile(`^ {2,6}\d+: (\S.*)$`),
	regexp.MustCompile(`^ {2}\[cause\]: (\S.*)$`),
	regexp.MustCompile(`^ +\*\* (\((?:[A-Z]\w*\.)*[A-Z][A-Z]?[a-z]\w*\) \S.*)$`), // Elixir
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

// A heading is a line whose message is in the next lines.
type heading struct {
	form  *regexp.Regexp
	keep  bool // it says something by itself
	lines int  // the largest number of lines that belong to it; 0: those of a paragraph
}

// mostOfParagraph is the largest number of lines of a paragraph that a message has.
const mostOfParagraph = 4

var headings = []heading{
	{regexp.MustCompile(`^$|^[\w.]+\[\d+\]$`), false, 2}, // .NET's console, after its level
	{regexp.MustCompile(`panicked at .*:\d+:\d+:$`), false, 3},
	{regexp.MustCompile(`^rake aborted!$|^APPLICATION FAILED TO START$|^(?i:unhandled|uncaught) \w+:?$`), false, 0},
	{regexp.MustCompile(`^(?:\*\*\* )?(?:FATAL )?CONFIG FILE ERROR\b`), false, 3},
	{regexp.MustCompile(`^[\w.\\:]+(?:Exception|Error)$`), true, 1},
	{regexp.MustCompile(`\bvalidation errors? for \w+$`), true, 2},
	{regexp.MustCompile(`^not ok \d`), true, 2},
	{regexp.MustCompile(`^--- FAIL: |^● .+ › |^BOOT FAILED$|^Execution error \(`), true, 1},
	{regexp.MustCompile(`^Failed [\w.]+ \[[\d.]+ m?s\]$`), true, 2},
	{regexp.MustCompile(`^(?i:error|fatal): [A-Z]\d{3,5}$|^Msg \d+, Level \d+|^Runtime Error$|^(?i:validate failed)\b|^Error: Unsupported \w+$|^ERROR in \./\S+ \S+$|^in \./\S+ \S+$`), true, 0},
	{regexp.MustCompile(`\S[:=]$|: [{(\[]$`), true, 0},
	{regexp.MustCompile(`^terminate called after throwing`), true, 1},
}

// isHeading reports whether the message of a line is in the next lines.
func isHeading(text string) bool {
	_, is := headingOf(text)
	return is
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
