package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"outrider.dev/internal/core/pod/kubelet"
	"outrider.dev/internal/doctor/chart"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/lab/localpod"
	"outrider.dev/internal/lab/outside"
	"outrider.dev/startup"
)

// Options of the demo.
type Options struct {
	Programs Programs
	Services int   // number of services in the mesh; default 3000
	Acts     []int // numbers of the acts to play, from 1; default all
	Out      io.Writer
	Log      io.Writer // the output of the containers; default: discarded
	Width    int       // width of the terminal; default 100
	Color    bool
}

// Check returns an error for invalid options, with the name of the flag of "outrider demo".
func (o Options) Check() error {
	for _, n := range o.Acts {
		if n < 1 || n > len(Acts) {
			return fmt.Errorf("--act=%d: there are acts 1 to %d", n, len(Acts))
		}
	}
	if o.Services < 1 {
		return fmt.Errorf("--services=%d: the mesh needs one at least", o.Services)
	}
	return nil
}

// A Performance is the result of one act.
type Performance struct {
	Act     Act
	Number  int           // number of the act, from 1
	Refused int           // refused connections of the app
	Starts  int           // starts of the app, including the first
	Ready   time.Duration // time from the pod's creation to a ready app, or to the end of a job
	Proxy   time.Duration // time to a ready proxy
	Sent    int           // requests to the app while it stopped
	Failed  int           // failures of the requests in Sent and of the app's own calls
	Result  localpod.Result
	Chart   chart.Chart
	Problem string // why the act did not complete

	// Diagnosis is the diagnosis of the pod from its status and logs alone.
	Diagnosis result.Report
}

// actTimeout is the time limit of an act, including the kubelet's back-off.
const actTimeout = 90 * time.Second

// Run plays the acts, and writes them to o.Out. It returns an error if the environment or an act cannot be set
// up, or ctx ends; a failure of a pod is in the Performance of its act.
func Run(ctx context.Context, o Options) ([]Performance, error) {
	if o.Services == 0 {
		o.Services = 3000
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	if err := o.Programs.Check(); err != nil {
		return nil, err
	}
	fmt.Fprintf(o.Out, "setting the stage: a private machine, outriderd with %d services, a config centre\n", o.Services)
	w, err := open(o.Programs, o.Services)
	if err != nil {
		return nil, err
	}
	defer w.close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	scenes := make(chan *scene, len(Acts))
	go func() {
		defer close(scenes)
		log := &sharedLog{w: o.Log}
		for i, act := range Acts {
			if number := i + 1; ctx.Err() == nil && (len(o.Acts) == 0 || slices.Contains(o.Acts, number)) {
				s := &scene{Performance: Performance{Act: act, Number: number}, leaving: make(chan struct{}), over: make(chan struct{})}
				scenes <- s
				go s.play(ctx, w, log)
				select {
				case <-s.leaving: // only the end of the pod remains; the next act can begin
				case <-s.over:
				}
			}
		}
	}()
	var all []Performance
	for s := range scenes {
		fmt.Fprintf(o.Out, "\nAct %d: %s\n  %s\n", s.Number, s.Act.Title, s.Act.Lead)
		<-s.over
		if s.err != nil {
			err = errors.Join(err, fmt.Errorf("act %d, %s: %w", s.Number, s.Act.Title, s.err))
			cancel() // acts that still run must end before w is closed
			continue
		}
		all = append(all, s.Performance)
		fmt.Fprintln(o.Out)
		fmt.Fprint(o.Out, s.Chart.Text(chart.TextOptions{Width: o.Width, Color: o.Color}))
		if s.Problem != "" {
			fmt.Fprintln(o.Out, "  "+s.Problem)
		}
		fmt.Fprintf(o.Out, "  diagnosed by status and logs alone: %s\n", s.Diagnosis.Sentence)
	}
	return all, cmp.Or(err, context.Cause(ctx))
}

// A scene is an act that is being played.
type scene struct {
	Performance
	err     error
	leaving chan struct{} // closed when only the pod's end remains
	over    chan struct{} // closed at the end
}

// A sharedLog is a log to which several acts write concurrently.
type sharedLog struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *sharedLog) printf(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintf(l.w, format, args...)
}

// A listener receives the output and the journal of an act's pod, and records what a Performance needs.
type listener struct {
	act     int
	log     *sharedLog
	mu      sync.Mutex
	began   time.Time
	refused []time.Duration
	tail    []string
	ready   chan time.Duration
	proxy   time.Duration
	failed  int // failed calls of the app
}

func (l *listener) line(container, line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.log.printf("act %d %8.3f %s | %s\n", l.act, time.Since(l.began).Seconds(), container, line)
	if len(l.tail) == 12 {
		l.tail = l.tail[1:]
	}
	l.tail = append(l.tail, container+" | "+line)
	switch {
	case container != appName:
	case strings.Contains(line, lineRefused):
		l.refused = append(l.refused, time.Since(l.began))
	case strings.HasPrefix(line, lineReady):
		select {
		case l.ready <- time.Since(l.began):
		default:
		}
	case strings.HasPrefix(line, lineServed):
		var served, failed int
		if n, _ := fmt.Sscanf(line, lineServed+" %d, failed %d", &served, &failed); n == 2 {
			l.failed += failed
		}
	}
}

