package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/internal/doctor/evidence/decoded"
	"outrider.dev/internal/doctor/evidence/described"
)

// Access provides the access to a cluster that [Read] needs.
type Access struct {
	Core kubernetes.Interface
	// Forward forwards a port of a pod, like Client.Forward of internal/ops/kubeclient. If it is nil, Outrider's
	// journals are not read.
	Forward func(ctx context.Context, namespace, pod string, port int) (address string, stop func(), err error)
}

// Wanted selects the pods to read. The zero value of a limit means its default.
type Wanted struct {
	Namespace string   // empty: all namespaces; must be set if there are Names
	Names     []string // POD, deploy/NAME, job/NAME, sts/NAME, ds/NAME, rs/NAME, cronjob/NAME; none: all pods
	Selector  string

	// OwnEvents leaves out the events of other objects, such as owners. Only the events of each pod are then read,
	// instead of all events of the namespace, which may be many.
	OwnEvents bool

	Pods     int           // limit of the number of pods; default 10,000
	Since    time.Time     // older log lines are not read; zero: all are read
	LogBytes int64         // limit of the bytes that are read from the beginning of each log; default 256 MiB
	Parallel int           // concurrent requests; default 8
	Timeout  time.Duration // limit of one request, except the reading of a log; default 20s

	// OpenLog opens a log; default: at the API server.
	OpenLog func(ctx context.Context, namespace, pod string, o *corev1.PodLogOptions) (io.ReadCloser, error)
	Now     func() time.Time // default: time.Now
}

func (w Wanted) defaults(c Access) Wanted {
	w.Pods, w.LogBytes, w.Parallel, w.Timeout = cmp.Or(w.Pods, 10_000), cmp.Or(w.LogBytes, 256<<20), cmp.Or(w.Parallel, 8), cmp.Or(w.Timeout, 20*time.Second)
	if w.Now == nil {
		w.Now = time.Now
	}
	if w.OpenLog == nil {
		w.OpenLog = func(ctx context.Context, namespace, pod string, o *corev1.PodLogOptions) (io.ReadCloser, error) {
			return c.Core.CoreV1().Pods(namespace).GetLogs(pod, o).Stream(ctx)
		}
	}
	return w
}

// Found has the evidence of a cluster about the wanted pods. Nothing of it is assigned to another part yet.
type Found struct {
	Pods     []*evidence.Pod
	Taken    evidence.Time
	Events   []corev1.Event     // of the pods' namespaces, or of the pods; one may come twice
	NoEvents []evidence.Missing // namespaces whose events could not be read
	Owners   []Owner
	Logs     []Log
	Missing  []Missing
	Unused   []evidence.Unused

	Named   []Workload // that were asked for by their names
	Without []Workload // of these, those that have no pod
}

// An Owner is a workload that owns pods, or that should.
type Owner struct {
	Kind   string
	Object metav1.Object
}

// A Log is the log of one run of a container.
type Log struct {
	*evidence.Log
	Pod       *evidence.Pod
	Container string
	Previous  bool
	Run       int
}

// A Missing is a piece of evidence that could not be read, with the pod to which it belongs.
type Missing struct {
	Pod *evidence.Pod
	evidence.Missing
}

// Read reads what a cluster has of the wanted pods. Logs are read later, by [evidence.Log.Lines] and [evidence.Log.Scan];
// Read only opens them, to find out whether they can be read. Evidence that is forbidden or gone is listed in Missing.
// Read fails only if the pods themselves cannot be read or do not exist.
func Read(ctx context.Context, c Access, w Wanted) (*Found, error) {
	l := &live{Access: c, Wanted: w.defaults(c), Found: &Found{}, owned: map[string]metav1.Object{}}
	l.turns = make(chan struct{}, l.Wanted.Parallel)
	pods, err := l.pods(ctx)
	if err != nil {
		return nil, err
	}
	if most := l.Wanted.Pods; len(pods) > most {
		l.unused(evidence.Source{Kind: evidence.FromPod, File: "kubectl get pods"}, "there are %d pods, of which the first %d are read", len(pods), most)
		pods = pods[:most]
	}
	// This machine's clock may differ from the node's by up to a minute.
	l.Taken = evidence.Time{At: l.Now().Add(-time.Minute), Error: 2 * time.Minute, Clock: evidence.NodeClock}
	l.readEvents(ctx, pods)
	l.wait.Wait() // the events name workloads that cannot create pods
	l.readOwners(ctx, pods)
	well := 0
	for i := range pods {
		p := evidence.NewPod(&pods[i], evidence.Source{Kind: evidence.FromPod, File: fmt.Sprintf("kubectl get pod %s -n %s", pods[i].Name, pods[i].Namespace)})
		l.Found.Pods = append(l.Found.Pods, p)
		if len(pods) > MostLogged && !ill(&pods[i]) {
			well++
			continue
		}
		l.readLogs(ctx, p)
		l.readJournal(ctx, p)
	}
	l.wait.Wait()
	if well > 0 {
		l.unused(evidence.Source{Kind: evidence.FromLog, File: "kubectl logs"}, "there are more than %d pods: of the %d that are ready and did not restart the logs are not read", MostLogged, well)
	}
	return l.Found, nil
}

