package simulate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A clause is a kind of statement about a container. Words of its form in capitals are variables: D is
// a time, N a number, NAME a container.
type clause struct {
	form  string
	means string // explanation, if the form alone is not clear
	set   func(c *Container, v values) error
}

// values are the values of a form's variables, in order.
type values struct {
	times []time.Duration
	ints  []int
	names []string
}

// clauses lists all kinds of statements about a container.
var clauses = []clause{
	{"image takes D", "a pull takes that long", func(c *Container, v values) error { c.Image = v.times[0]; return nil }},
	{"image missing", "every pull fails", func(c *Container, v values) error { c.MissingUntil = Forever; return nil }},
	{"image missing until D", "pulls fail until then", func(c *Container, v values) error { c.MissingUntil = v.times[0]; return nil }},
	{"cannot start", "the runtime cannot start it (StartError)", func(c *Container, v values) error { c.CannotStart = true; return nil }},
	{"sleeps D", "before its command begins, or polls for that long and gives up", func(c *Container, v values) error { c.Sleeps = v.times[0]; return nil }},

	{"healthy after D", "after its command begins", func(c *Container, v values) error { c.Healthy = v.times[0]; return nil }},
	{"never healthy", "", func(c *Container, v values) error { c.Healthy = Forever; return nil }},
	{"unhealthy after D", "in its first life, until its end", func(c *Container, v values) error { return c.sick(v.times[0], 0) }},
	{"unhealthy after D for D", "and then healthy again", func(c *Container, v values) error { return c.sick(v.times[0], v.times[1]) }},

	{"completes after D", "it ends with exit code 0, at each start", func(c *Container, v values) error { return c.ends(End{v.times[0], 0}, 0) }},
	{"crashes after D", "its first life ends with exit code 1", func(c *Container, v values) error { return c.ends(End{v.times[0], 1}, 1) }},
	{"crashes after D with N", "its first life ends with that exit code, 1 to 255", func(c *Container, v values) error { return c.crashes(v.times[0], v.ints[0]) }},
	{"crashes after D N times", "", func(c *Container, v values) error { return c.ends(End{v.times[0], 1}, v.ints[0]) }},
	{"crashes after D always", "every life ends with exit code 1", func(c *Container, v values) error { return c.ends(End{v.times[0], 1}, 0) }},
	{"ends with NAME", "with exit code 0, once the containers of all such lines have ended for good", func(c *Container, v values) error { c.EndsWith = append(c.EndsWith, v.names[0]); return nil }},
	{"killed at D", "by SIGKILL, at that time of the pod", func(c *Container, v values) error { c.KilledAt = append(c.KilledAt, v.times[0]); return nil }},

	{"stops after D", "after SIGTERM", func(c *Container, v values) error { c.Stops = v.times[0]; return nil }},
	{"ignores sigterm", "", func(c *Container, v values) error { c.Stops = Forever; return nil }},
	{"pre-stop takes D", "", func(c *Container, v values) error { c.PreStop = v.times[0]; return nil }},
	{"post-start takes D", "it returns after that time, healthy or not", func(c *Container, v values) error { c.PostStart = Hook{Takes: v.times[0], Fixed: true}; return nil }},
	{"post-start fails after D", "", func(c *Container, v values) error {
		c.PostStart = Hook{Takes: v.times[0], Fixed: true, Fails: true}
		return nil
	}},
	{"post-start hangs", "", func(c *Container, v values) error { c.PostStart = Hook{Takes: Forever, Fixed: true}; return nil }},
	{"post-start asks NAME for D", "it returns when that container is healthy, and fails after that time", func(c *Container, v values) error {
		c.PostStart = Hook{Takes: v.times[0], Polls: v.names[0]}
		return nil
	}},
	{"post-start asks NAME at most D", "it returns when that container is healthy, or after that time", func(c *Container, v values) error {
		c.PostStart = Hook{Takes: v.times[0], Polls: v.names[0], GoesOn: true}
		return nil
	}},

	{"calls NAME after D", "a refused call is only noted", func(c *Container, v values) error { return c.call(Call{To: v.names[0], After: v.times[0]}) }},
	{"calls NAME after D or exits N", "a refused call ends it", func(c *Container, v values) error {
		return c.call(Call{To: v.names[0], After: v.times[0], Exits: true, Code: v.ints[0]})
	}},
	{"calls NAME every D", "as long as it runs", func(c *Container, v values) error {
		if v.times[0] < 10*time.Millisecond {
			return fmt.Errorf("a call every %s is more than a timeline can show: at least every 10ms", v.times[0])
		}
		return c.call(Call{To: v.names[0], After: v.times[0], Every: v.times[0]})
	}},
}

