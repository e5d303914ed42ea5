package calls

import (
	"regexp"
	"slices"

	"outrider.dev/internal/doctor/evidence"
)

// A mark is a kind of line that a program writes which runs tests.
type mark int

const (
	noMark  mark = iota
	summary      // how many tests passed and failed
	failure      // a test failed; why is in the next lines
	passes       // a test passed, or what follows is an output without a verdict
	begins       // a test begins, whose verdict comes later
)

// marks has the lines of the usual programs: Jest, Vitest, Mocha, node:test and other writers of TAP, Go, Ginkgo, pytest,
// unittest, Surefire, Gradle, Cargo, RSpec, Minitest, ExUnit, PHPUnit, dotnet test, CTest, GoogleTest. The first that fits
// counts.
var marks = []struct {
	is   mark
	form *regexp.Regexp
}{
	{passes, regexp.MustCompile(`^\s*(?:● Console|console\.(?:log|warn|error|info|debug)\b|std(?:out|err) \||[✓✔√] |PASS(?:ED)?(?:\s|$)|ok \d+\b|--- PASS: |Passed \S|=+ warnings summary|-{3,} Captured |\[ +OK +\]|test \S+ \.\.\. (?:ok|ignored)$)|^\[INFO\] Tests run: \d+, Failures: 0, Errors: 0.* -- in | PASSED(?:\s|$)`)},
	{summary, regexp.MustCompile(`^\s*(?:Tests:? +.*\d+ (?:passed|failed)|Tests: \d+, Assertions: \d+|test result: |(?:Failed|Passed)! +- Failed:|Total tests: \d|\d+\.\.\d+$|# (?:fail|pass|tests) \d|\d+% tests passed|Ran \d+ (?:tests?|of \d+ Specs) in|FAILED \((?:failures|errors)=|\d+ (?:passing|failing)\b|\d+ (?:examples?|specs?|tests?|runs|doctests?), .*\d+ failures?|\d+ tests? completed, \d+ failed|(?:FAIL|SUCCESS)! -- \d+ Passed|\[ +(?:PASSED|FAILED) +\] \d+ tests?)|\bTests run: \d+, Failures: \d+, Errors: \d+, Skipped: \d+$|^=+ .*\d+ (?:failed|passed|errors?)\b.* in [\d.]+s|^FAIL$|^(?:FAIL|ok {2,}|ok)\t`)},
	{failure, regexp.MustCompile(`^\s*(?:[●✕×✗✖] ?|--- FAIL: |not ok \d+\b|FAIL(?:ED)?\s+\S|_{3,} .* _{3,}$|-{4} .* stdout ----$|\d+\) |E {3}|\[ +FAILED +\]|Failed \S+.* \[|(?:ERROR|FAIL): test|Failure/Error:|test \S+ \.\.\. FAILED$)|<<< (?:FAILURE|ERROR)!| FAILED(?:\s|$)`)},
	{begins, regexp.MustCompile(`^\s*(?:=== (?:RUN|CONT|PAUSE) |\[ +RUN +\]|# Subtest: |(?:\[INFO\] )?Running \S+\.\w+$)`)},
}

func markOf(line evidence.Line) mark {
	for _, m := range marks {
		if m.form.Match(line.Text) {
			return m.is
		}
	}
	return noMark
}

// ofTests reports whether a log is of a program that runs tests, at least one of which failed, by its last lines.
func ofTests(last []evidence.Line) bool {
	has := func(is mark) bool {
		return slices.ContainsFunc(last, func(line evidence.Line) bool { return markOf(line) == is })
	}
	return has(summary) && has(failure)
}

// isTested reports whether a failed call in the log of a program that runs tests is part of a test that passed, or of no
// test that is known. A call because of which a test failed is in what is said about that test.
func isTested(h evidence.Hit, last []evidence.Line) bool {
	for _, line := range slices.Backward(append(slices.Clone(h.Before), h.Line)) {
		switch markOf(line) {
		case failure:
			return false
		case passes:
			return true
		case begins:
			return !failsNext(slices.Concat(h.After, slices.DeleteFunc(slices.Clone(last), func(l evidence.Line) bool { return l.Number <= h.Line.Number })))
		}
	}
	return true
}

// failsNext reports whether the next verdict in some lines is that a test failed.
func failsNext(lines []evidence.Line) bool {
	for _, line := range lines {
		switch markOf(line) {
		case failure:
			return true
		case passes, summary:
			return false
		}
	}
	return false
}