func (l *live) unused(from evidence.Source, format string, args ...any) {
	l.Unused = append(l.Unused, evidence.Unused{Source: from, Why: fmt.Sprintf(format, args...)})
}

// MostLogged is the number of pods up to which the logs of all are read.
const MostLogged = 1000

// ill reports whether a pod is not ready, or a container of it restarted.
func ill(p *corev1.Pod) bool {
	if p.Status.Phase == corev1.PodSucceeded {
		return false
	}
	restarted := func(s corev1.ContainerStatus) bool { return s.RestartCount > 0 }
	ready := slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
	return !ready || slices.ContainsFunc(p.Status.ContainerStatuses, restarted) || slices.ContainsFunc(p.Status.InitContainerStatuses, restarted)
}

type live struct {
	Access
	Wanted
	*Found

	owned map[string]metav1.Object // the workloads that were read, by kind, namespace and name
	mu    sync.Mutex               // guards the fields during requests
	wait  sync.WaitGroup
	turns chan struct{}
}

// request runs the function do in a goroutine, with a timeout, as soon as fewer than Parallel requests run.
func (l *live) request(ctx context.Context, do func(context.Context)) {
	l.wait.Go(func() {
		l.turns <- struct{}{}
		defer func() { <-l.turns }()
		ctx, cancel := context.WithTimeout(ctx, l.Timeout)
		defer cancel()
		do(ctx)
	})
}

func (l *live) note(p *evidence.Pod, kind evidence.Kind, what string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Missing = append(l.Missing, Missing{p, evidence.Missing{Kind: kind, What: what, Why: reason(err)}})
}

// reason describes the error of a request in one line.
func reason(err error) string {
	switch {
	case apierrors.IsForbidden(err):
		return "forbidden: the user may not read it"
	case errors.Is(err, context.DeadlineExceeded):
		return "the API server did not answer in time"
	}
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}

// pods returns the wanted pods, sorted by namespace and name.
func (l *live) pods(ctx context.Context) (out []corev1.Pod, err error) {
	if len(l.Names) == 0 {
		return l.list(ctx, l.Selector)
	}
	for _, n := range l.Names {
		kind, of, isOwner := strings.Cut(n, "/")
		switch {
		case l.Namespace == "":
			return nil, fmt.Errorf("%s: a name needs a namespace", n)
		case !isOwner, kind == "pod", kind == "pods", kind == "po":
			if isOwner {
				n = of
			}
			p, err := l.Core.CoreV1().Pods(l.Namespace).Get(ctx, n, metav1.GetOptions{})
			if err != nil {
				return nil, fmt.Errorf("reading pod %s/%s: %w", l.Namespace, n, err)
			}
			out = append(out, *p)
		default:
			selector, err := l.selectorOf(ctx, kind, of)
			if err != nil {
				return nil, err
			}
			pods, err := l.list(ctx, selector)
			if err != nil {
				return nil, err
			}
			w := Workload{described.WorkloadKind(kind), of}
			l.Named = append(l.Named, w)
			if len(pods) == 0 {
				l.Without = append(l.Without, w)
			}
			out = append(out, pods...)
		}
	}
	return out, nil
}

func (l *live) list(ctx context.Context, selector string) (out []corev1.Pod, err error) {
	o := metav1.ListOptions{LabelSelector: selector, Limit: 500}
	for len(out) <= l.Wanted.Pods {
		page, err := l.Core.CoreV1().Pods(l.Namespace).List(ctx, o)
		if err != nil {
			return nil, fmt.Errorf("listing pods: %w", err)
		}
		out = append(out, page.Items...)
		if o.Continue = page.Continue; o.Continue == "" {
			break
		}
	}
	return out, nil
}

