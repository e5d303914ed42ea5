package why

import (
	"regexp"
	"strings"
)

// A Level is the level of a line.
type Level int

// The levels, lowest first.
const (
	NoLevel Level = iota
	Debug
	Info
	Warning
	Error
	Fatal
)

// levels are the words and numbers of levels: those of syslog, of the usual libraries, of .NET's console, and pino's numbers.
var levels = map[string]Level{
	"trace": Debug, "debug": Debug, "trce": Debug, "dbug": Debug, "verbose": Debug, "fine": Debug, "10": Debug, "20": Debug,
	"info": Info, "information": Info, "notice": Info, "30": Info, "i": Info,
	"warn": Warning, "warning": Warning, "40": Warning, "w": Warning,
	"error": Error, "err": Error, "severe": Error, "fail": Error, "failure": Error, "50": Error, "e": Error,
	"fatal": Fatal, "panic": Fatal, "crit": Fatal, "critical": Fatal, "alert": Fatal, "emerg": Fatal, "emergency": Fatal, "dpanic": Fatal, "60": Fatal, "f": Fatal,
}

// levelForms are the places of a line at which programs write its level; the first that fits counts.
var levelForms = []*regexp.Regexp{
	regexp.MustCompile(`^\{.*?"(?:@l|l|s|lvl|[Ll]evel|[Ss]everity|log\.level|levelname|log_?[Ll]evel|LogLevel|[Ss]everityText)"\s*:\s*"?([A-Za-z]+|\d\d)\b`),
	regexp.MustCompile(`(?:^|\s)(?:level|lvl|severity)=["']?([A-Za-z]+)`),
	regexp.MustCompile(`^([IWEF])\d{4}(?:\d{4})? +\d\d:\d\d`),
	regexp.MustCompile(`^([IWEF]), \[`),                                               // Ruby's Logger
	regexp.MustCompile(`^(trce|dbug|info|warn|fail|crit): [\w.]+\[\d+\]`),             // .NET's console
	regexp.MustCompile(`\[ *(?i:main/)?([A-Za-z]+) *\]`),                              // [error], [main/ERROR]
	regexp.MustCompile(`(?:^|[\s|(<*#])([A-Z]{3,11})(?:$|[\s\]:|)>!*])`),              // ERROR, FATAL:
	regexp.MustCompile(`^[^"'\t]{0,60}\t([a-z]+)\t`),                                  // Istio
	regexp.MustCompile(`^[^"'A-Za-z]{0,60}(?:[TZ][^"'A-Za-z]{0,40}){0,2}([a-z]+):? `), // 2026-11-24T03:18:19Z error: x
}

// ofWhole is the number of forms that may be anywhere in a line; the others are in its first bytes, before any text in
// quotes.
const ofWhole = 2

// LevelOf returns the level that a line states.
func LevelOf(line string) Level {
	line = strings.TrimLeft(strings.TrimPrefix(plain(line), "[0m"), " ")
	line = line[:min(len(line), 1024)]
	head := line[:min(len(line), 120)]
	if i := strings.IndexAny(head, `"'`); i >= 0 {
		head = head[:i]
	}
	for i, form := range levelForms {
		in := head
		if i < ofWhole {
			in = line
		}
		for _, m := range form.FindAllStringSubmatch(in, 6) {
			if level, known := levels[strings.ToLower(m[1])]; known {
				return level
			}
		}
	}
	return NoLevel
}

var colours = regexp.MustCompile("\x1b\\[[0-9;]*m")

// boxes match the border before each line of a message of several lines.
var boxes = regexp.MustCompile(`^\s*(?:[│╷╵]|\|(?:\s|$))\s?`)

// plain returns a line without colours, and without the border of a box.
func plain(line string) string {
	if strings.IndexByte(line, 0x1b) >= 0 {
		line = colours.ReplaceAllString(line, "")
	}
	return boxes.ReplaceAllString(line, "")
}
