package browser

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// browser starts Chromium, or skips the test if it is not installed. The environment variable CHROMIUM selects
// another program.
func browser(t *testing.T) context.Context {
	t.Helper()
	binary, err := exec.LookPath(cmp.Or(os.Getenv("CHROMIUM"), "chromium"))
	if err != nil {
		t.Skipf("no Chromium, which make test-deps installs: %v", err)
	}
	folder, err := os.MkdirTemp("", "browser")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) }) // files may stay, because the browser's child processes may still write for a moment
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(binary),
		chromedp.NoSandbox,             // without it Chromium refuses to run as root
		chromedp.Env("TMPDIR="+folder), // Chromium leaves folders in it
	)
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("starting %s: %v", binary, err)
	}
	return ctx
}

// A page is an open tab of the browser, with the errors and requests since it was opened.
type page struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	errors   []string
	requests []string // URLs of requests, except the request for the page itself
}

// open opens a file in a new tab.
func open(t *testing.T, browser context.Context, file string, width int) *page {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser)
	t.Cleanup(cancel)
	p := &page{t: t, ctx: ctx}
	address := (&url.URL{Scheme: "file", Path: file}).String()
	if err := chromedp.Listen(ctx, func(event any) { p.note(event, address) }); err != nil {
		t.Fatal(err)
	}
	call(p, log.Enable, cdp.Empty{})
	call(p, network.Enable, network.EnableParams{})
	p.do(size(width), chromedp.Navigate(address))
	return p
}

// size sets a window that is taller than any report, so that all elements are visible to the measurements.
func size(width int) chromedp.Action[chromedp.Void] {
	return chromedp.EmulateViewport(int64(width), 9000)
}

func (p *page) note(event any, address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		p.errors = append(p.errors, "exception: "+e.ExceptionDetails.Text)
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			p.errors = append(p.errors, "a script said: "+string(e.Type))
		}
	case *log.EventEntryAdded:
		p.errors = append(p.errors, fmt.Sprintf("%s: %s", e.Entry.Level, e.Entry.Text))
	case *network.EventRequestWillBeSent:
		if e.Request.URL != address {
			p.requests = append(p.requests, e.Request.URL)
		}
	}
}

// patience is the time limit of one step on a busy machine.
const patience = time.Minute

func (p *page) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		p.t.Fatal(err)
	}
}

// call calls a method of the DevTools protocol.
func call[P, R any](p *page, command cdp.Command[P, R], params P) {
	p.t.Helper()
	if _, err := chromedp.Call(p.ctx, command, params); err != nil {
		p.t.Fatal(err)
	}
}

//go:embed probe.js
var probe string

// A look is the state of a page as a reader sees it.
type look struct {
	Title   string
	Wide    []string // elements that extend beyond the window
	Charts  []drawn
	Faint   []string // texts, and marks of one letter, with less contrast than WCAG 2 requires (AA)
	Pale    []string // bars with less contrast than 3:1 to their background
	Read    int      // number of texts whose contrast was measured
	Details []folded
	Scripts int
}

type drawn struct {
	Title         string
	Width, Height float64
	Shapes, Texts int
	Axis          string   // labels of the axis
	Cut           []string // elements that extend beyond the picture
}

type folded struct {
	Open, Content bool
	Height        float64
}

func (p *page) look() look {
	p.t.Helper()
	l, err := chromedp.Run(p.ctx, chromedp.Evaluate[look](probe))
	if err != nil {
		p.t.Fatal(err)
	}
	return l
}

// scheme sets the reader's preference for dark or light pages.
func (p *page) scheme(name string) {
	p.t.Helper()
	call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}},
	})
}

// unfold opens every details element with a click, as a reader does.
func (p *page) unfold() {
	p.t.Helper()
	n := len(p.look().Details)
	for i := range n {
		p.do(chromedp.Click(chromedp.Search(fmt.Sprintf("(//details/summary)[%d]", i+1))))
	}
}

// faults describes all faults of a report. It looks at the report with both widths, with its details closed and
// open, and with the reader's preference for light and for dark pages.
func faults(t *testing.T, browser context.Context, file string, charts int) []string {
	t.Helper()
	p := open(t, browser, file, widths[0])
	var out []string
	found := func(where, what string, list []string) {
		for _, x := range list {
			out = append(out, where+": "+what+": "+x)
		}
	}
	check := func(where string) look {
		l := p.look()
		found(where, "reaches beyond the window", l.Wide)
		found(where, "is hardly read", l.Faint)
		found(where, "is hardly seen", l.Pale)
		found(where, "chart", missing(l.Charts, charts))
		if l.Read == 0 {
			found(where, "page", []string{"nothing is to be read"})
		}
		return l
	}
	for _, width := range widths {
		p.do(size(width))
		for _, scheme := range []string{"light", "dark"} {
			p.scheme(scheme)
			check(fmt.Sprintf("%d px, %s", width, scheme))
		}
	}
	p.unfold()
	for _, width := range widths {
		p.do(size(width))
		where := fmt.Sprintf("%d px, unfolded", width)
		for i, d := range check(where).Details {
			if !d.Open || !d.Content || d.Height < 40 {
				out = append(out, fmt.Sprintf("%s: details %d: open %t, content seen %t, %.0f px high", where, i+1, d.Open, d.Content, d.Height))
			}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	found("console", "error", p.errors)
	found("network", "request", p.requests)
	return out
}

var widths = []int{1100, 390} // a desktop and a phone

// missing describes the charts that are not visible, and a wrong number of charts.
func missing(all []drawn, want int) (out []string) {
	if len(all) != want {
		out = append(out, fmt.Sprintf("%d of them, want %d", len(all), want))
	}
	for i, c := range all {
		if c.Width < 100 || c.Height < 50 || c.Shapes < 3 || c.Texts < 2 {
			out = append(out, fmt.Sprintf("%d is %.0f by %.0f px, with %d shapes and %d texts", i+1, c.Width, c.Height, c.Shapes, c.Texts))
		}
		if len(c.Cut) > 0 {
			out = append(out, fmt.Sprintf("%d is cut off at %s", i+1, strings.Join(c.Cut, ", ")))
		}
	}
	return out
}

// write writes a page to a file.
func write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}
