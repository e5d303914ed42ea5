package witness

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strings"

	"outrider.dev/internal/doctor"
	"outrider.dev/internal/doctor/diagnose/calls"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/internal/doctor/evidence/why"
)

// A drop is a line by which packets of the pod to a destination were dropped.
type drop struct {
	to     doctor.Destination
	policy bool // by a network policy, as the line says
	inward bool // at the destination
	quote  evidence.Quote
}

// A listen is a line by which another program says where it listens.
type listen struct {
	of       []string // words of the file, of the command that printed it, and of the line
	ports    []int
	loopback bool
	quote    evidence.Quote
}

// An ending is the reason for which another program ended, by its log.
type ending struct {
	of   []string
	told evidence.Told
}

// A said is a line of another program about a failure that names the pod, or what it waits for.
type said struct {
	line  string
	quote evidence.Quote
}

// named is the name of the pattern of lines that name the pod, or what it waits for.
const named = "named"

// fails reports whether a line of a log is about a failure.
func fails(line string) bool {
	l := why.LevelOf(line)
	return l >= why.Error || l == why.Warning && failing.MatchString(line) || l < why.Warning && failing.MatchString(line) && !passes.MatchString(line)
}

var failing = regexp.MustCompile(`(?i)\bfail(?:ed|ing|ure)?\b|\bcannot\b|\bdenied\b|\bforbidden\b|\bunable\b`)

// About adds to a finding what another program says of what it is about: the last line about a failure that has one of some
// names. It returns false if there is none, or if the finding quotes it already.
func (r *Record) About(f *result.Finding, names ...string) bool {
	for _, s := range slices.Backward(r.said) {
		lower := strings.ToLower(s.line)
		if !slices.ContainsFunc(names, func(n string) bool { return n != "" && strings.Contains(lower, strings.ToLower(n)) }) || slices.Contains(f.Evidence, s.quote) {
			continue
		}
		text := why.Cut(why.Say(s.quote.Text), 200)
		f.Sentence += fmt.Sprintf("; %s says of it: %s", path.Base(s.quote.Source.File), text)
		f.Evidence, f.Confidence = append(f.Evidence, s.quote), result.Likely
		f.Remedy.Sentence = cmp.Or(why.Remedy(text), "correct what "+path.Base(s.quote.Source.File)+" says of it")
		return true
	}
	return false
}

// dropped is the name of the pattern of lines about packets that were dropped.
const dropped = "dropped"

var (
	// denies matches lines about packets that were dropped. Calico's rule Log writes calico-packet, and stands before Deny.
	denies = regexp.MustCompile(`(?i)\bcalico-packet|(?:\b|_)(?:drop(?:ped)?|den(?:y|ied)|reject(?:ed)?|block(?:ed)?)(?:\b|_)`)
	// passes matches lines about packets that passed, or counts of those that did not.
	passes   = regexp.MustCompile(`(?i)\b(?:allow(?:ed)?|forwarded|accept(?:ed)?)\b|\b0 (?:packets )?(?:dropped|denied|rejected)|(?:dropped|denied|rejected)["']?[=:] ?0\b`)
	byPolicy = regexp.MustCompile(`(?i)polic(?:y|ies)|netpol|acl|calico|cilium`)
	inward   = regexp.MustCompile(`(?i)\bingress\b`)
)

