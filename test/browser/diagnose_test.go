package browser

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	diagnosepage "outrider.dev/internal/doctor/diagnose/page"
)

// evaluate runs a script, even on a page whose content policy forbids scripts, and returns its result.
func evaluate[T any](p *page, script string) T {
	p.t.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](script))
	if err != nil {
		p.t.Fatalf("%s: %v", script, err)
	}
	return v
}

func (p *page) press(key string) {
	p.t.Helper()
	p.do(chromedp.KeyEvent(key))
}

// mouse sends a mouse event. wheel is the distance by which the wheel is turned, negative for turns away from the
// reader.
func (p *page) mouse(kind input.DispatchMouseEventType, x, y, wheel float64) {
	p.t.Helper()
	p.do(chromedp.MouseEvent(kind, x, y, func(e *input.DispatchMouseEventParams) {
		if e.DeltaX, e.DeltaY = 0.01, wheel; kind == input.DispatchMouseEventTypeMousePressed || kind == input.DispatchMouseEventTypeMouseReleased {
			e.Button, e.ClickCount = input.MouseButtonLeft, 1
		}
	}))
}

// clean fails the test if the page has errors, has sent requests, or has text that is hard to read.
func (p *page) clean(where string) {
	p.t.Helper()
	l := p.look()
	p.mu.Lock()
	defer p.mu.Unlock()
	for what, list := range map[string][]string{"beyond the window": l.Wide, "hardly read": l.Faint, "hardly seen": l.Pale, "error": p.errors, "request": p.requests} { // any order: each list is reported separately
		if len(list) > 0 {
			p.t.Errorf("%s: %s: %q", where, what, list)
		}
	}
	if l.Read == 0 {
		p.t.Errorf("%s: nothing is to be read", where)
	}
}

// themes checks the page at three widths in both themes, selected by the reader's preference and by the button.
func (p *page) themes() {
	p.t.Helper()
	ground := func() string { return evaluate[string](p, `getComputedStyle(document.body).backgroundColor`) }
	for _, width := range []int{1300, 390, 360} {
		p.do(size(width))
		p.scheme("dark")
		dark := ground()
		p.clean(fmt.Sprintf("%d px, dark", width))
		p.scheme("light")
		light := ground()
		p.clean(fmt.Sprintf("%d px, light", width))
		p.do(chromedp.Click(chromedp.CSS("#theme")))
		if got := ground(); got != dark || dark == light {
			p.t.Errorf("after the button the ground is %s, want %s, and not %s", got, dark, light)
		}
		p.clean(fmt.Sprintf("%d px, dark by the button", width))
		p.do(chromedp.Click(chromedp.CSS("#theme")))
		if got := ground(); got != light {
			p.t.Errorf("after the button the ground is %s, want %s", got, light)
		}
		evaluate[bool](p, `delete document.documentElement.dataset.theme`)
	}
}