func (l *listener) entry(e localpod.Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.Container == proxyName && e.Kind == localpod.Happened && e.What == string(startup.IsHealthy) && l.proxy == 0 {
		l.proxy = e.At
	}
}

// play runs the pod of an act from its creation to its end, and fills in s.
func (s *scene) play(ctx context.Context, w *world, log *sharedLog) {
	defer close(s.over)
	pod, plan, err := s.Act.pod(s.Number)
	if err != nil {
		s.err = err
		return
	}
	o, err := w.options()
	if err != nil {
		s.err = err
		return
	}
	l := &listener{act: s.Number, log: log, began: time.Now(), ready: make(chan time.Duration, 1)}
	o.Pod, o.Plan, o.Kube, o.Line, o.Journal = *pod, plan, kubelet.Minor(34), l.line, l.entry
	seen, err := outside.Watch(&o, time.Now())
	if err != nil {
		s.err = err
		return
	}
	defer seen.Close()
	running, err := w.node.Start(o)
	if err != nil {
		s.err = err
		return
	}
	if s.err = writePod(w.mesh(), pod.Name, running.Addresses()[0]); s.err != nil {
		running.Kill()
		return
	}
	defer os.Remove(filepath.Join(w.mesh(), pod.Name+".yaml"))
	ctx, cancel := context.WithTimeout(ctx, actTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, running.Kill)
	defer stop()

	select {
	case s.Ready = <-l.ready:
		if s.Diagnosis, s.err = seen.Diagnose(ctx, time.Now()); s.err != nil {
			running.Kill()
			return
		}
		s.Sent, s.Failed = w.stopUnderLoad(ctx, running)
	case <-running.Done():
		if s.Diagnosis, s.err = seen.Diagnose(ctx, time.Now()); s.err != nil {
			return
		}
	}
	close(s.leaving)
	s.Result = running.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	s.Failed += l.failed
	s.Refused, s.Proxy = len(l.refused), l.proxy
	for _, c := range s.Result.Containers {
		if c.Name == appName {
			s.Starts = c.Restarts + 1
		}
	}
	if s.Act.Job {
		s.Ready = s.Result.Took
	}
	s.Problem = s.problem(ctx, l.tail)
	s.Chart = s.chart(l.refused)
}

// problem returns why the act did not complete, or "".
func (p Performance) problem(ctx context.Context, tail []string) string {
	switch {
	case ctx.Err() == context.DeadlineExceeded:
		return fmt.Sprintf("not over after %s; last lines:\n    %s", actTimeout, strings.Join(tail, "\n    "))
	case p.Act.Job && p.Result.Status.Phase != kubelet.Succeeded:
		return fmt.Sprintf("the job's pod is %s; last lines:\n    %s", p.Result.Status.Phase, strings.Join(tail, "\n    "))
	case p.Ready == 0:
		return fmt.Sprintf("the app was never ready; last lines:\n    %s", strings.Join(tail, "\n    "))
	}
	return ""
}

// chart returns the chart of the act, with a mark for each refused call. The app prints a refused call just
// before it exits, so the line may be read after the event of the exit; such a mark is moved before the exit.
func (p Performance) chart(refused []time.Duration) chart.Chart {
	const late = 500 * time.Millisecond
	timeline := p.Result.Timeline
	for _, at := range refused {
		for _, e := range p.Result.Timeline {
			if e.Container == appName && e.What == startup.HasFailed && e.At <= at && at-e.At < late {
				at = e.At - time.Millisecond
			}
		}
		timeline = append(timeline, startup.Event{Container: appName, What: startup.IsRefused, At: at})
	}
	c := chart.New([]string{initName, proxyName, appName}, timeline.Sorted(), nil, p.Result.Violations)
	c.Title = p.Act.Title
	return c
}

// These are the parameters of the load while a pod stops. Clients of a service notice the removal of a pod only
// after a while, so calls continue for loadAfter.
const (
	loadBefore = time.Second
	loadAfter  = 500 * time.Millisecond
	callers    = 4
)

// stopUnderLoad calls the app, deletes the pod, and continues to call for loadAfter. It returns the numbers of
// calls and of failed calls.
func (w *world) stopUnderLoad(ctx context.Context, pod *localpod.Pod) (sent, failed int) {
	client := w.client()
	client.Timeout = 10 * time.Second
	url := fmt.Sprintf("http://%s:8080/", pod.Addresses()[0])
	var n, bad atomic.Int64
	var work sync.WaitGroup
	loading, end := context.WithCancel(ctx)
	for range callers {
		work.Go(func() {
			for loading.Err() == nil {
				n.Add(1)
				if !served(client, url) {
					bad.Add(1)
				}
			}
		})
	}
	wait(ctx, loadBefore)
	pod.Delete(0)
	wait(ctx, loadAfter)
	end()
	work.Wait()
	return int(n.Load()), int(bad.Load())
}

func served(client *http.Client, url string) bool {
	response, err := client.Get(url)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return err == nil && response.StatusCode == http.StatusOK
}

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