// readLines reads the lines of a file that say something about what is asked.
func (r *Record) readLines(ctx context.Context, b evidence.Beside) error {
	about := evidence.Pattern{Name: named, Any: []string{strings.ToLower(r.pod.Object.Name)}, Only: func(line []byte) bool { return fails(string(line)) }}
	for _, w := range r.waited {
		about.Any = append(about.Any, strings.ToLower(w))
	}
	pattern := evidence.Pattern{Name: dropped, Any: []string{"drop", "den", "reject", "block", "calico-packet"}, Only: func(line []byte) bool { _, is := r.isDrop(string(line)); return is }}
	found, last, err := b.ScanFor(ctx, evidence.Search([]evidence.Pattern{pattern, calls.Listening, evidence.Ending, about}))
	if err != nil {
		return err
	}
	file := words(path.Base(b.Source.File) + " " + b.Of)
	t := r.textOf(b.Source.File)
	for _, h := range found {
		line := string(h.Line.Text)
		switch h.Pattern {
		case dropped:
			if to, is := r.isDrop(line); is && len(r.drops) < mostValues {
				r.drops = append(r.drops, drop{to, byPolicy.MatchString(line), inward.MatchString(line), b.Quote(h.Line, r.secrets)})
			}
		case named:
			if len(r.said) < mostValues {
				r.said = append(r.said, said{line, b.Quote(h.Line, r.secrets)})
			}
		case calls.Listening.Name:
			if ports, local := calls.PortsIn(h.Line.Text); len(r.listens) < mostValues {
				of := append(slices.Clone(file), words(line)...)
				if t != nil {
					of = append(of, words(t.about(h.Line.Number).words)...)
				}
				r.listens = append(r.listens, listen{of, ports, local, b.Quote(h.Line, r.secrets)})
			}
		}
	}
	if told, is := b.Told(path.Base(b.Source.File), found, last, r.secrets); is && t == nil || is && len(t.commands) == 0 {
		r.endings = append(r.endings, ending{file, told})
	}
	return nil
}

func (r *Record) textOf(file string) *text {
	if i := slices.IndexFunc(r.texts, func(t text) bool { return t.from.File == file }); i >= 0 {
		return &r.texts[i]
	}
	return nil
}

// isDrop returns the destination that is asked about to which a line says that a packet of the pod was dropped. A line that
// has neither the pod's name nor its address is about another one.
func (r *Record) isDrop(line string) (doctor.Destination, bool) {
	if !denies.MatchString(line) || passes.MatchString(line) {
		return doctor.Destination{}, false
	}
	in := words(line)
	own := slices.ContainsFunc(in, func(w string) bool {
		return w == r.pod.Object.Name || w == r.pod.Object.Status.PodIP && w != ""
	})
	if !own {
		return doctor.Destination{}, false
	}
	for _, to := range r.asked {
		hosts, ports := r.hostsOf(to), []uint16{to.Port}
		if s := r.serviceOf(to); s != nil {
			for _, e := range s.endpoints {
				ports = append(ports, e.Port())
			}
		}
		if slices.ContainsFunc(ports, func(p uint16) bool { return mentions(in, hosts, p) }) || r.maybeBehind(to) && slices.Contains(in, portOf(to.Port)) && r.inCluster(in) {
			return to, true
		}
	}
	return doctor.Destination{}, false
}

// maybeBehind reports whether a destination may be the address of a Service that is not known: its packets go to a pod,
// whose address a line has.
func (r *Record) maybeBehind(to doctor.Destination) bool {
	a, err := netip.ParseAddr(to.Host)
	return err == nil && a.IsPrivate() && to.Port > 0 && r.serviceOf(to) == nil
}

// inCluster reports whether a line has a private address other than the pod's.
func (r *Record) inCluster(in []string) bool {
	return slices.ContainsFunc(in, func(w string) bool {
		a, err := netip.ParseAddr(w)
		return err == nil && a.IsPrivate() && w != r.pod.Object.Status.PodIP
	})
}

// endedOf returns why a program with a name ended, if its log says that with a level above all others.
func (r *Record) endedOf(name string) (evidence.Told, bool) {
	for _, e := range r.endings {
		if slices.ContainsFunc(e.of, func(w string) bool { return means(w, name) }) && fatal(e.told) {
			return e.told, true
		}
	}
	return evidence.Told{}, false
}

func fatal(t evidence.Told) bool {
	line := strings.ToLower(t.Quotes[0].Text)
	return why.LevelOf(t.Quotes[0].Text) >= why.Fatal || strings.Contains(line, "panic: ") || strings.Contains(line, "uncaught")
}

// listensOf returns the lines by which a program with a name says where it listens.
func (r *Record) listensOf(name string) (out []listen) {
	for _, l := range r.listens {
		if slices.ContainsFunc(l.of, func(w string) bool { return means(w, name) }) {
			out = append(out, l)
		}
	}
	return out
}
