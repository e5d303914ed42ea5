package shell

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Which order a statement guarantees depends on how it polls. A loop that ends only after a success guarantees
// the order. All other loops give up at some time, and the script continues. A loop that cannot be analysed
// counts as one that gives up, so that it is not trusted.

// separators lists the words between statements of a loop.
var separators = map[string]bool{";": true, "&&": true, "||": true, "|": true, "&": true}

// IsLoop reports whether the statement is a loop of the shell.
func (s Statement) IsLoop() bool {
	return slices.Contains([]string{"until", "while", "for"}, s.words[0])
}

// Unbounded reports whether a loop ends only after a success. That requires two things. The condition is a poll
// of a port and nothing else, or is one that never ends the loop. And each exit from the loop's body follows a
// success.
func (s Statement) Unbounded() bool {
	do := slices.Index(s.words, "do")
	if do < 0 {
		return false
	}
	cond, body := trimmed(s.words[1:do]), s.words[do+1:]
	if !s.endlessCondition() && !pollsUntilSuccess(s.words[0], cond) {
		return false
	}
	for i, w := range body {
		if leaves(body, i, w) && !afterSuccess(body, i) {
			return false
		}
	}
	return true
}

// endlessCondition reports whether the statement is a loop whose condition never ends it.
func (s Statement) endlessCondition() bool {
	do := slices.Index(s.words, "do")
	return do > 0 && slices.Contains([]string{"while true", "while :", "while 1", "while [1]", "while [[1]]", "while ((1))", "until false", "for ((;;))", "for ;;"},
		s.words[0]+" "+strings.ReplaceAll(strings.Join(trimmed(s.words[1:do]), ""), " ", ""))
}

// Polls reports whether the statement polls repeatedly until the poll succeeds or it gives up. A loop that nothing leads
// out of does not: its requests are its work.
func (s Statement) Polls() bool {
	return s.Loops() && !s.loopsForever()
}

// AwaitsCommand reports whether the statement is a loop that ends when a command succeeds, whatever the command is about.
func (s Statement) AwaitsCommand() bool {
	return s.words[0] == "until" && !s.endlessCondition() || s.words[0] == "while" && len(s.words) > 1 && s.words[1] == "!" || s.IsLoop() && slices.Contains(s.words, "break")
}

// FailsAfter reports whether the script exits with an error if the loop gives up: "exit 1" follows the loop, and
// the loop is left early only after a success.
func (s Statement) FailsAfter(next *Statement) bool {
	do := slices.Index(s.words, "do")
	if do < 0 || next == nil || !next.fails() {
		return false
	}
	body := s.words[do+1:]
	for i, w := range body {
		if w == "break" || leaves(body, i, w) && !afterSuccess(body, i) {
			return false
		}
	}
	return s.words[0] == "for"
}

// fails reports whether the statement ends the script with an error.
func (s Statement) fails() bool {
	return len(s.words) > 1 && s.words[0] == "exit" && isDigits(s.words[1]) && strings.Trim(s.words[1], "0") != ""
}

// pollsUntilSuccess reports whether a condition is a single poll whose success ends the loop.
func pollsUntilSuccess(keyword string, cond []string) bool {
	if slices.Contains(cond, "&&") || slices.Contains(cond, "||") || !pollsPort(cond) {
		return false
	}
	negated := cond[0] == "!"
	if negated {
		cond = cond[1:]
	}
	if len(cond) > 0 && slices.Contains([]string{"[", "[[", "test"}, cond[0]) {
		negated = negated != (slices.Contains(cond, "!=") || slices.Contains(cond, "-ne") || slices.Contains(cond, "-z"))
	}
	return keyword == "while" && negated || keyword == "until" && !negated
}

// leaves reports whether word i ends a loop without an error. An exit with a status other than 0 does not
// count, because nothing after it runs.
func leaves(body []string, i int, word string) bool {
	switch word {
	case "break", "exec":
		return true
	case "exit", "return":
		return i+1 >= len(body) || !isDigits(body[i+1]) || strings.Trim(body[i+1], "0") == ""
	}
	return false
}

// afterSuccess reports whether word i runs only if the poll before it succeeded:
// "POLL && break", or "if POLL; then break".
func afterSuccess(body []string, i int) bool {
	poll := conditionOf(body, i)
	return len(poll) > 0 && poll[0] != "!" && pollsPort(poll)
}

