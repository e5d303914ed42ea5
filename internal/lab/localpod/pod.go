package localpod

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/core/pod/kubelet"
	"outrider.dev/internal/core/pod/podrun"
	"outrider.dev/internal/lab/localpod/containerinit"
	"outrider.dev/startup"
)

// A Pod is a pod that runs on a node.
type Pod struct {
	node  *Node
	box   *sandbox
	facts facts
	specs map[string]spec
	plan  startup.Plan
	began time.Time

	news   chan news          // events from hooks, probes and containers
	over   chan struct{}      // closed when the loop ends
	done   chan struct{}      // closed when all processes of the pod have ended and its files are removed
	life   context.Context    // context of hooks and probes
	end    context.CancelFunc // cancels life
	work   sync.WaitGroup
	output sync.Mutex // guards calls of Line and Journal
	delete chan time.Duration
	kill   chan struct{}
	once   sync.Once // closes kill
	final  Result

	// Only the loop uses the fields below.
	state         kubelet.State
	running       map[string]*container
	starting      map[string]bool // containers whose start has not returned yet
	dying         bool            // Kill was called: no container starts any more
	deleted       bool
	failed        []string // failures at the time of the deletion
	ended         map[string]Ended
	timeline      startup.Timeline
	sources       map[string]startup.Health
	hidden        map[string]bool
	reported      map[string]bool // containers whose journals have entries
	reportsHealth map[string]bool // containers whose journals contain their health
}

// A news is an event, or the entry of a gate's journal, on its way to the loop.
type news struct {
	event  kubelet.Event
	of     *container // the run of the container to which the event belongs
	detail string
	report startup.What // the entry of a gate's journal; if set, event has only the time and the container
}

// Start starts a pod on the node, and returns at once. The pod runs until it ends or is deleted. Start fails if
// the pod cannot be run; for each reason in the pod's spec, the error contains a *SpecError.
func (n *Node) Start(o Options) (*Pod, error) {
	o.setDefaults()
	number, addrs, err := n.admit()
	if err != nil {
		return nil, err
	}
	f := facts{Options: &o, node: n.Name, host: n.Addresses(), addrs: addrs}
	if err := f.check(); err != nil {
		return nil, err
	}
	mountinfo, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer mountinfo.Close()
	host, err := machineMounts(mountinfo)
	if err != nil {
		return nil, err
	}
	box, err := n.newSandbox(number, f)
	if err != nil {
		return nil, err
	}
	specs, err := f.specs(box.dir, host)
	if err != nil {
		box.Close()
		return nil, err
	}
	lifecycle := podrun.Lifecycle(&o.Pod)
	p := &Pod{node: n, box: box, facts: f, specs: map[string]spec{}, plan: o.Plan.Expand(), began: time.Now(),
		news: make(chan news), over: make(chan struct{}), done: make(chan struct{}), delete: make(chan time.Duration, 1), kill: make(chan struct{}),
		state: kubelet.New(lifecycle, o.Kube), running: map[string]*container{}, starting: map[string]bool{}, ended: map[string]Ended{},
		sources: sources(o.Plan, lifecycle), hidden: hiddenIn(o.Plan.Expand()), reported: map[string]bool{}, reportsHealth: map[string]bool{}}
	for _, s := range specs {
		p.specs[s.Name] = s
	}
	p.life, p.end = context.WithCancel(context.Background())
	p.watchGates()
	go p.loop()
	return p, nil
}

// Delete deletes the pod: its containers are stopped in their order within the grace period; 0 means the pod's
// terminationGracePeriodSeconds. Only the first call has an effect. Delete does not wait for the end.
func (p *Pod) Delete(grace time.Duration) {
	select {
	case p.delete <- grace:
	default:
	}
}

// Kill ends the pod at once with SIGKILL.
func (p *Pod) Kill() { p.once.Do(func() { close(p.kill) }) }

