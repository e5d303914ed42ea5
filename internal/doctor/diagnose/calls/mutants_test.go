package calls

import (
	"testing"

	"outrider.dev/test/mutants"
)

// The tests notice each mutant of the code that reads destinations, and of the code that tells calls from records of calls.
func TestEveryMutantIsNoticed(t *testing.T) {
	mutants.Run(t, "TestEndpoints|TestStored|TestWordings", map[string]mutants.Mutant{
		"an event of another is a call":            {File: "stored.go", From: `isObject(lower)`, In: "|| isObject(lower)", To: `false`, Tests: "TestObjectsOfOthers"},
		"each reason is an event's":                {File: "stored.go", From: `ofEvent.MatchString(lower) && reasonOf.MatchString(lower)`, To: `reasonOf.MatchString(lower)`, Tests: "TestObjectsOfOthers"},
		"a part of an endpoint is another one":     {File: "endpoint.go", From: `e.from < o.to && o.from < e.to`, To: `false`},
		"a line of source code is an endpoint":     {File: "endpoint.go", From: `!e.isSource(line)`, To: `true`},
		"a file is a host":                         {File: "endpoint.go", From: `slices.Contains(sources, ending) && ending != e.Host`, To: `false`},
		"a time is a host":                         {File: "endpoint.go", From: `number || strings.HasPrefix(rest, ":") && len(rest) > 1 && rest[1] >= '0' && rest[1] <= '9'`, To: `strings.HasPrefix(rest, ":") && len(rest) > 1 && rest[1] >= '0' && rest[1] <= '9'`},
		"a place in a script is a host":            {File: "endpoint.go", From: `number || strings.HasPrefix(rest, ":") && len(rest) > 1 && rest[1] >= '0' && rest[1] <= '9'`, To: `number`},
		"a scheme has no port":                     {File: "endpoint.go", From: `d.Port == 0`, To: `false`},
		"a port of six digits is one":              {File: "endpoint.go", From: `group("port") != "" && (err != nil || n == 0)`, To: `false`},
		"an address beside a name is lost":         {File: "endpoint.go", From: `d.Host = addr.String()`, To: ``},
		"a unix socket is a host":                  {File: "endpoint.go", From: `d.Host, d.Network = strings.TrimRight(group("host"), "."), doctor.Unix`, To: ``},
		"UDP is TCP":                               {File: "endpoint.go", From: `d.Network = doctor.UDP`, To: ``},
		"a help page is called":                    {File: "endpoint.go", From: `aside.MatchString(line[:min(e.from, len(line))])`, To: `false`},
		"a name without a port is as good":         {File: "endpoint.go", From: `d += 1000`, To: ``},
		"the far endpoint is called":               {File: "endpoint.go", From: `best < 0 || d < distance`, To: `best < 0`},
		"the name of an address is not found":      {File: "endpoint.go", From: `to.Name = cmp.Or(e.Name, e.Host)`, To: ``},
		"words about an earlier run do not count":  {File: "stored.go", From: `earlier.MatchString(lower)`, To: `false`},
		"an error that quotes a text is no call":   {File: "stored.go", From: `level < why.Error && isQuoted(lower)`, To: `isQuoted(lower)`},
		"a text that is quoted is a call":          {File: "stored.go", From: `level < why.Error && isQuoted(lower)`, To: `false`},
		"a list of failed jobs is a call":          {File: "stored.go", From: `(level == why.Info || level == why.Debug) && kept.MatchString(lower)`, To: `false`},
		"an error about a failed job is no call":   {File: "stored.go", From: `(level == why.Info || level == why.Debug) && kept.MatchString(lower)`, To: `kept.MatchString(lower)`},
		"a date in an error makes it a record":     {File: "stored.go", From: `limit == old || level == why.NoLevel`, To: `true`},
		"a date of minutes ago is of another day":  {File: "stored.go", From: `!record.MatchString(lower) && level != why.Info && level != why.Debug`, To: `false`},
		"a date that is later is before":           {File: "stored.go", From: `ago > limit`, To: `true`},
		"the line's own time is another":           {File: "stored.go", From: `s.NoYear || has && s.At == own.At`, To: `s.NoYear`, Survives: "the line's own time is no time before itself"},
		"words before the text are in the text":    {File: "stored.go", From: `f != "" && place < m[1]`, To: `false`},
		"words behind the text are in the text":    {File: "stored.go", From: `end < 0 || !fails(lower[m[1]+end:])`, To: `true`},
		"the frames of a stored error are a call":  {File: "stored.go", From: `!h.Before[i].Continues`, To: `false`},
		"what a sentence mentions is a call":       {File: "wordings.go", From: `isMention(lower, place)`, To: `false`},
		"a server's client is a call":              {File: "wordings.go", From: `byClient(lower)`, In: `(f == Reset || f == TimedOut) && byClient(lower)`, To: `false`},
		"both ends of a connection look alike":     {File: "wordings.go", From: `m != nil && !isEphemeral(m[1]) && isEphemeral(m[2])`, To: `false`},
		"a name's address is not looked for":       {File: "endpoint.go", From: `completed(all[best].Destination, all, line)`, To: `all[best].Destination`},
		"the lines of one error are several calls": {File: "calls.go", From: `before.sameAs(k.to, h.Line.Number)`, To: `false`},
	})
}