// conditionOf returns the command after whose success word i runs; nil if there is none.
func conditionOf(body []string, i int) []string {
	switch {
	case i > 0 && body[i-1] == "&&":
	case i > 0 && body[i-1] == "then":
		i = len(trimmed(body[:i-1])) + 1
	default:
		return nil
	}
	begin := i - 1
	for begin > 0 && !separators[body[begin-1]] && !slices.Contains([]string{"do", "then", "else", "{"}, body[begin-1]) {
		begin--
	}
	poll := body[begin : i-1]
	if len(poll) > 0 && poll[0] == "if" {
		poll = poll[1:]
	}
	return poll
}

// pollsPort reports whether the words of a command poll a local port.
func pollsPort(words []string) bool {
	_, ok := Statement{words: words}.PolledPort()
	return ok
}

// trimmed returns words without the separators at their end.
func trimmed(words []string) []string {
	for len(words) > 0 && separators[words[len(words)-1]] {
		words = words[:len(words)-1]
	}
	return words
}

var (
	healthClients = regexp.MustCompile("(?:^|[\\s/$(`\\[\"'])(?:wget|grpc_health_probe)\\s")
	failsOnError  = regexp.MustCompile(`\s(?:-[a-zA-Z]*f[a-zA-Z]*|--fail|--fail-with-body|--check-status)(?:\s|$)`)
	looksInside   = regexp.MustCompile(`http_code|\|\s*(?:grep|jq)\s`)
)

// ChecksHealth reports whether a success of the poll means that the server is healthy. It does not if the poll
// only checks that a port accepts connections, or ignores the status of the response (without --fail, curl exits
// with 0 after a response 503).
func (s Statement) ChecksHealth() bool {
	all := strings.Join(s.words, " ")
	return healthClients.MatchString(all) || failsOnError.MatchString(all) || looksInside.MatchString(all)
}

// AbortsScript reports whether the script stops if this statement fails. The parameter next is the following
// statement. The statement must not be a loop: a loop that gave up has the status of its last sleep.
func (s Statement) AbortsScript(next *Statement, errexit bool) bool {
	switch {
	case next == nil, s.Then == "&&":
		return true
	case s.Then == "||":
		return next.fails()
	case s.words[0] == "if":
		return false
	}
	return errexit && s.Then != "|"
}

// Errexits reports whether the statement makes the shell exit at each later command that fails, like "set -e".
func (s Statement) Errexits() bool {
	if s.words[0] != "set" {
		return false
	}
	var set Script
	set.options(s.words[1:])
	return set.Errexit
}

var (
	countTo   = regexp.MustCompile(`(?:-(?:gt|ge|lt|le|eq)\s+|[<>]=?\s*|\.\.|seq\s+(?:\d+\s+)?)(\d{1,6})`)
	sleepsFor = regexp.MustCompile(`\bsleep\s+([0-9.]+[smh]?)`)
	retries   = regexp.MustCompile(`--retry[= ](\d{1,6})`)
	delay     = regexp.MustCompile(`--retry-delay[= ](\d{1,6})`)
)

// Lasts returns the time after which the statement gives up if the polled port is closed, as far as its text
// shows that. The requests themselves count as taking no time.
func (s Statement) Lasts() time.Duration {
	all := strings.Join(s.words, " ")
	if m := retries.FindStringSubmatch(all); m != nil && !s.IsLoop() {
		return retrying(all, m[1])
	}
	rounds, pause := 0.0, time.Duration(0)
	if m := countTo.FindStringSubmatch(all); m != nil {
		rounds, _ = strconv.ParseFloat(m[1], 64)
	} else if in, do := slices.Index(s.words, "in"), slices.Index(s.words, "do"); s.words[0] == "for" && 0 < in && in < do {
		rounds = float64(len(trimmed(s.words[in+1 : do])))
	}
	if m := sleepsFor.FindStringSubmatch(all); m != nil {
		pause, _ = sleepTime(m[1])
	}
	return time.Duration(min(rounds*float64(pause), float64(time.Hour)))
}

// retrying returns the time for which curl retries: with the delays 1 s, 2 s, 4 s and so on up to 10 min, or
// with a fixed delay. It is 0 if curl does not retry refused connections: curl does that only with certain
// flags. Source: man curl, --retry.
func retrying(all, times string) time.Duration {
	if !strings.Contains(all, "--retry-connrefused") && !strings.Contains(all, "--retry-all-errors") {
		return 0
	}
	n, _ := strconv.ParseFloat(times, 64)
	if m := delay.FindStringSubmatch(all); m != nil {
		d, _ := strconv.ParseFloat(m[1], 64)
		return time.Duration(min(n*d, 3600)) * time.Second
	}
	return time.Duration(min(math.Pow(2, min(n, 20))-1, 3600)) * time.Second
}
