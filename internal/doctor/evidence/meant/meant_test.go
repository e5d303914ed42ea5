package meant

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/internal/doctor/evidence/described"
)

// Of several pods those are meant that are not well, then those that restarted lately, then those of which there is more.
func TestChoose(t *testing.T) {
	row := func(line string) described.Row {
		r, is := described.RowOf(line)
		if !is {
			t.Fatal(line)
		}
		return r
	}
	ill, again, long, well := row("web-0 0/1 Error 2 3m"), row("web-1 1/1 Running 2 (3m ago) 9m"), row("web-2 1/1 Running 2 (9d ago) 90d"), row("web-3 1/1 Running 0 9d")
	db := row("db-0 1/1 Running 0 9d")
	for name, tt := range map[string]struct {
		all  []Candidate
		want []int
	}{
		"not well":       {[]Candidate{{Row: ill, Said: -1}, {Row: again, Logged: true}}, []int{0}},
		"restarted":      {[]Candidate{{Row: long, Said: 0}, {Row: again, Said: -1}}, []int{1}},
		"with a log":     {[]Candidate{{Row: long, Said: 0}, {Row: well, Said: -1, Logged: true}}, []int{1}},
		"with an event":  {[]Candidate{{Row: long, Said: 0}, {Row: well, Said: -1, Warned: true}}, []int{1}},
		"said first":     {[]Candidate{{Row: db, Said: 20}, {Row: long, Said: 3}, {Row: well, Said: 3}}, []int{1, 2}},
		"nothing is":     {[]Candidate{{Row: db, Said: -1}, {Row: well, Said: -1}}, []int{0, 1}},
		"none":           {nil, []int{}},
		"completed, all": {[]Candidate{{Row: row("job-x 0/1 Completed 0 9d"), Said: -1}}, []int{0}},
	} {
		if got := Choose(tt.all); fmt.Sprint(got) != fmt.Sprint(tt.want) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
	if Restarted(long) || !Restarted(again) || again.Ended.Least != 3*time.Minute {
		t.Errorf("%+v", again)
	}
}

func TestNames(t *testing.T) {
	sentences := Sentences([]byte("why does hx9k2 fail and clean-web not?\nweb-6d4b75cb6d-2kq8n   1/1   Running   0   3d\n$ kubectl logs web-6d4b75cb6d-99jdb\n"))
	for pod, want := range map[string]int{"web-6d4b75cb6d-hx9k2": 9, "web-6d4b75cb6d-2kq8n": -1, "web-6d4b75cb6d-99jdb": -1, "clean-web-0": 24} {
		if got := Said(sentences, pod); got != want {
			t.Errorf("%s: %d, want %d", pod, got, want)
		}
	}
	for _, tt := range [][4]string{
		{"CronJob", "clean", "clean-27952560-wq4lp", "clean-27952560"}, {"Job", "clean-27952560", "clean-27952560-wq4lp", "clean-27952560"}, {"Job", "clean", "clean-wq4lp", "clean"},
		{"Job", "clean", "clean-27952560-wq4lp", ""}, {"CronJob", "clean", "clean-wq4lp", ""}, {"Deployment", "clean", "clean-wq4lp", ""}, {"CronJob", "clean", "clean-web-27952560-wq4lp", ""}, {"Job", "clean", "clean-0", ""},
	} {
		if got := JobOf(tt[0], tt[1], tt[2]); got != tt[3] {
			t.Errorf("%v: %q", tt, got)
		}
	}
}

// Events say which containers a pod has, and which of them waits.
func TestUnits(t *testing.T) {
	e := func(reason, container, message string, count int) evidence.Event {
		return evidence.Event{About: "Pod a/b", Reason: reason, Container: container, Message: message, Count: count}
	}
	events := []evidence.Event{e("Started", "web", "", 6), e("BackOff", "web", "Back-off restarting failed container web", 4), e("BackOff", "mesh", `Back-off pulling image "x"`, 4), e("Scheduled", "", "", 1), e("Started", "db", "", 1)}
	var status corev1.PodStatus
	units := Units(events, &status)
	if len(units) != 3 || len(status.ContainerStatuses) != 2 || status.ContainerStatuses[0].RestartCount != 5 || status.ContainerStatuses[1].State.Waiting.Reason != "ImagePullBackOff" {
		t.Errorf("%+v %+v", units, status)
	}
	quiet := e("Killing", "web", "", 1)
	quiet.About = "Pod a/c"
	if got := Warned(append(events, quiet)); len(got) != 1 || len(got["Pod a/b"]) != 5 {
		t.Errorf("%+v", got)
	}
	if got := Warned([]evidence.Event{quiet}); len(got) != 1 {
		t.Errorf("%+v", got)
	}
}