// Await waits for the end of the pod, and returns the result. It deletes the pod after the given duration, unless
// that is 0, or at the first signal, and kills it at the second signal.
func (p *Pod) Await(signals <-chan os.Signal, duration time.Duration) Result {
	var after <-chan time.Time
	if duration > 0 {
		after = time.After(duration)
	}
	deleted := false
	for {
		select {
		case <-p.done:
			return p.final
		case <-after:
			p.Delete(0)
		case <-signals:
			if deleted {
				p.Kill()
			}
			p.Delete(0)
			deleted = true
		}
	}
}

// Done returns a channel that is closed when no process of the pod is left.
func (p *Pod) Done() <-chan struct{} { return p.done }

// Wait waits for the end of the pod, and returns the result.
func (p *Pod) Wait() Result {
	<-p.done
	return p.final
}

// Addresses returns the pod's addresses, IPv4 first.
func (p *Pod) Addresses() []netip.Addr { return p.facts.addrs }

// Do runs f in the pod's network. Sockets that f creates stay in that network.
func (p *Pod) Do(f func() error) error { return inside(f, p.box.net) }

// Volume returns the path of the pod's emptyDir volume on this machine, which is valid while the pod runs.
func (p *Pod) Volume(name string) string {
	return p.node.path(path.Join(p.box.dir, "volumes", name))
}

func (p *Pod) now() time.Duration { return time.Since(p.began) }

// send passes an event to the loop. It drops the event if the loop has ended.
func (p *Pod) send(n news) {
	select {
	case p.news <- n:
	case <-p.over:
	}
}

// loop acts as the kubelet of this pod. Only this goroutine changes the state; all others send news to it.
func (p *Pod) loop() {
	defer p.close()
	p.step(news{event: kubelet.Event{Kind: kubelet.Added}})
	timer := time.NewTimer(0)
	defer timer.Stop()
	kill := p.kill
	for !p.state.Done() && !(p.dying && len(p.running) == 0 && len(p.starting) == 0) {
		var due <-chan time.Time
		if next, ok := p.state.Next(); ok {
			timer.Reset(max(0, next-p.now()))
			due = timer.C
		}
		select {
		case n := <-p.news:
			p.receive(n)
		case <-due:
			p.step(news{event: kubelet.Event{At: p.now(), Kind: kubelet.Tick}})
		case grace := <-p.delete:
			p.leave()
			p.step(news{event: kubelet.Event{At: p.now(), Kind: kubelet.Deleted, Grace: grace}})
		case <-kill:
			kill = nil
			p.leave()
			p.dying = true
			p.end()
			for _, c := range p.running {
				c.signal(syscall.SIGKILL)
			}
		}
	}
}

// leave records the deletion, and the failures before it, because the end of a container that is stopped is no
// failure.
func (p *Pod) leave() {
	if !p.deleted {
		p.deleted, p.failed = true, p.failures()
	}
}

// close ends hooks and probes, computes the result, and removes the pod's files.
func (p *Pod) close() {
	p.end()
	p.final = p.result()
	close(p.over)
	p.work.Wait()
	p.box.Close()
	_ = p.box.forget() // if this fails, the files are removed with the node
	close(p.done)
}

// receive handles one news. It drops the answer of a probe of an earlier run of the container. It keeps the
// answer of a hook, because the kubelet waits for it.
func (p *Pod) receive(n news) {
	e := n.event
	switch {
	case n.report != "":
		p.reported[e.Container] = true
		if n.report == startup.IsHealthy || n.report == startup.IsUnhealthy {
			p.reportsHealth[e.Container] = true
		}
		p.note(startup.Timeline{{Container: e.Container, What: n.report, At: e.At, Incarnation: max(p.state.View(e.Container).Incarnation, 0), Detail: n.detail}})
		return
	case e.Kind == kubelet.ProbeAnswered && p.running[e.Container] != n.of:
		return
	case e.Kind == kubelet.Started:
		delete(p.starting, e.Container)
		p.started(n)
	case e.Kind == kubelet.Exited:
		delete(p.running, e.Container)
		p.exited(n)
	}
	p.step(n)
}

