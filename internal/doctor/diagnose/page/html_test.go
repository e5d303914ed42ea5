package page

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"golang.org/x/net/html"

	"outrider.dev/internal/doctor/diagnose/result"
)

func pods(t testing.TB, reports ...result.Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, reports, Options{Format: "html"}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func fleetOf(t testing.TB, reports ...result.Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, reports, Options{Format: "html", Fleet: true}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// skeleton returns the elements of a page with their attribute names, in order, and the page's text.
func skeleton(t testing.TB, page string) (elements []string, text string) {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for n := range root.Descendants() {
		switch n.Type {
		case html.ElementNode:
			names := []string{n.Data}
			for _, a := range n.Attr {
				names = append(names, a.Key)
			}
			elements = append(elements, strings.Join(names, " "))
		case html.TextNode:
			b.WriteString(n.Data)
		case html.CommentNode:
			elements = append(elements, "comment")
		}
	}
	return elements, b.String()
}

// forms maps the two kinds of HTML pages to the functions that make them.
var forms = map[string]func(testing.TB, ...result.Report) string{"pods": pods, "fleet": fleetOf}

// Hostile text, for example in a log, adds no element, no attribute and no control character to a page.
func FuzzHTML(f *testing.F) {
	for _, text := range hostile {
		f.Add(text)
	}
	wanted := map[string][]string{}
	for name, form := range forms { // in any order: each is independent
		wanted[name], _ = skeleton(f, form(f, poisoned(f, "harmless")))
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.TrimSpace(text) == "" {
			return // empty text is left out
		}
		for name, form := range forms { // in any order: each is independent
			page := form(t, poisoned(t, text))
			got, read := skeleton(t, page)
			if !slices.Equal(wanted[name], got) {
				t.Errorf("%s: %q changes the elements: %q, want %q", name, text, got, wanted[name])
			}
			if at := strings.IndexFunc(read, func(r rune) bool {
				return unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r)
			}); at >= 0 {
				t.Errorf("%s: %q: the page has a control character: %q", name, text, read[at:min(at+9, len(read))])
			}
			if len(page) > 1<<20 {
				t.Errorf("%s: %d bytes", name, len(page))
			}
		}
	})
}

// The content security policy allows the page's own style and script, and nothing else.
func TestPolicy(t *testing.T) {
	for name, form := range forms {
		root, err := html.Parse(strings.NewReader(form(t, incident(t, "awesome-app"))))
		if err != nil {
			t.Fatal(err)
		}
		policy, inline := "", map[string]string{}
		for n := range root.Descendants() {
			for _, a := range n.Attr {
				if a.Key == "style" || strings.HasPrefix(a.Key, "on") || a.Key == "src" || a.Key == "href" {
					t.Errorf("%s: %s has an attribute %s", name, n.Data, a.Key)
				}
				if a.Key == "content" && strings.Contains(a.Val, "default-src") {
					policy = a.Val
				}
			}
			if n.Data == "style" || n.Data == "script" {
				inline[n.Data] += n.FirstChild.Data
			}
		}
		want := "default-src 'none'"
		for _, kind := range []string{"style", "script"} {
			sum := sha256.Sum256([]byte(inline[kind]))
			want += fmt.Sprintf("; %s-src 'sha256-%s'", kind, base64.StdEncoding.EncodeToString(sum[:]))
		}
		if want += "; base-uri 'none'; form-action 'none'"; policy != want {
			t.Errorf("%s: policy %q, want %q", name, policy, want)
		}
	}
}

// contrast returns the contrast ratio of two colours, as defined by WCAG 2.
func contrast(t *testing.T, a, b string) float64 {
	t.Helper()
	light := func(c string) float64 {
		c = strings.TrimPrefix(c, "#")
		if len(c) == 3 {
			c = strings.Join([]string{c[:1], c[:1], c[1:2], c[1:2], c[2:], c[2:]}, "")
		}
		n, err := strconv.ParseUint(c, 16, 32)
		if err != nil || len(c) != 6 {
			t.Fatalf("colour %q: %v", c, err)
		}
		part := func(n uint64) float64 {
			v := float64(n&255) / 255
			if v <= 0.04045 {
				return v / 12.92
			}
			return math.Pow((v+0.055)/1.055, 2.4)
		}
		return 0.2126*part(n>>16) + 0.7152*part(n>>8) + 0.0722*part(n)
	}
	x, y := light(a)+0.05, light(b)+0.05
	return max(x, y) / min(x, y)
}