// crashes adds an end with an exit code. It fails for 0, which would not be a crash, and for more than one byte.
func (c *Container) crashes(after time.Duration, code int) error {
	if code < 1 || code > 255 {
		return fmt.Errorf("%d is no exit code of a crash: want 1 to 255", code)
	}
	return c.ends(End{after, code}, 1)
}

func (c *Container) sick(after, lasting time.Duration) error {
	if after == 0 {
		return fmt.Errorf("it cannot be unhealthy again after 0s: want never healthy")
	}
	c.Sick, c.SickFor = after, lasting
	return nil
}

// ends adds an end for the given number of runs of the command; later runs do not end. With 0, all later runs end in
// that way.
func (c *Container) ends(e End, lives int) error {
	switch {
	case lives < 0 || lives > 1000:
		return fmt.Errorf("%d times is out of range: 1 to 1000", lives)
	case len(c.Ends) > 0 && c.Ends[len(c.Ends)-1].After != Forever:
		return fmt.Errorf("all lives of the container have an end already")
	case len(c.Ends) > 0:
		c.Ends = c.Ends[:len(c.Ends)-1]
	}
	c.Ends = append(c.Ends, e)
	for range lives - 1 {
		c.Ends = append(c.Ends, e)
	}
	if lives > 0 {
		c.Ends = append(c.Ends, End{After: Forever})
	}
	return nil
}

func (c *Container) call(call Call) error {
	if call.Code > 255 {
		return fmt.Errorf("%d is no exit code: want 0 to 255", call.Code)
	}
	c.Calls = append(c.Calls, call)
	return nil
}

// Forms returns a text that lists all kinds of statements about a container, one per line, for a command's help.
func Forms() string {
	var b strings.Builder
	for _, cl := range clauses {
		fmt.Fprintf(&b, "%-32s %s\n", cl.form, cl.means)
	}
	return b.String()
}

// parse applies one statement, given as words, to c.
func (c *Container) parse(w []string) error {
	for _, cl := range clauses {
		if v, matches, err := match(cl.form, w); matches {
			if err == nil {
				err = cl.set(c, v)
			}
			return err
		}
	}
	var like, first []string
	for _, cl := range clauses {
		word, _, _ := strings.Cut(cl.form, " ")
		if first = append(first, word); len(w) > 0 && word == w[0] {
			like = append(like, cl.form)
		}
	}
	slices.Sort(first)
	want := "want " + strings.Join(like, ", or ")
	if len(like) == 0 {
		want = "want one of " + strings.Join(slices.Compact(first), ", ")
	}
	return fmt.Errorf("%q is no statement about a container: %s", strings.Join(w, " "), want)
}

// match reports whether the words match the form, and returns the values of its variables.
func match(form string, w []string) (v values, matches bool, err error) {
	forms := strings.Fields(form)
	if len(forms) != len(w) {
		return v, false, nil
	}
	for i, f := range forms {
		if f != strings.ToUpper(f) && f != w[i] {
			return v, false, nil
		}
	}
	for i, f := range forms {
		if err == nil {
			err = v.add(f, w[i])
		}
	}
	return v, true, err
}

func (v *values) add(form, word string) error {
	switch form {
	case "D":
		d, err := duration(word)
		v.times = append(v.times, d)
		return err
	case "N":
		n, err := strconv.Atoi(word)
		if err != nil || n < 0 || n > 1000 {
			return fmt.Errorf("%q is no number from 0 to 1000", word)
		}
		v.ints = append(v.ints, n)
	case "NAME":
		v.names = append(v.names, word)
	}
	return nil
}