func (p *Pod) started(n news) {
	name := n.event.Container
	end := p.ended[name]
	end.Reason = ""
	if !n.event.OK {
		code := containerinit.ExitSetup
		end.ExitCode, end.Reason = &code, n.detail
	} else {
		end.Started = true
		p.running[name] = n.of
		if p.dying {
			n.of.signal(syscall.SIGKILL)
		}
	}
	p.ended[name] = end
}

func (p *Pod) exited(n news) {
	name, code := n.event.Container, n.event.Code
	end := p.ended[name]
	end.ExitCode, end.Message = &code, p.message(n.of, code)
	p.ended[name] = end
}

// longestMessage is the number of bytes of a termination message that the kubelet keeps.
const longestMessage = 4096

// message returns a container's termination message.
func (p *Pod) message(c *container, code int) string {
	var data []byte
	if f, err := os.Open(p.node.path(c.spec.message)); err == nil { // the container may have removed the file
		data, _ = io.ReadAll(io.LimitReader(f, longestMessage))
		f.Close()
	}
	text := string(data)
	if text == "" && code != 0 && c.spec.TerminationMessagePolicy == corev1.TerminationMessageFallbackToLogsOnError {
		text = c.tail.String()
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// step passes an event to the model of the kubelet, and carries out the resulting actions.
func (p *Pod) step(n news) {
	before, e := p.state, n.event
	after, actions := before.Step(e)
	p.state = after
	p.recordEvent(n)
	happened := p.seen(kubelet.Happened(before, e, actions), n.detail)
	if what, ok := p.healthOf(before, e); ok {
		happened = append(startup.Timeline{{Container: e.Container, What: what, At: e.At, Incarnation: after.View(e.Container).Incarnation}}, happened...)
	}
	p.note(happened)
	for _, a := range actions {
		p.recordAction(a)
	}
	for _, a := range actions {
		p.do(a)
	}
}

// seen changes the kubelet's timeline: a container that waits at its gate counts as waiting, not as started. It
// also adds detail to failures.
func (p *Pod) seen(t startup.Timeline, detail string) startup.Timeline {
	for i, e := range t {
		if e.What == startup.IsStarted && p.hidden[e.Container] {
			t[i].What, t[i].Detail = startup.IsWaiting, "in its own process"
		}
		if detail != "" && (e.What == startup.HasFailed || e.What == startup.HookFailed) {
			t[i].Detail = strings.TrimPrefix(e.Detail+": "+detail, ": ")
		}
	}
	return t
}

func (p *Pod) note(t startup.Timeline) {
	p.timeline = append(p.timeline, t...)
	for _, e := range t {
		p.record(Entry{At: e.At, Kind: Happened, Container: e.Container, What: string(e.What), Detail: e.Detail})
	}
}

func (p *Pod) recordEvent(n news) {
	e := n.event
	if e.Kind == kubelet.Tick {
		return
	}
	entry := Entry{At: e.At, Kind: Received, Container: e.Container, What: string(e.Kind), Which: e.Which, Detail: n.detail}
	switch e.Kind {
	case kubelet.Exited:
		entry.ExitCode = &e.Code
	case kubelet.Pulled, kubelet.Started, kubelet.HookReturned, kubelet.ProbeAnswered, kubelet.SandboxReady:
		entry.Failed = !e.OK
	}
	p.record(entry)
}

func (p *Pod) recordAction(a kubelet.Action) {
	detail := a.Reason
	if a.Kind == kubelet.Publish {
		detail = strings.TrimSuffix(fmt.Sprintf("%s ready=%t", a.Status.Phase, a.Status.Ready), " ")
	}
	p.record(Entry{At: a.At, Kind: Did, Container: a.Container, What: string(a.Kind), Which: a.Which, Detail: detail})
}

func (p *Pod) record(e Entry) {
	p.output.Lock()
	defer p.output.Unlock()
	p.facts.Journal(e)
}

func (p *Pod) line(container, line string) {
	p.output.Lock()
	defer p.output.Unlock()
	p.facts.Line(container, line)
}