// Selects returns the kind of a workload named KIND/NAME, as in [Wanted], and the selector of its pods. It fails if
// the workload cannot be read or has no selector.
func Selects(ctx context.Context, c Access, namespace, named string) (kind, selector string, err error) {
	l := &live{Access: c, Wanted: Wanted{Namespace: namespace}, Found: &Found{}}
	of, name, _ := strings.Cut(named, "/")
	selector, err = l.selectorOf(ctx, of, name)
	return described.WorkloadKind(of), selector, err
}

// selectorOf returns the selector of the pods of a workload.
func (l *live) selectorOf(ctx context.Context, kind, name string) (string, error) {
	full := described.WorkloadKind(kind)
	if full == "" {
		return "", fmt.Errorf("%s/%s: want POD, deploy/NAME, job/NAME, cronjob/NAME, sts/NAME, ds/NAME or rs/NAME", kind, name)
	}
	object, err := l.owner(ctx, l.Namespace, full, name)
	if err != nil {
		return "", fmt.Errorf("reading %s %s/%s: %w", full, l.Namespace, name, err)
	}
	selector, err := decoded.Selector(object)
	if full == "CronJob" {
		selector, err = l.jobsOf(ctx, object)
	}
	if err != nil {
		return "", fmt.Errorf("%s %s/%s: %w", full, l.Namespace, name, err)
	}
	return selector, nil
}

