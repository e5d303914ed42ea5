package load

import (
	"fmt"
	"slices"
	"time"
)

const (
	// pooled is how many calls may meet a connection that ended with a process, one each: a busy
	// proxy learns of the end when it uses the connection. A tier's callers keep no more to a pod.
	pooled = 8
	// starved is the share of the time in which processes may wait for a processor without being
	// a reason for time-outs. A machine that does nothing but the long form is far below.
	starved = 0.8
)

// A Kill is the end of a process under load.
type Kill struct {
	What    string
	Pod     string    // of the process
	Service string    // host name by which the pod is called
	Before  time.Time // the process ran
	After   time.Time // it was gone, with its connections
	Back    time.Time // the next one serves
}

// Excuses reports whether f was in flight in the process: made by its pod or to its service,
// and under way when the process ended.
func (k Kill) Excuses(f Failure) bool {
	f = f.Root()
	return k.concerns(f) && f.Sent <= k.After.UnixNano() && f.Ended >= k.Before.UnixNano()
}

// met reports whether f may have met a connection that ended with the process.
func (k Kill) met(f Failure) bool {
	f = f.Root()
	return k.concerns(f) && f.Sent > k.After.UnixNano() && f.Sent <= k.Back.UnixNano()
}

func (k Kill) concerns(f Failure) bool {
	return (f.From == k.Pod || f.To == k.Service) && !f.TimedOut
}

// Unexcused are the failures that no kill explains.
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

// A Verdict is what a load says about the mesh.
type Verdict struct {
	Lost    []Failure // calls that nothing explains
	Untold  int       // lost calls of which the load has said no more
	Starved string    // why nothing can be said about the rest; empty: it can
}

// Judge separates the failures of the mesh from those of a machine that was starved: by them
// calls time out, and do not fail in another way. Share is the part of the time in which
// processes waited for a processor.
func Judge(told []Failure, kills []Kill, clients map[string]Tally, share float64) (v Verdict) {
	v.Lost, v.Untold = Unexcused(told, kills), -len(told)
	untold := 0 // that timed out
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
