package load

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// pooled is the maximum number of calls that are excused after a kill because each used a connection
	// that had ended with the killed process: a busy proxy notices the end only when it uses the
	// connection. A tier's callers have at most this many connections to a pod.
	pooled = 8
	// starved is a share of the time. If processes wait for a processor for a larger share, time-outs are
	// blamed on the machine. A machine that runs only the long form of the test is far below.
	starved = 0.8
)

// A Kill is the killing of a process under load.
type Kill struct {
	What    string
	Pod     string    // name of the pod that contained the process
	Service string    // host name under which the pod is called
	Before  time.Time // a time at which the process still ran
	After   time.Time // a time at which the process and its connections were gone
	Back    time.Time // a time at which the next process served
}

// Excuses reports whether the call of f was in flight in the killed process: the pod made or received the
// call, and the process was killed during it.
func (k Kill) Excuses(f Failure) bool {
	f = f.Root()
	return k.concerns(f) && f.Sent <= k.After.UnixNano() && f.Ended >= k.Before.UnixNano()
}

// met reports whether the call of f may have used a connection that had ended with the killed process.
func (k Kill) met(f Failure) bool {
	f = f.Root()
	return k.concerns(f) && f.Sent > k.After.UnixNano() && f.Sent <= k.Back.UnixNano()
}

func (k Kill) concerns(f Failure) bool {
	return (f.From == k.Pod || f.To == k.Service) && !f.TimedOut
}

// Unexcused returns the failures that no kill explains.
func Unexcused(all []Failure, kills []Kill) (left []Failure) {
	met := make([]int, len(kills))
	for _, f := range all {
		excused := slices.ContainsFunc(kills, func(k Kill) bool { return k.Excuses(f) })
		for i, k := range kills {
			if !excused && k.met(f) {
				met[i]++
				excused = met[i] <= pooled
			}
		}
		if !excused {
			left = append(left, f)
		}
	}
	return left
}

// A Verdict is the judgement of the mesh from the results of a load.
type Verdict struct {
	Lost    []Failure // failures without an excuse
	Untold  int       // number of failures of which no details were reported
	Starved string    // reason why time-outs are not judged; empty if they are judged
}

// Judge separates failures of the mesh from those of a starved machine, on which calls time out but do not fail in
// other ways. The argument told holds the reported failures, and the last argument is the share of the time in which
// processes waited for a processor.
func Judge(told []Failure, kills []Kill, clients map[string]Tally, share float64) (v Verdict) {
	v.Lost, v.Untold = Unexcused(told, kills), -len(told)
	untold := 0 // number of time-outs of which no details were reported
	for _, name := range Clients {
		t := clients[name]
		v.Untold += t.Failed
		untold += t.TimedOut
		if t.Late > Starved {
			v.Starved = fmt.Sprintf("the load was starved, a call of %s was sent %s late", name, t.Late.Round(time.Millisecond))
		}
	}
	if v.Starved == "" && share <= starved {
		return v
	}
	for _, f := range told {
		if f.TimedOut {
			untold--
		}
	}
	v.Untold -= untold
	before := len(v.Lost)
	v.Lost = slices.DeleteFunc(v.Lost, func(f Failure) bool { return f.Root().TimedOut })
	if n := before - len(v.Lost) + untold; v.Starved == "" && n > 0 {
		v.Starved = fmt.Sprintf("%d calls timed out, and the machine was starved: processes waited for a processor in %.0f%% of the time", n, 100*share)
	}
	return v
}

// Doubled returns the numbers of POSTs that a service got more than once. The argument maps the names of the services'
// pods to the numbers that each of them got.
func Doubled(got map[string][]string) (numbers []string) {
	type delivery struct{ service, number string }
	times := map[delivery]int{}
	for pod, list := range got { // any order: the deliveries are counted
		service, _, _ := strings.Cut(pod, "-")
		for _, number := range list {
			d := delivery{service, number}
			if times[d]++; times[d] == 2 {
				numbers = append(numbers, service+" "+number)
			}
		}
	}
	slices.Sort(numbers)
	return numbers
}