// In the page's style each text colour has a contrast of 4.5:1 to both backgrounds, and each bar colour 3:1.
func TestContrast(t *testing.T) {
	style := pods(t, incident(t, "awesome-app"))
	style = style[:strings.Index(style, "</style>")]
	colours := map[string][2]string{}
	for _, m := range regexp.MustCompile(`--([a-z]+): light-dark\((#[0-9a-f]+), (#[0-9a-f]+)\)`).FindAllStringSubmatch(style, -1) {
		colours[m[1]] = [2]string{m[2], m[3]}
	}
	texts, fills := map[string]bool{}, map[string]bool{}
	for _, m := range regexp.MustCompile(`([^{}]*)\{([^{}]*)\}`).FindAllStringSubmatch(style, -1) {
		for _, use := range regexp.MustCompile(`(?:^|[ ;{])(color|fill): var\(--([a-z]+)\)`).FindAllStringSubmatch(m[2], -1) {
			switch {
			case use[1] == "fill" && strings.Contains(m[1], ".bar"):
				fills[use[2]] = true
			case use[2] != "ground" && use[2] != "page":
				texts[use[2]] = true
			}
		}
	}
	if len(colours) != len(palette) || len(fills) < 8 || len(texts) < 5 {
		t.Fatalf("%d colours, texts %v, bars %v", len(colours), texts, fills)
	}
	check := func(used map[string]bool, least float64) {
		for name := range used { // in any order: each is independent
			for i, scheme := range []string{"light", "dark"} {
				for _, ground := range []string{"ground", "page"} {
					if got := contrast(t, colours[name][i], colours[ground][i]); got < least {
						t.Errorf("%s on %s, %s: %.2f, want %.1f", name, ground, scheme, got, least)
					}
				}
			}
		}
	}
	check(texts, 4.5)
	check(fills, 3)
	if got := contrast(t, "#fff", "#000000"); got < 20.9 || got > 21.1 {
		t.Errorf("white on black: %f, want 21", got)
	}
}

// A page has a limited number of lines and pods, and says how much it leaves out.
func TestHTMLIsBounded(t *testing.T) {
	r := incident(t, "awesome-app")
	i := slices.IndexFunc(r.Tracks, func(t result.Track) bool { return len(t.Marks) > 0 })
	m := r.Tracks[i].Marks[0]
	m.Text = strings.Repeat("long ", 10_000)
	r.Tracks[i].Marks = slices.Repeat([]result.Mark{m}, 3*mostLines)
	many := append([]result.Report{r}, slices.Repeat([]result.Report{{Pod: "shop/x", Verdict: result.Nothing}}, mostPods+2)...)
	page := pods(t, many...)
	if n := strings.Count(page, "<li data-at="); n != mostLines {
		t.Errorf("%d lines, want %d", n, mostLines)
	}
	if !strings.Contains(page, "3 more pods are not shown") || !strings.Contains(page, fmt.Sprintf("log lines: %d, and %d more", mostLines, 2*mostLines)) {
		t.Error("the page does not say what it leaves out")
	}
}

// Pods with findings come first. A pod whose evidence has no times is shown too.
func TestHTMLOfSeveral(t *testing.T) {
	empty := result.Report{Pod: "shop/empty", Verdict: result.Nothing, Sentence: "nothing is wrong"}
	_, text := skeleton(t, pods(t, empty, incident(t, "clean"), incident(t, "awesome-app")))
	if strings.Index(text, "shop/empty") < strings.Index(text, "startup race") || !strings.Contains(text, "The evidence has no times") {
		t.Errorf("the order is wrong, or a pod without times is not there:\n%s", text)
	}
}

func number(t *testing.T, text string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