// hostile makes a folder with a pod whose log contains markup.
func hostile(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	from, err := filepath.Abs("../../testdata/incidents/silent-without-configuration")
	if err == nil {
		err = os.CopyFS(dir, os.DirFS(from))
	}
	if err != nil {
		t.Fatal(err)
	}
	logs, err := filepath.Glob(dir + "/*.log")
	if err != nil || len(logs) == 0 {
		t.Fatalf("no logs: %v", err)
	}
	for _, file := range logs {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text = []byte(strings.ReplaceAll(string(text), "refused", "refused <script>document.title='forged'</script><img src=http://127.0.0.1:9/x.png onerror=alert(1)> ]]> </style>"))
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Zoom, cursor, hover, keyboard and themes of a diagnosis page work, and the page fetches nothing.
func TestDiagnosis(t *testing.T) {
	ctx, outrider := browser(t), build(t)
	incidents, err := filepath.Abs("../../testdata/incidents")
	if err != nil {
		t.Fatal(err)
	}
	file := write(t, "diagnosis.html", report(t, outrider, "diagnose", "-o", "html", "-f", incidents+"/awesome-app", "-f", hostile(t)))
	p := open(t, ctx, file, 1300)
	p.themes()
	p.do(size(1300))
	if n := evaluate[int](p, `document.querySelectorAll('section.pod .chart').length`); n != 2 {
		t.Fatalf("%d timelines, want 2", n)
	}
	window := func() string { return evaluate[string](p, `document.querySelector('#window').textContent`) }
	whole := window()
	bars := `[...document.querySelectorAll('.lane rect.bar')].map(b => b.getAttribute('x') + b.getAttribute('width')).join()`

	before := evaluate[string](p, bars)
	p.do(chromedp.Click(chromedp.CSS("button[data-do=in]")))
	if zoomed := window(); zoomed == whole || evaluate[string](p, bars) == before {
		t.Errorf("the button zooms to %s, from %s", zoomed, whole)
	}
	p.do(chromedp.Click(chromedp.CSS("button[data-do=all]")))
	if got := window(); got != whole {
		t.Errorf("All shows %s, want %s", got, whole)
	}

	// Use only the keyboard, for focus, marks, cursor and zoom.
	evaluate[bool](p, `document.querySelector('.chart').focus() || true`)
	line := func() string { return evaluate[string](p, `document.querySelector('.now').textContent`) }
	if got := line(); !strings.Contains(got, "at +") {
		t.Errorf("with the focus, %q is shown", got)
	}
	cursor := func() string {
		return evaluate[string](p, `[...document.querySelectorAll('.cursor')].map(c => c.classList.contains('on') + ' ' + c.getAttribute('x1')).filter((v, i, all) => all.indexOf(v) === i).join()`)
	}
	at := cursor()
	if !strings.HasPrefix(at, "true ") || strings.Contains(at, ",") {
		t.Errorf("the cursor is %s, want one place in all rows", at)
	}
	p.press("n")
	p.press(kb.ArrowRight)
	if moved := cursor(); moved == at {
		t.Errorf("the arrow leaves the cursor at %s", at)
	}
	for _, key := range []string{"+", "+"} {
		p.press(key)
	}
	near := window()
	p.press("-")
	if far := window(); near == whole || far == near {
		t.Errorf("the keys + and - show %s and %s, of %s", near, far, whole)
	}
	p.press("0")
	if got := window(); got != whole {
		t.Errorf("the key 0 shows %s, want %s", got, whole)
	}

	// Use the mouse: hovering shows the line, the wheel zooms, and dragging moves the chart.
	mark := `(() => { const c = document.querySelector('section.pod circle.warn').getBoundingClientRect(); return [c.x + c.width / 2, c.y + c.height / 2] })()`
	xy := evaluate[[]float64](p, mark)
	p.mouse(input.DispatchMouseEventTypeMouseMoved, xy[0], xy[1], 0)
	if got := line(); !strings.Contains(got, "refused") {
		t.Errorf("hover shows %q, want the line of the refused call", got)
	}
	p.mouse(input.DispatchMouseEventTypeMouseWheel, xy[0], xy[1], -100)
	wheel := window()
	if wheel == whole {
		t.Errorf("the wheel leaves %s", wheel)
	}
	p.mouse(input.DispatchMouseEventTypeMousePressed, xy[0]+40, xy[1], 0)
	p.mouse(input.DispatchMouseEventTypeMouseMoved, xy[0]+10, xy[1], 0)
	p.mouse(input.DispatchMouseEventTypeMouseReleased, xy[0]+10, xy[1], 0)
	if got := window(); got == wheel {
		t.Errorf("the drag leaves %s", got)
	}
	p.do(chromedp.Click(chromedp.CSS("button.at")))
	p.unfold()
	p.clean("at the end")
	if got := evaluate[string](p, `document.title`); !strings.HasPrefix(got, "What happened to 2 pods") {
		t.Errorf("title %q", got)
	}
	if n := evaluate[int](p, `document.querySelectorAll('img').length + document.scripts.length`); n != 1 {
		t.Errorf("%d images and scripts, want the page's own script", n)
	}
}

// The page of a fleet can be filtered by causes and names, also with the keyboard, and stays fast with a thousand rows.
func TestFleet(t *testing.T) {
	ctx := browser(t)
	var page bytes.Buffer
	if err := diagnosepage.Write(&page, diagnosepage.Made(1000), diagnosepage.Options{Format: "html", Fleet: true}); err != nil {
		t.Fatal(err)
	}
	p := open(t, ctx, write(t, "fleet.html", page.String()), 1300)
	p.themes()
	shown := func() int {
		return evaluate[int](p, `[...document.querySelectorAll('.fleet li[data-c]')].filter(l => !l.hidden).length`)
	}
	if n := shown(); n != 1000 {
		t.Fatalf("%d rows, want 1000", n)
	}
	count := evaluate[int](p, `Number(document.querySelector('[data-cause=startup-race] b').textContent)`)
	evaluate[bool](p, `document.querySelector('[data-cause=startup-race]').focus() || true`)
	p.press(kb.Enter)
	if n := shown(); n != count || n == 0 || n == 1000 {
		t.Errorf("%d rows with the filter, want %d", n, count)
	}
	if got := evaluate[string](p, `document.querySelector('#shown').textContent`); got != fmt.Sprintf("%d of 1000 are shown", count) {
		t.Errorf("the page says %q", got)
	}
	p.press(kb.Enter)
	p.do(chromedp.SendKeys(chromedp.CSS("#name"), "web-7-"))
	if n := shown(); n != 1 {
		t.Errorf("%d rows with the name, want 1", n)
	}
	p.clean("with a filter")
}