// jobsOf returns the selector of the pods of the Jobs of a CronJob.
func (l *live) jobsOf(ctx context.Context, cronJob metav1.Object) (string, error) {
	jobs, err := l.Core.BatchV1().Jobs(l.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	var names []string
	for i := range jobs.Items {
		if metav1.IsControlledBy(&jobs.Items[i], cronJob) {
			names = append(names, jobs.Items[i].Name)
		}
	}
	if names == nil {
		return "job-name,!job-name", nil // selects none
	}
	return fmt.Sprintf("job-name in (%s)", strings.Join(names, ",")), nil
}

// owner reads a workload. It fails for kinds that are not built into Kubernetes.
func (l *live) owner(ctx context.Context, namespace, kind, name string) (metav1.Object, error) {
	get := metav1.GetOptions{}
	switch kind {
	case "Deployment":
		return l.Core.AppsV1().Deployments(namespace).Get(ctx, name, get)
	case "StatefulSet":
		return l.Core.AppsV1().StatefulSets(namespace).Get(ctx, name, get)
	case "DaemonSet":
		return l.Core.AppsV1().DaemonSets(namespace).Get(ctx, name, get)
	case "ReplicaSet":
		return l.Core.AppsV1().ReplicaSets(namespace).Get(ctx, name, get)
	case "Job":
		return l.Core.BatchV1().Jobs(namespace).Get(ctx, name, get)
	case "CronJob":
		return l.Core.BatchV1().CronJobs(namespace).Get(ctx, name, get)
	}
	return nil, fmt.Errorf("kind %s is none of Kubernetes' own", kind)
}

// readEvents reads all events of the pods' namespaces, because these include the events of owners. With OwnEvents it
// reads only the events of each pod.
func (l *live) readEvents(ctx context.Context, pods []corev1.Pod) {
	type wanted struct{ namespace, fields string }
	var all []wanted
	for _, p := range pods {
		w := wanted{namespace: p.Namespace}
		if l.OwnEvents {
			w.fields = fields.Set{"involvedObject.kind": "Pod", "involvedObject.name": p.Name}.String()
		}
		if !slices.Contains(all, w) {
			all = append(all, w)
		}
	}
	if w := (wanted{namespace: l.Namespace}); (len(l.Without) > 0 || len(l.Names) == 0 && l.Namespace != "") && !slices.Contains(all, w) && !l.OwnEvents {
		all = append(all, w) // they say why there are no pods
	}
	if l.Namespace == "" && !l.OwnEvents { // those of namespaces without a pod
		for _, reason := range evidence.NotCreated {
			all = append(all, wanted{fields: fields.Set{"reason": reason}.String()})
		}
	}
	for _, w := range all {
		l.request(ctx, func(ctx context.Context) {
			o := metav1.ListOptions{Limit: 500, FieldSelector: w.fields}
			for range 40 { // 20,000 events
				page, err := l.Core.CoreV1().Events(w.namespace).List(ctx, o)
				if err != nil {
					if w.namespace == "" { // those of the pods' namespaces are read too
						return
					}
					l.mu.Lock()
					defer l.mu.Unlock()
					l.NoEvents = append(l.NoEvents, evidence.Missing{Kind: evidence.FromEvent, What: "events of namespace " + w.namespace, Why: reason(err)})
					return
				}
				l.mu.Lock()
				l.Events = append(l.Events, page.Items...)
				l.mu.Unlock()
				if o.Continue = page.Continue; o.Continue == "" {
					return
				}
			}
		})
	}
}

// readLogs adds the logs of a container's current and previous run, because the kubelet keeps no others. It opens
// each log to find out whether it can be read.
func (l *live) readLogs(ctx context.Context, p *evidence.Pod) {
	for _, c := range p.Containers {
		for _, r := range c.Runs {
			previous := r.Number < c.Restarts
			if r.Number < c.Restarts-1 {
				continue
			}
			if !r.Started.Known() {
				l.note(p, evidence.FromLog, evidence.NameOfLog(c.Name, previous), errors.New("the container was not started"))
				continue
			}
			l.request(ctx, func(ctx context.Context) { l.readLog(ctx, p, c.Name, previous, r.Number) })
		}
	}
}

func (l *live) readLog(ctx context.Context, p *evidence.Pod, container string, previous bool, run int) {
	o := &corev1.PodLogOptions{Container: container, Previous: previous, Timestamps: true, LimitBytes: &l.LogBytes}
	if !l.Since.IsZero() {
		o.SinceTime = &metav1.Time{Time: l.Since}
	}
	namespace, pod, kind := p.Object.Namespace, p.Object.Name, evidence.FromLog
	command := fmt.Sprintf("kubectl logs %s -n %s -c %s --timestamps", pod, namespace, container)
	if previous {
		kind, command = evidence.FromPreviousLog, command+" --previous"
	}
	one := int64(1)
	try := *o
	try.TailLines, try.LimitBytes = &one, nil
	stream, err := l.OpenLog(ctx, namespace, pod, &try)
	if err == nil {
		var text []byte
		text, err = io.ReadAll(io.LimitReader(stream, 1<<10))
		err = errors.Join(err, stream.Close())
		if evidence.OfKubectl(text) { // the kubelet writes this with status 200
			err = errors.New(strings.TrimSpace(string(text)))
		}
	}
	if err != nil {
		l.note(p, kind, evidence.NameOfLog(container, previous), err)
		return
	}
	var log *evidence.Log
	log = evidence.NewLog(evidence.Source{Kind: kind, File: command}, func(ctx context.Context) (io.ReadCloser, error) {
		stream, err := l.OpenLog(ctx, namespace, pod, o)
		return &limited{ReadCloser: stream, log: log, left: l.LogBytes}, err
	}, nil)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Logs = append(l.Logs, Log{log, p, container, previous, run})
}

// limited ends a log at a limit of bytes, and then marks the log as truncated.
type limited struct {
	io.ReadCloser
	log  *evidence.Log
	left int64
}

func (l *limited) Read(p []byte) (int, error) {
	if l.left <= 0 { // the request contains the same limit, but the API server may send more
		return 0, io.EOF
	}
	n, err := l.ReadCloser.Read(p[:min(int64(len(p)), l.left)])
	if l.left -= int64(n); l.left <= 0 {
		l.log.Truncated = true
	}
	return n, err
}

// readJournal reads the startup journal from Outrider's agent, if the pod was injected and runs.
func (l *live) readJournal(ctx context.Context, p *evidence.Pod) {
	if _, injected := p.Object.Annotations[contract.Status]; !injected || l.Forward == nil || p.Object.Status.Phase != corev1.PodRunning {
		return
	}
	l.request(ctx, func(ctx context.Context) {
		from := evidence.Source{Kind: evidence.FromJournal, File: fmt.Sprintf("GET /startup of pod %s/%s", p.Object.Namespace, p.Object.Name)}
		raw, err := l.journal(ctx, p)
		if err == nil {
			var j *evidence.Journal
			if j, err = decoded.Journal(raw, from); err == nil {
				l.mu.Lock()
				defer l.mu.Unlock()
				p.Journal = j
				return
			}
		}
		l.note(p, evidence.FromJournal, "startup journal", err)
	})
}

const maxJournal = 4 << 20

func (l *live) journal(ctx context.Context, p *evidence.Pod) ([]byte, error) {
	address, stop, err := l.Forward(ctx, p.Object.Namespace, p.Object.Name, contract.StatusPort)
	if err != nil {
		return nil, err
	}
	defer stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/startup", nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the agent answers %s", res.Status)
	}
	return io.ReadAll(io.LimitReader(res.Body, maxJournal))
}
